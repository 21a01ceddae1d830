"""Arrival times of open-loop traffic, each gap by the inverse CDF of one uniform number.

Gaps are drawn at unit rate and stretched by the rate, so that a change of rate stretches one and the same pattern, and
row i arrives at the same time however many rows or how long a duration is asked for. Stages of different rates stretch
the same pattern piece by piece: for exponential gaps that is exactly the Poisson process of that rate.
"""

from __future__ import annotations

import math

import numpy as np

from llmqsim.errors import ScenarioError, or_known
from llmqsim.memory import require
from llmqsim.units import NS_PER_S
from llmqsim.workload.gaps import RENEWALS, gap_shape, unit_gaps

MAX_REQUESTS = 50_000_000
"""more would take a day to simulate"""
BYTES_PER_REQUEST = 220
"""peak memory of a run that keeps its summary, measured on 10 million requests (docs/benchmarks.md)"""
MAX_TIME_S = 4e9
"""127 years; the clock ends 20 years later."""

PROCESSES = (*RENEWALS, "burst")
"""open-loop processes; closed_loop has no times of its own, see build.py"""


def arrival_ns(
    arrivals: dict,
    requests: int | None,
    duration_s: float | None,
    generator: np.random.Generator,
    key: str = "workload.arrivals",
) -> np.ndarray:
    """Draw arrival times, int64[n] ns, non-decreasing: `requests` rows, or those before `duration_s`, the fewer.

    arrivals : {process, rate (per second) | stages ({rate, duration} each), cv | burstiness, fixed_count}. The first
    arrival comes after the first gap (constant: at 1/rate); burst: all at zero. Stages end the traffic. key : what
    faults call it. Raises ScenarioError where the keys don't add up.
    """
    process, rate, stages = arrivals.get("process"), arrivals.get("rate"), arrivals.get("stages")
    if process not in PROCESSES:
        raise ScenarioError(f"{key}.process: unknown (got '{process}'){or_known(str(process), PROCESSES)}")
    if process == "burst":
        if requests is None:
            raise ScenarioError("workload.requests: a burst needs the number of requests; a duration does not end it")
        return np.zeros(bounded(requests), dtype=np.int64)
    if stages is None:
        if rate is None or not 0 < rate < math.inf:
            raise ScenarioError(f"{key}.rate: {process} arrivals need a rate above 0 (got {rate})")
        if requests is None and duration_s is None:
            raise ScenarioError("workload: needs `requests`, `duration` or both, or the traffic never ends")
    if arrivals.get("fixed_count"):
        return _fixed_count(_stages(arrivals, requests, duration_s), requests, duration_s, generator, key)
    shape = gap_shape(arrivals, key)
    inverse_cdf = unit_gaps(process, shape)
    if stages is not None:
        return _staged(inverse_cdf, shape, stages, requests, duration_s, generator)
    if duration_s is None:
        return to_ns(np.cumsum(inverse_cdf(generator.random(bounded(requests)))) / rate)
    times = to_ns(_until(inverse_cdf, shape, requests, rate * duration_s, generator) / rate)
    return times[times < to_ns(np.array([duration_s]))[0]][:requests]


def mean_rate(arrivals: dict) -> float:
    """Requests per second, averaged over the stages where there are any; inf for a burst, NaN for a closed loop."""
    if arrivals.get("stages") is not None:
        stages = arrivals["stages"]
        return sum(s["rate"] * s["duration"] for s in stages) / sum(s["duration"] for s in stages)
    if arrivals["process"] == "burst":
        return math.inf
    return math.nan if arrivals["process"] == "closed_loop" else float(arrivals["rate"])


def _until(inverse_cdf, shape, requests, expected: float, generator) -> np.ndarray:
    """Sums of unit gaps, float64[n], drawn in blocks of one stream until they pass `expected` (or `requests` rows)."""
    if requests is None:
        bounded(expected)
    block = min(int(expected + 6 * math.sqrt(expected / min(shape, 1.0))) + 64, MAX_REQUESTS)
    if requests is not None:
        block = min(block, bounded(requests))
    gaps = [inverse_cdf(generator.random(block))]
    total, rows = gaps[0].sum(), block
    while total <= expected * (1 + 1e-9) + 1 and (requests is None or rows < requests):
        gaps.append(inverse_cdf(generator.random(block)))
        total += gaps[-1].sum()
        rows += block
    return np.cumsum(np.concatenate(gaps))


def _staged(inverse_cdf, shape, stages, requests, duration_s, generator) -> np.ndarray:
    """Arrival k comes when the integral of the rate reaches the sum of the first k unit gaps."""
    rates = np.array([stage["rate"] for stage in stages])
    ends_s = np.cumsum([stage["duration"] for stage in stages])
    starts_s = np.concatenate([[0.0], ends_s[:-1]])
    ends = np.cumsum(rates * (ends_s - starts_s))
    starts = np.concatenate([[0.0], ends[:-1]])
    sums = _until(inverse_cdf, shape, requests, float(ends[-1]), generator)
    sums = sums[sums < ends[-1]]
    stage = np.searchsorted(ends, sums, side="right")
    times = to_ns(starts_s[stage] + (sums - starts[stage]) / rates[stage])
    until_s = min(ends_s[-1], math.inf if duration_s is None else duration_s)
    return times[times < to_ns(np.array([until_s]))[0]][:requests]


def _stages(arrivals: dict, requests: int | None, duration_s: float | None) -> list[dict]:
    """The stages, or the one that a plain rate stands for."""
    if arrivals.get("stages") is not None:
        return list(arrivals["stages"])
    rate = arrivals["rate"]
    return [{"rate": rate, "duration": requests / rate if duration_s is None else duration_s}]


def _fixed_count(stages, requests, duration_s, generator, key) -> np.ndarray:
    """Exponential gaps, scaled: each stage holds rate × duration arrivals and ends with the last (inference-perf)."""
    times, start_s = [], 0.0
    for number, stage in enumerate(stages, 1):
        count = bounded(round(stage["rate"] * stage["duration"]))
        if count < 1:
            raise ScenarioError(f"{key}: stage {number} holds no request (rate × duration is below 0.5)")
        sums = np.cumsum(-np.log1p(-generator.random(count)))
        times.append(start_s + sums * (stage["duration"] / sums[-1]))
        start_s += stage["duration"]
    ns = to_ns(np.concatenate(times))
    if duration_s is not None and duration_s < start_s:
        ns = ns[ns < to_ns(np.array([duration_s]))[0]]
    return ns[:requests]


def to_ns(seconds: np.ndarray) -> np.ndarray:
    """Seconds, float64[n], to int64[n] ns, halves to even. Raises ScenarioError past the end of the clock."""
    if len(seconds) and seconds[-1] > MAX_TIME_S:
        raise ScenarioError(
            f"workload: the last arrival would be at {seconds[-1]:.3g} s, {seconds[-1] * NS_PER_S:.3g} ns; the clock ends at "
            f"{MAX_TIME_S:.3g} s (int64 holds 2^63 = 9.22e+18 ns)"
        )
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def bounded(requests: float) -> int:
    """The number of requests, if as many can be simulated on this machine. Raises ScenarioError."""
    hint = "lower workload.requests, workload.duration or workload.arrivals.rate"
    require(requests * BYTES_PER_REQUEST, f"workload: about {requests:,.0f} requests", hint)
    if requests > MAX_REQUESTS:
        raise ScenarioError(f"workload: about {requests:,.0f} requests; at most {MAX_REQUESTS:,} are simulated; {hint}")
    return int(requests)
