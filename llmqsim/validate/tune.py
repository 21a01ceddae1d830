"""`llmqsim calibrate tune`: host time and derate of a user's own deployment, from the results of its benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llmqsim.errors import DataError
from llmqsim.hardware.gpu import gpu
from llmqsim.scenario.build import build_servers
from llmqsim.scenario.load import from_mapping
from llmqsim.validate.cases import Case
from llmqsim.validate.execute import Outcomes, execute_all, wanted
from llmqsim.validate.runs import CannotRun, Run, plan
from llmqsim.validate.tuning import LEAST_RUNS, START, Estimate, check, leave_one_out, solve

OBSERVED = (("tpot", "mean"), ("tpot", "p50"), ("itl", "mean"), ("e2e", "mean"))
"""what a run is fitted on: the first of these that was measured"""
JUDGED = (
    ("tpot", "mean"),
    ("tpot", "p50"),
    ("itl", "mean"),
    ("e2e", "mean"),
    ("ttft", "mean"),
    ("output_tok_s", "value"),
)
HOST_STEP_S, DERATE_STEP = 2e-4, 0.05
"""how far parameters are moved to see what they do"""
ROUNDS = 4
SETTLED = 2e-3
ONE_REQUEST = {"requests": 1, "arrivals": {"process": "burst"}, "lengths": {"prompt": 1, "output": 1}}


@dataclass(frozen=True)
class Tuned:
    """What was found. errors : (metric, stat) -> mean absolute error in per cent before, after, and left out.

    host_s : the host time a step that the scenario should state. gpu : its GPU with the derate.
    """

    estimate: Estimate
    host_s: float
    gpu: dict
    runs: int
    errors: dict[tuple[str, str], tuple[float, float, float]]

    @property
    def helps(self) -> bool:
        """Is a run that the fit did not see predicted better? Judged on what was fitted."""
        before, _, left_out = next(iter(self.errors.values()))
        return left_out < before


def tune(cases: Iterable[Case], workers: int | None = None, tell: Callable[[str], None] | None = None) -> Tuned:
    """Estimate both figures. Raises DataError where runs can't be read, are of several deployments, or can't tell."""
    runs = _runs(cases)
    base_s = _base_host_s(runs[0])
    measured = np.array([_observed(run) for run in runs])
    at, before = START, None
    for round_ in range(1, ROUNDS + 1):
        here, jacobian, outcomes = _look(runs, base_s, at, workers)
        before = before or outcomes
        found = solve(np.log(measured) - here, jacobian, at, -base_s)
        settled = abs(found.derate / at.derate - 1) < SETTLED and abs(found.host_s - at.host_s) < 1e-5
        at = found
        if tell is not None:
            tell(f"round {round_}: host {1e3 * (base_s + at.host_s):.3f} ms a step, derate {at.derate:.3f}")
        if settled:
            break
    check(at, jacobian, float(measured.min()) / 1e3)
    here, jacobian, after = _look(runs, base_s, at, workers)
    without = leave_one_out(np.log(measured) - here, jacobian, at, -base_s)
    left_out = execute_all([_with(run, base_s, theirs) for run, theirs in zip(runs, without, strict=True)], workers)
    errors = {key: told for key in JUDGED if (told := _errors(runs, key, before, after, left_out)) is not None}
    return Tuned(at, base_s + at.host_s, _gpu(runs[0], at.derate), len(runs), errors)


def _runs(cases: Iterable[Case]) -> list[Run]:
    """Runs with something to fit, all of one GPU, engine and degree of parallelism."""
    planned = [item for case in cases for item in plan(case)]
    bad = [item.reason for item in planned if isinstance(item, CannotRun)]
    if bad:
        raise DataError(*(f"tune: {reason}" for reason in dict.fromkeys(bad)))
    whole = [replace(item, entries=item.entries[:1]) for item in planned if isinstance(item, Run)]
    runs = [run for run in whole if _observed(run) is not None]
    if len(runs) < LEAST_RUNS:
        raise DataError(
            f"tune: {len(runs)} runs with TPOT, ITL or E2E; at least {LEAST_RUNS} at different loads are needed"
        )
    for key in ("gpu", "preset", "tensor_parallel_size"):
        found = dict.fromkeys(str({**run.scenario["engine"], **run.scenario}[key]) for run in runs)
        if len(found) > 1:
            told = f"{'engine' if key == 'preset' else key}: {', '.join(found)}"
            raise DataError(f"tune: runs of different deployments ({told}); tune one at a time, see --case")
    return runs


def _observed(run: Run) -> float | None:
    """The measured latency that a run is fitted on, ms."""
    found = {(f.metric, f.stat): f.measured for f in wanted(run)[run.entries[0]] if f.measured > 0}
    return next((found[key] for key in OBSERVED if key in found), None)


def _base_host_s(run: Run) -> float:
    """Host time a step that the preset states."""
    return build_servers(from_mapping({**run.scenario, "workload": ONE_REQUEST})).deployment.host.per_step_s


def _gpu(run: Run, derate: float) -> dict:
    """The GPU with every rate lowered, as a scenario writes it."""
    card = gpu(run.scenario["gpu"])
    return {
        "like": card.name,
        "memory_bandwidth": card.memory_bandwidth_bytes_per_s / derate,
        "flops": {dtype: rate / derate for dtype, rate in card.flops_per_s.items()},
    }


def _with(run: Run, base_s: float, values: Estimate) -> Run:
    """The run with other parameters."""
    engine = dict(run.scenario["engine"])
    engine["host"] = {**engine.get("host", {}), "per_step": max(0.0, base_s + values.host_s)}
    return replace(run, scenario={**run.scenario, "engine": engine, "gpu": _gpu(run, values.derate)})


def _look(
    runs: Sequence[Run], base_s: float, at: Estimate, workers: int | None
) -> tuple[np.ndarray, np.ndarray, list[Outcomes]]:
    """log predicted, float64[n]; its slopes by host time and log derate, float64[n, 2]; and the outcomes here."""
    slower = replace(at, derate=at.derate * (1 + DERATE_STEP))
    longer = replace(at, host_s=at.host_s + HOST_STEP_S)
    moved = [_with(run, base_s, values) for values in (at, longer, slower) for run in runs]
    outcomes = execute_all(moved, workers)
    told = [_predicted(run, outcome) for run, outcome in zip(moved, outcomes, strict=True)]
    here, by_host, by_derate = np.log(told).reshape(3, len(runs))
    jacobian = np.stack([(by_host - here) / HOST_STEP_S, (by_derate - here) / np.log1p(DERATE_STEP)], axis=1)
    return here, jacobian, outcomes[: len(runs)]


def _predicted(run: Run, outcome: Outcomes) -> float:
    """The prediction of what the run is fitted on, ms. Raises DataError where it could not be run."""
    if outcome.error:
        raise DataError(f"tune: {run.case.place}: {outcome.error}")
    measured, values = _measured(run), _values(run, outcome)
    key = next(key for key in OBSERVED if measured.get(key, 0) > 0)
    if not values.get(key):
        raise DataError(f"tune: {run.case.place}: the simulated run has no {' '.join(key)}: no request was answered")
    return values[key]


def _measured(run: Run) -> dict[tuple[str, str], float]:
    return {(figure.metric, figure.stat): figure.measured for figure in wanted(run)[run.entries[0]]}


def _values(run: Run, outcome: Outcomes) -> dict[tuple[str, str], float | None]:
    return dict(zip(_measured(run), outcome.values.get(run.entries[0], ()), strict=False))


def _errors(runs: Sequence[Run], key: tuple[str, str], *stages: Sequence[Outcomes]) -> tuple[float, ...] | None:
    """Mean absolute error in per cent of one figure over the runs that measured it, at each stage."""
    told = []
    for outcomes in stages:
        pairs = [(_measured(run).get(key), _values(run, one).get(key)) for run, one in zip(runs, outcomes, strict=True)]
        sizes = [100 * abs(value - real) / real for real, value in pairs if real and value is not None]
        if not sizes:
            return None
        told.append(float(np.mean(sizes)))
    return tuple(told)


def text(found: Tuned) -> str:
    """What the terminal shows, with the keys to put into a scenario."""
    e = found.estimate
    lines = [
        f"{found.runs} runs: host time {found.host_s * 1e3:.3f} ± {e.host_error_s * 1e3:.3f} ms a step, "
        f"GPU time × {e.derate:.3f} ± {e.derate_error:.3f} (correlation {e.correlation:+.2f})",
        "",
        f"{'mean error, %':<20}{'before':>9}{'after':>9}{'left out':>10}",
    ]
    for (metric, stat), (before, after, left) in found.errors.items():
        name = metric if stat == "value" else f"{metric} {stat}"
        lines.append(f"{name:<20}{before:>9.1f}{after:>9.1f}{left:>10.1f}")
    if not found.helps:
        return "\n".join(
            [*lines, "", "A run that the fit did not see is predicted no better: keep the preset's values."]
        )
    return "\n".join([*lines, "", "In a scenario:", "", keys(found)])


def keys(found: Tuned) -> str:
    """The scenario's keys, YAML."""
    flops = ", ".join(f"{dtype}: {rate:.5g}" for dtype, rate in found.gpu["flops"].items())
    return (
        f"gpu: {{like: {found.gpu['like']}, memory_bandwidth: {found.gpu['memory_bandwidth']:.5g}, flops: {{{flops}}}}}\n"
        f"engine: {{host: {{per_step: {found.host_s * 1e3:.4g} ms}}}}\n"
    )
