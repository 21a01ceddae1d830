"""Goodput of a deployment under many SLOs at once: the same traffic at rising rates, and the last rate that keeps each.

Goodput here: the highest rate at which the wanted share of arrivals meets both targets, read off a geometric grid of
rates (linear between two of them). Each run lasts SECONDS, whatever the rate, and what arrives in its first quarter does
not count: a fixed number of requests would be over before a fast system is full.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from llmqsim.metrics.latency import completed
from llmqsim.metrics.slo import Objective, stand
from llmqsim.planner.vary import changed
from llmqsim.result import Result
from llmqsim.simulation import Prepared

SECONDS, LEAST = 40, 200
"""of arrivals in a run, and requests at least"""
Pair = tuple[float, float]
"""TTFT and TPOT, seconds"""


def at_rate(prepared: Prepared, rate: float) -> Prepared:
    """The same servers under so many requests per second. The scenario's arrivals must be open, with a rate."""
    arrivals = prepared.scenario.spec.workload.arrivals.model_copy(update={"rate": rate})
    requests = max(LEAST, round(rate * SECONDS))
    values = {"workload.arrivals": arrivals, "workload.requests": requests}
    return Prepared(changed(prepared.scenario, values), prepared.servers)


def latencies(prepared: Prepared, rate: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """TTFT and TPOT of the arrivals that count, seconds (float64[n] each); inf for those that were not completed."""
    result = at_rate(prepared, rate).run(seed, 0)
    table, late = result.table, _counted(result)
    done = completed(table)
    gaps = np.maximum(table.generated_tokens - 1, 1)
    ttft = np.where(done, (table.first_token_ns - table.arrival_ns) / 1e9, np.inf)
    tpot = np.where(done, (table.finish_ns - table.first_token_ns) / gaps / 1e9, np.inf)
    return ttft[late], tpot[late]


def _counted(result: Result) -> np.ndarray:
    """Mask of the arrivals that count, bool[rows]."""
    due_ns = result.table.intended_ns
    return due_ns >= due_ns.max() // 4


def goodput(
    prepared: Prepared, slos: Iterable[Pair], rates: Iterable[float], share: float = 0.9, seed: int = 0
) -> dict[Pair, float]:
    """Requests per second under each SLO, 0.0 where the lowest rate misses it.

    rates : rising. The runs stop at the first rate that no SLO survives; the last rate of the grid is a lower bound.
    """
    slos, kept = list(slos), {}
    before: dict[Pair, Pair] = {}
    for rate in rates:
        result = at_rate(prepared, rate).run(seed, 0)
        counted = _counted(result)
        alive = False
        for slo in slos:
            if slo in kept:
                continue
            met = stand(result, Objective("attainment", {"ttft_s": slo[0], "tpot_s": slo[1]}, share), counted).share or 0.0
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
