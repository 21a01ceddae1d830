"""Gaps between arrivals at unit rate, by the inverse CDF of one uniform number each."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from llmqsim.errors import ScenarioError

RENEWALS = ("poisson", "constant", "gamma", "weibull")
"""processes whose gaps are independent and of one law"""
WEIBULL_SHAPES = (0.2, 50.0)
"""shapes that are looked through: CVs from 0.025 to 15.8, beyond which the mean gap is a matter of a few gaps"""


def unit_gaps(process: str, shape: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the inverse CDF of the gaps at unit rate: float64[n] uniforms in [0, 1) to float64[n] gaps, mean 1.

    process : poisson (exponential gaps), constant (all 1), gamma (of this `shape` = 1/CV^2, vLLM's `burstiness`),
    weibull (of this `shape`, see `weibull_shape`).
    """
    if process == "poisson":
        return lambda u: -np.log1p(-u)
    if process == "constant":
        return np.ones_like
    if process == "weibull":
        scale = 1 / math.gamma(1 + 1 / shape)
        return lambda u: scale * (-np.log1p(-u)) ** (1 / shape)
    from scipy.special import gammaincinv

    return lambda u: gammaincinv(shape, u) / shape


def gap_shape(arrivals: dict, key: str = "workload.arrivals") -> float:
    """Shape of the gaps of {process, cv | burstiness}; 1 where the process has none. Raises ScenarioError."""
    process = arrivals["process"]
    if process == "gamma":
        return gamma_shape(arrivals, key)
    if process == "weibull":
        return weibull_shape(arrivals.get("cv"), key)
    return 1.0


def gamma_shape(arrivals: dict, key: str = "workload.arrivals") -> float:
    """Shape of the gamma gaps from `cv` or from `burstiness`. Raises ScenarioError unless exactly one is given."""
    cv, burstiness = arrivals.get("cv"), arrivals.get("burstiness")
    if (cv is None) == (burstiness is None):
        raise ScenarioError(f"{key}: gamma takes one of cv and burstiness (burstiness = 1 / cv^2)")
    value = cv if burstiness is None else burstiness
    if not 0 < value < math.inf:
        raise ScenarioError(f"{key}: must be above 0 (got {value} as cv or burstiness)")
    return 1 / cv**2 if burstiness is None else float(burstiness)


def weibull_cv(shape: float) -> float:
    """Coefficient of variation of a Weibull law: 1 + CV^2 = gamma(1 + 2/k) / gamma(1 + 1/k)^2 with shape k."""
    log_ratio = math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)
    return math.sqrt(math.expm1(log_ratio))


def weibull_shape(cv: float | None, key: str = "workload.arrivals") -> float:
    """Shape of the Weibull gaps of this CV (1 is Poisson), by bisection. Raises ScenarioError out of range."""
    low, high = WEIBULL_SHAPES
    largest, smallest = weibull_cv(low), weibull_cv(high)
    if cv is None or not smallest <= cv <= largest:
        raise ScenarioError(f"{key}.cv: weibull gaps need a cv from {smallest:.3f} to {largest:.3g} (got {cv})")
    for _ in range(200):  # halves of an interval of floats: ends by itself, deterministic
        middle = (low + high) / 2
        low, high = (middle, high) if weibull_cv(middle) > cv else (low, middle)
    return (low + high) / 2
