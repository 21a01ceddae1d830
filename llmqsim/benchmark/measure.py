"""One benchmark case in its own process: `python -m llmqsim.benchmark.measure a` prints its figures as JSON."""

from __future__ import annotations

import hashlib
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from llmqsim.report import files
from llmqsim.scenario.build import build_servers
from llmqsim.scenario.load import Scenario, load
from llmqsim.simulation import simulate

CHECKED_REQUESTS = 2000
REPEATS = 5
ONCE_ABOVE_S = 5.0
"""a case that takes longer than this runs once"""
SIMPY_TIMEOUTS = 200_000
NUMBA_STEPS = 3_000_000


def main() -> None:
    """Print the figures of the case (or of the machine) that the command line names."""
    print(json.dumps(machine() if sys.argv[1] == "machine" else case(sys.argv[1])))


def scenario(name: str, *sets: str) -> Scenario:
    """The scenario of a case."""
    with resources.as_file(resources.files("llmqsim.presets") / "benchmarks.yaml") as path:
        return load(path, variant=name, sets=sets)


def result_hash(summary: dict[str, Any]) -> str:
    """SHA-256 of every figure of a result as JSON; which engine made it is left out."""
    run = {key: value for key, value in summary["scenario"]["run"].items() if key != "engine"}
    told = {**summary, "scenario": {**summary["scenario"], "run": run}}
    del told["engine"]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def case(name: str) -> dict[str, Any]:
    """Check a case against the reference engine on its first requests (that compiles, too), then time it."""
    check = _check(name)
    runs = [_timed(name)]
    if sum(runs[0]["parts"].values()) < ONCE_ABOVE_S:
        runs += [_timed(name) for _ in range(REPEATS - 1)]
    run = sorted(runs, key=lambda run: sum(run["parts"].values()))[len(runs) // 2]
    seconds = sum(run["parts"].values())
    return {
        "case": name,
        "engine": run["engine"],
        "requests": run["requests"],
        "cpu_s": seconds,
        "requests_per_cpu_s": round(run["requests"] / seconds),
        "tokens_per_cpu_s": round(run["tokens"] / seconds),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "result_hash": run["hash"],
        "steps": run["steps"],
        "parts_cpu_s": run["parts"],
        "reference": check,
    }


def _timed(name: str) -> dict[str, Any]:
    """Load, simulate, write JSON: what it did, and the CPU seconds of the parts."""
    marks = [time.process_time()]
    loaded = scenario(name)
    marks.append(time.process_time())
    result = simulate(loaded, keep="summary")
    marks.append(time.process_time())
    summary = result.summary()
    with tempfile.TemporaryDirectory() as folder:
        files.write_json(summary, str(Path(folder) / "result.json"))
    marks.append(time.process_time())
    parts = dict(zip(("load", "simulate", "report"), (b - a for a, b in zip(marks, marks[1:])), strict=True))
    return {
        "parts": parts,
        "engine": result.engine,
        "requests": summary["requests"]["arrived"],
        "tokens": sum(usage.tokens for usage in result.usage),
        "steps": sum(usage.steps for usage in result.usage),
        "hash": result_hash(summary),
    }


def _check(name: str) -> dict[str, Any]:
    """Do both engines say the same on the first requests? And how fast is the reference engine?"""
    size = f"workload.requests={CHECKED_REQUESTS}"
    compiled = simulate(scenario(name, size, "run.engine=compiled"))
    began = time.process_time()
    reference = simulate(scenario(name, size, "run.engine=reference"))
    seconds = time.process_time() - began
    return {
        "requests": CHECKED_REQUESTS,
        "requests_per_cpu_s": round(CHECKED_REQUESTS / seconds),
        "same_result": result_hash(compiled.summary()) == result_hash(reference.summary())
        and bool((compiled.table.data == reference.table.data).all()),
    }


def machine() -> dict[str, int]:
    """What the machine can do at most: bare SimPy timeouts, and bare decode steps in numba, per CPU second."""
    from llmqsim.benchmark.kernels import decode_steps

    cost = build_servers(scenario("a")).deployment.cost
    decode_steps(cost.costs, cost.params, 1, 1)
    return {
        "simpy_timeouts_per_cpu_s": round(SIMPY_TIMEOUTS / _median_s(_simpy_timeouts)),
        "numba_steps_per_cpu_s": round(
            NUMBA_STEPS / _median_s(lambda: decode_steps(cost.costs, cost.params, NUMBA_STEPS, 32))
        ),
    }


def _simpy_timeouts() -> None:
    import simpy

    env = simpy.Environment()

    def process():
        for _ in range(SIMPY_TIMEOUTS):
            yield env.timeout(1)

    env.process(process())
    env.run()


def _median_s(work: Callable[[], Any]) -> float:
    """Median CPU seconds of a few runs."""
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
