"""One measurement in its own process: `python -m llmqsim.benchmark.measure a` prints the figures of case a as JSON.

`machine` measures the machine's own limits, `scale:N` case g with N requests, `compile` what all kernels take to compile
(or to load, where they were compiled before). Whatever takes a second or less runs a few times, and the least counts:
others on the machine can only add to it.
"""

from __future__ import annotations

import hashlib
import json
import resource
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
from llmqsim.simulation import prepare, simulate

CHECKED_REQUESTS = 2000
REPEATS = 9
ONCE_ABOVE_S = 5.0
"""a case that takes longer than this runs once"""
PARTS = ("load", "prepare", "simulate", "figures", "write")
"""of a case's CPU seconds: scenario text, step costs, requests drawn and served, figures (in g part of simulate), JSON"""
COMPILES = ("a", "b8", "e")
"""cases that call every kernel between them"""
SIMPY_TIMEOUTS = 200_000
NUMBA_STEPS = 3_000_000


def main() -> None:
    """Print the figures of what the command line names."""
    name = sys.argv[1]
    if name == "machine":
        told = machine()
    elif name == "compile":
        told = compile_all()
    elif name.startswith("scale:"):
        told = scale(int(name.partition(":")[2]))
    else:
        told = case(name)
    print(json.dumps(told))


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
    run = _least(name)
    seconds = sum(run["parts"].values())
    return {
        "case": name,
        "engine": run["engine"],
        "requests": run["requests"],
        "cpu_s": seconds,
        "requests_per_cpu_s": round(run["requests"] / seconds),
        "tokens_per_cpu_s": round(run["tokens"] / seconds),
        "peak_rss_bytes": _peak_bytes(),
        "result_hash": run["hash"],
        "steps": run["steps"],
        "parts_cpu_s": run["parts"],
        "reference": check,
    }


def scale(requests: int) -> dict[str, Any]:
    """Case g with so many requests."""
    size = f"workload.requests={requests}"
    timed("g", "workload.requests=1000")
    run = _least("g", size)
    return {"requests": requests, "cpu_s": sum(run["parts"].values()), "peak_rss_bytes": _peak_bytes()}


def compile_all() -> dict[str, float]:
    """CPU and wall seconds until every kernel of the compiled engine has run once."""
    marks = time.process_time(), time.perf_counter()
    for name in COMPILES:
        simulate(scenario(name, "workload.requests=50", "run.engine=compiled")).summary()
    return {"cpu_s": time.process_time() - marks[0], "wall_s": time.perf_counter() - marks[1]}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _least(name: str, *sets: str) -> dict[str, Any]:
    """The quickest of a few runs."""
    runs = [timed(name, *sets)]
    while len(runs) < REPEATS and sum(runs[0]["parts"].values()) < ONCE_ABOVE_S:
        runs.append(timed(name, *sets))
    return min(runs, key=lambda run: sum(run["parts"].values()))


def timed(name: str, *sets: str) -> dict[str, Any]:
    """Load, simulate, write JSON: what it did, and the CPU seconds of the parts."""
    marks = [time.process_time()]
    loaded = scenario(name, *sets)
    marks.append(time.process_time())
    prepared = prepare(loaded)
    marks.append(time.process_time())
    run = loaded.spec.run
    result = prepared.run(run.seed, run.replication, keep="summary" if name == "g" else "requests")
    marks.append(time.process_time())
    summary = result.summary()
    marks.append(time.process_time())
    with tempfile.TemporaryDirectory() as folder:
        files.write_json(summary, str(Path(folder) / "result.json"))
    marks.append(time.process_time())
    return {
        "parts": dict(zip(PARTS, (b - a for a, b in zip(marks, marks[1:])), strict=True)),
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
        "simpy_timeouts_per_cpu_s": round(SIMPY_TIMEOUTS / _least_s(_simpy_timeouts)),
        "numba_steps_per_cpu_s": round(
            NUMBA_STEPS / _least_s(lambda: decode_steps(cost.costs, cost.params, NUMBA_STEPS, 32))
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


def _least_s(work: Callable[[], Any]) -> float:
    """CPU seconds of the quickest of a few runs."""
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


if __name__ == "__main__":
    main()
