"""Arrival times of open-loop traffic, each gap by the inverse CDF of one uniform number.

Gaps are drawn at unit rate and divided by the rate, so that a change of rate stretches one and the same pattern, and
row i arrives at the same time however many rows or how long a duration is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from llmqsim.errors import ScenarioError, did_you_mean
from llmqsim.units import NS_PER_S

MAX_REQUESTS = 50_000_000
"""About 150 bytes a request: more would not fit into the memory of a common machine."""
MAX_TIME_S = 9.2e9
"""int64 nanoseconds end at 292 years."""

PROCESSES = ("poisson", "constant", "gamma", "burst")


def unit_gaps(process: str, shape: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the inverse CDF of the gaps at unit rate: float64[n] uniforms in [0, 1) to float64[n] gaps, mean 1.

    process : poisson (exponential gaps), gamma (of this `shape` = 1/CV^2, vLLM's `burstiness`), constant (all 1).
    """
    if process == "poisson":
        return lambda u: -np.log1p(-u)
    if process == "constant":
        return np.ones_like
    from scipy.special import gammaincinv

    return lambda u: gammaincinv(shape, u) / shape


def gamma_shape(arrivals: dict) -> float:
    """Shape of the gamma gaps from `cv` or from `burstiness`. Raises ScenarioError unless exactly one is given."""
    cv, burstiness = arrivals.get("cv"), arrivals.get("burstiness")
    if (cv is None) == (burstiness is None):
        raise ScenarioError("workload.arrivals: gamma takes one of cv and burstiness (burstiness = 1 / cv^2)")
    value = cv if burstiness is None else burstiness
    if not 0 < value < math.inf:
        raise ScenarioError(f"workload.arrivals: must be above 0 (got {value} as cv or burstiness)")
    return 1 / cv**2 if burstiness is None else float(burstiness)


def arrival_ns(
    arrivals: dict, requests: int | None, duration_s: float | None, generator: np.random.Generator
) -> np.ndarray:
    """Draw arrival times, int64[n] ns, non-decreasing: `requests` rows, or those before `duration_s`, the fewer.

    arrivals : {process, rate (per second), cv | burstiness}. The first arrival comes after the first gap (constant:
    at 1/rate); burst: all at zero. Raises ScenarioError where the keys don't add up.
    """
    process, rate = arrivals.get("process"), arrivals.get("rate")
    if process not in PROCESSES:
        hint = did_you_mean(str(process), PROCESSES)
        raise ScenarioError(
            f"workload.arrivals.process: unknown (got '{process}'){hint} Known: {', '.join(PROCESSES)}"
        )
    if process == "burst":
        if requests is None:
            raise ScenarioError("workload.requests: a burst needs the number of requests; a duration does not end it")
        return np.zeros(_bounded(requests), dtype=np.int64)
    if rate is None or not 0 < rate < math.inf:
        raise ScenarioError(f"workload.arrivals.rate: {process} arrivals need a rate above 0 (got {rate})")
    if requests is None and duration_s is None:
        raise ScenarioError("workload: needs `requests`, `duration` or both, or the traffic never ends")
    shape = gamma_shape(arrivals) if process == "gamma" else 1.0
    inverse_cdf = unit_gaps(process, shape)
    if duration_s is None:
        return to_ns(np.cumsum(inverse_cdf(generator.random(_bounded(requests)))) / rate)
    times = _until(inverse_cdf, rate, shape, requests, duration_s, generator)
    return times[times < to_ns(np.array([duration_s]))[0]][:requests]


def _until(inverse_cdf, rate, shape, requests, duration_s, generator) -> np.ndarray:
    """Draw blocks of gaps from one stream until they pass the duration (or the number of requests is reached)."""
    expected = rate * duration_s
    if requests is None:
        _bounded(expected)
    block = min(int(expected + 6 * math.sqrt(expected / min(shape, 1.0))) + 64, MAX_REQUESTS)
    if requests is not None:
        block = min(block, _bounded(requests))
    gaps = [inverse_cdf(generator.random(block))]
    total, rows = gaps[0].sum(), block
    while total <= expected * (1 + 1e-9) + 1 and (requests is None or rows < requests):
        gaps.append(inverse_cdf(generator.random(block)))
        total += gaps[-1].sum()
        rows += block
    return to_ns(np.cumsum(np.concatenate(gaps)) / rate)


def to_ns(seconds: np.ndarray) -> np.ndarray:
    """Seconds, float64[n], to int64[n] ns, halves to even. Raises ScenarioError past the end of the clock."""
    if len(seconds) and seconds[-1] > MAX_TIME_S:
        raise ScenarioError(
            f"workload: the last arrival would be at {seconds[-1]:.3g} s; the clock ends at {MAX_TIME_S:.3g} s"
        )
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def _bounded(requests: float) -> int:
    if requests > MAX_REQUESTS:
        raise ScenarioError(
            f"workload: about {requests:,.0f} requests; at most {MAX_REQUESTS:,} fit into memory. "
            "Lower workload.requests, workload.duration or workload.arrivals.rate"
        )
    return int(requests)
