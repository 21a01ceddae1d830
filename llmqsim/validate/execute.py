"""Running what was planned: over processes, each simulation once, results in the order of the plan."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from llmqsim import progress
from llmqsim.errors import UserError
from llmqsim.metrics import usage
from llmqsim.metrics.stability import of_run
from llmqsim.requests import Outcome
from llmqsim.result import Result
from llmqsim.validate.figures import Figure, figures
from llmqsim.validate.limits import simulated
from llmqsim.validate.predicted import predict
from llmqsim.validate.runs import Run
from llmqsim.validate.saturation import gain


@dataclass(frozen=True)
class Outcomes:
    """What a run gave. values : entry -> one value a figure (None: no such figure). error : why it could not run.

    verdict : of stability, or "". gain : g near saturation. outside : axis -> share of steps beyond the measured box.
    """

    values: dict[int, list[float | None]] = field(default_factory=dict)
    error: str = ""
    engine: str = ""
    verdict: str = ""
    gain: float | None = None
    outside: dict[str, float] = field(default_factory=dict)
    timed_out: int = 0
    refused: int = 0
    requests: int = 0
    seconds: float = 0.0


def wanted(run: Run) -> dict[int, list[Figure]]:
    """The measured figures of a run's entries."""
    return {entry: list(figures(run.case.entries[entry])) for entry in run.entries}


def execute(run: Run) -> Outcomes:
    """Simulate one run. Whatever fails is told in `error`: the other runs go on."""
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="llmqsim-") as folder:
            if run.sent is not None:
                Path(folder, "sent.csv").write_text(run.sent.csv())
            for name, text in run.files.items():
                Path(folder, name).write_text(text)
            scenario, result = simulated(run.scenario, folder)
            near = gain(scenario, result)
        return _told(run, result, near, time.perf_counter() - start)
    except UserError as error:
        said = "; ".join(fault.removeprefix("<mapping>: ") for fault in error.faults)
        return Outcomes(error=said, seconds=time.perf_counter() - start)
    except Exception as error:  # noqa: BLE001 one case must never take the others with it
        return Outcomes(error=f"failed: {type(error).__name__}: {error}", seconds=time.perf_counter() - start)


def _told(run: Run, result: Result, near: float | None, seconds: float) -> Outcomes:
    table = result.table
    return Outcomes(
        values=predict(result, run, wanted(run)),
        engine=result.engine,
        verdict=of_run(result)["verdict"],
        gain=near,
        outside={axis: share for axis, share in usage.outside(result.usage).items() if share},
        timed_out=int((table.outcome == Outcome.TIMED_OUT).sum()),
        refused=int((table.outcome == Outcome.REJECTED).sum()),
        requests=len(table),
        seconds=seconds,
    )


def execute_all(
    runs: Iterable[Run], workers: int | None = None, tell: Callable[[str], None] | None = None
) -> list[Outcomes]:
    """The outcome of every run, in their order; equal simulations are made once.

    workers : processes (default: the cores that this process may use). tell : hears of progress.
    """
    runs = list(runs)
    unique: dict[str, Run] = {}
    for run in runs:
        known = unique.get(run.key)
        entries = (*known.entries, *run.entries) if known else run.entries  # a point that was measured twice
        unique[run.key] = replace(run, entries=tuple(dict.fromkeys(entries)))
    order = sorted(unique, key=lambda key: -_work(unique[key]))
    done = _pooled([unique[key] for key in order], workers or _cores(), tell)
    by_key = dict(zip(order, done, strict=True))
    return [by_key[run.key] for run in runs]


def _work(run: Run) -> float:
    """Tokens that a run has to serve, roughly: what its time goes by."""
    keys = run.scenario["workload"]
    if run.sent is not None:
        return float(run.sent.output_tokens.sum())
    n = keys.get("requests") or keys.get("duration", 0) * (keys["arrivals"].get("rate") or 1)
    output = keys["lengths"]["output"]
    each = output if isinstance(output, int) else 300
    return float(n) * each


def _cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return max(1, os.cpu_count() or 1)


def _pooled(runs: list[Run], workers: int, tell: Callable[[str], None] | None) -> list[Outcomes]:
    progress.stage("validate", len(runs), counts_runs=False)
    if workers == 1 or len(runs) < 2:
        return [_noted(execute(run), run, i, len(runs), tell) for i, run in enumerate(runs, 1)]
    done: dict[int, Outcomes] = {}
    with ProcessPoolExecutor(max_workers=workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(execute, run): i for i, run in enumerate(runs)}
        for number, future in enumerate(as_completed(waiting), 1):
            i = waiting[future]
            try:
                done[i] = _noted(future.result(), runs[i], number, len(runs), tell)
            except BrokenProcessPool as error:  # killed for memory, most likely
                done[i] = Outcomes(error=f"failed: the process that ran it ended ({error})")
    return [done[i] for i in range(len(runs))]


def _noted(outcome: Outcomes, run: Run, number: int, total: int, tell: Callable[[str], None] | None) -> Outcomes:
    progress.step()
    if tell is not None:
        tell(f"{number}/{total} {run.case.id}: {outcome.error or f'{outcome.seconds:.1f} s, {outcome.engine} engine'}")
    return outcome
