"""C12: shortest first by a classifier that errs: where is it worse than first come first served?"""

from __future__ import annotations

import numpy as np

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.loads import RATE, REQUESTS, saturated_per_s
from llmqsim.simulation import simulate

LOADS = (0.95, 1.05)
ERRORS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""share of each kind that is taken for the other; at 0.5 the classifier knows nothing"""
CONFUSION = "workload.predictor.confusion"
TOLD = (0.0, 0.1, 0.5)


def measure(setting: Setting) -> list[Figure]:
    """P99 wait of the shorter half over that of first come first served, at each load and error rate."""
    carried = saturated_per_s(setting, "c12")
    sets = {REQUESTS: setting.size(4000, 2000)}
    rests = f"non-preemptive, 16 slots, {sets[REQUESTS]:,} requests, {carried:.2f} req/s carried at most"
    never = f"{rests}; – where it is not, up to half"
    figures = []
    for load in LOADS:
        at = {**sets, RATE: load * carried}
        fcfs = _waits(setting, None, at)
        tail, mean = {}, {}
        for error in ERRORS:
            tail[error], mean[error] = _waits(setting, "sjf", {**at, CONFUSION: _confusion(error, error)}) / fcfs
        giants, _ = _waits(setting, "sjf", {**at, CONFUSION: _confusion(0, 0.5)}) / fcfs
        name = f"of the shorter half over fcfs, load {load:g}"
        figures += [
            Figure(f"P99 wait {name}, {error:.0%} misclassified", float(tail[error].mean()), None, rests)
            for error in TOLD
        ]
        figures.append(
            Figure(f"P99 wait {name}, half of the giants taken for short", float(giants.mean()), None, rests)
        )
        figures.append(
            Figure(f"misclassification from which its P99 is worse, load {load:g}", crossing(tail), None, never)
        )
        figures.append(
            Figure(f"misclassification from which its mean is worse, load {load:g}", crossing(mean), None, never)
        )
    return figures


def crossing(ratios: dict[float, np.ndarray]) -> float:
    """The rate at which ratios (one a seed, by rate) first exceed 1 in their mean, between two rates by a straight line.

    inf where they never do.
    """
    before: tuple[float, float] | None = None
    for rate in sorted(ratios):
        ratio = float(ratios[rate].mean())
        if ratio > 1:
            return rate if before is None else before[0] + (rate - before[0]) * (1 - before[1]) / (ratio - before[1])
        before = rate, ratio
    return float("inf")


def _confusion(short: float, giant: float) -> list[list[float]]:
    """short, giant : share that is taken for the other."""
    return [[1 - short, short], [giant, 1 - giant]]


def _waits(setting: Setting, variant: str | None, sets: dict) -> np.ndarray:
    """P99 and mean of the wait before the first step, over the shorter half of the answers: float64[2, seeds], seconds."""
    scenario = setting.load("c12", variant, sets)
    found = []
    for seed in setting.seeds(setting.size(5, 3)):
        table = simulate(scenario, seed=seed).table
        shorter = np.argsort(table.output_tokens, kind="stable")[: len(table) // 2]
        wait = (table.first_scheduled_ns - table.arrival_ns)[shorter] / 1e9
        found.append((np.percentile(wait, 99), wait.mean()))
    return np.array(found).T
