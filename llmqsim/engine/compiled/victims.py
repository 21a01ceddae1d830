"""Preemption policies that the compiled engine knows, as words of the arena; what is profiled of step costs for them."""

from __future__ import annotations

import numpy as np

from llmqsim.engine.compiled import layout as at
from llmqsim.engine.deployment import Deployment
from llmqsim.policies import preemption
from llmqsim.requests import RequestTable

VICTIMS = {
    preemption.RecomputeNewest: at.NEWEST,
    preemption.SwapNewest: at.NEWEST,
    preemption.Newest: at.NEWEST,
    preemption.RecomputeLeastUrgent: at.LEAST_URGENT,
    preemption.LeastUrgent: at.LEAST_URGENT,
    preemption.LeastKv: at.LEAST_KV,
    preemption.MostSlack: at.MOST_SLACK,
}
"""policy -> who gives way"""


def needs_times(policy: preemption.Preemption) -> bool:
    """Does it ask how long a prompt takes?"""
    return isinstance(policy, preemption.MostSlack) or getattr(policy, "kv", "") == "cheaper"


def words(servers: Deployment) -> dict[int, int]:
    """Of the globals: who gives way, and where its KV goes."""
    policy = servers.preemption
    told = {at.G_VICTIM: VICTIMS[type(policy)], at.G_SWAPS: policy.swaps}
    if isinstance(policy, preemption.MostSlack):
        told[at.G_DECODE_NS], told[at.G_DECODE_TOKEN] = policy.costs.decode_step_ns(policy.batch)
    return told | {at.G_CHEAPER: getattr(policy, "kv", "") == "cheaper"}


def longest(table: RequestTable) -> int:
    """Most tokens that a request can have."""
    return int((table.prompt_tokens + table.output_tokens).max(initial=0))


def targets(table: RequestTable) -> np.ndarray:
    """What each class is promised, int64[classes, TARGETS]."""
    told = np.full((len(table.classes), at.TARGETS), at.NO_TARGET, dtype=np.int64)
    for index, its in enumerate(table.targets):
        for column, limit_ns in ((at.TTFT, its.ttft_ns), (at.TPOT, its.tpot_ns), (at.E2E, its.e2e_ns)):
            if limit_ns is not None:
                told[index, column] = limit_ns
    return told
