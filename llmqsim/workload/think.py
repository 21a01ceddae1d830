"""Think times of closed-loop clients, by the inverse CDF of one uniform number a request."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from llmqsim.errors import ScenarioError
from llmqsim.units import NS_PER_S
from llmqsim.workload.arrivals import to_ns


def think_ns(spec: Any, u: np.ndarray, key: str) -> np.ndarray:
    """Seconds (a number, {exponential: {mean}} or {lognormal: {mean, cv}}) to int64[n] ns, one a uniform of `u`."""
    if isinstance(spec, (int, float)) and not isinstance(spec, bool) and 0 <= spec < math.inf:
        return np.full(len(u), to_ns(np.array([float(spec)]))[0])
    if isinstance(spec, dict) and set(spec) == {"exponential"}:
        seconds = -spec["exponential"]["mean"] * np.log1p(-u)
    elif isinstance(spec, dict) and set(spec) == {"lognormal"}:
        from scipy.special import ndtri

        mean, variance = spec["lognormal"]["mean"], math.log1p(spec["lognormal"]["cv"] ** 2)
        normal = ndtri(np.maximum(u, 2.0**-54))
        seconds = np.exp(math.log(mean) - variance / 2 + math.sqrt(variance) * normal)
    else:
        raise ScenarioError(f"{key}.think_time: must be seconds, exponential or lognormal (got {spec!r})")
    to_ns(np.array([seconds.max(initial=0.0)]))  # refuses what the clock can't hold
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def describe(spec: Any) -> str:
    """A few words: "think time 2 s", "exponential think time, mean 2 s"."""
    if not isinstance(spec, dict):
        return f"think time {spec:g} s" if spec else "no think time"
    kind, law = next(iter(spec.items()))
    return f"{kind} think time, mean {law['mean']:g} s"
