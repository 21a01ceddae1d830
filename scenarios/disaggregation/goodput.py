"""Goodput of a deployment under many SLOs at once: the same arrivals at rising rates, and the last rate that keeps each.

Goodput here: the highest rate at which the wanted share of arrivals meets both targets, read off a geometric grid of
rates (linear between two of them). Each run lasts SECONDS, whatever the rate, and what arrives in its first quarter does
not count: a fixed number of requests would be over before a fast system is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from llmqsim import load, simulate
from llmqsim.requests import Outcome
from llmqsim.scenario import Scenario

RATE = "workload.arrivals.rate"
SECONDS, LEAST = 40, 200
"""of arrivals in a run, and requests at least"""


def at_rate(rate: float) -> dict[str, float]:
    """The settings of a run at this rate."""
    return {RATE: rate, "workload.requests": max(LEAST, round(rate * SECONDS))}


def latencies(scenario: Scenario, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """TTFT and TPOT of the arrivals that count, seconds (float64[n] each); inf for those that were not completed."""
    table = simulate(scenario, seed=seed).table
    late = table.arrival_ns >= table.arrival_ns.max() // 4
    done = table.outcome == Outcome.COMPLETED
    gaps = np.maximum(table.generated_tokens - 1, 1)
    ttft = np.where(done, (table.first_token_ns - table.arrival_ns) / 1e9, np.inf)
    tpot = np.where(done, (table.finish_ns - table.first_token_ns) / gaps / 1e9, np.inf)
    return ttft[late], tpot[late]


def goodput(
    path: str,
    slos: Iterable[tuple[float, float]],
    rates: Iterable[float],
    share: float = 0.9,
    seed: int = 0,
    variant: Any = None,
    sets: Mapping[str, Any] | None = None,
) -> dict[tuple[float, float], float]:
    """Requests per second under each SLO (TTFT s, TPOT s), 0.0 where the lowest rate misses it.

    The runs stop at the first rate that no SLO survives; a rate of the grid that is the last one is a lower bound.
    """
    slos, kept = list(slos), {}
    before: dict[tuple[float, float], tuple[float, float]] = {}
    for rate in rates:
        ttft, tpot = latencies(load(path, variant=variant, sets={**(sets or {}), **at_rate(rate)}), seed)
        alive = False
        for slo in slos:
            if slo in kept:
                continue
            met = float(np.mean((ttft <= slo[0]) & (tpot <= slo[1])))
            if met < share:
                low_rate, low_met = before.get(slo, (rate, met))
                part = (low_met - share) / (low_met - met) if low_met > met else 0.0
                kept[slo] = low_rate + (rate - low_rate) * part if slo in before else 0.0
            else:
                before[slo], alive = (rate, met), True
        if not alive:
            break
    return {slo: kept.get(slo, before.get(slo, (0.0, 0.0))[0]) for slo in slos}


def grid(lowest: float, highest: float, step: float = 1.1) -> list[float]:
    """Rates from lowest to highest, each `step` times the one before."""
    count = int(np.ceil(np.log(highest / lowest) / np.log(step))) + 1
    return [round(lowest * step**i, 4) for i in range(count)]
