"""Loads as multiples of what a server carries at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from llmqsim.claims.figure import Setting
from llmqsim.metrics.latency import completed
from llmqsim.scenario.load import Variants
from llmqsim.simulation import simulate

RATE = "workload.arrivals.rate"
REQUESTS = "workload.requests"
AT_ONCE = 1e6
"""req/s"""


def saturated_per_s(
    setting: Setting,
    name: str,
    variant: Variants = None,
    sets: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> float:
    """Requests per second that the scenario `name` gets through with all of them there at once.

    Counted in the middle half of the completions: neither filling nor draining the server counts. seed : of the run; None
    for the first of the setting.
    """
    scenario = setting.load(name, variant, {**(sets or {}), RATE: AT_ONCE})
    table = simulate(scenario, seed=setting.seed if seed is None else seed).table
    finish = np.sort(table.finish_ns[completed(table)])
    low, high = len(finish) // 4, 3 * len(finish) // 4
    return float((high - low) / (finish[high] - finish[low]) * 1e9)
