"""Preemption policies that the compiled engine knows, as fields of a run; what is profiled of step costs for them."""

from __future__ import annotations

import numpy as np

from llmqsim.engine.compiled.world.run import LEAST_KV, LEAST_URGENT, MOST_SLACK, NEWEST, NO_TARGET, Target
from llmqsim.engine.deployment import Deployment
from llmqsim.policies import preemption
from llmqsim.requests import RequestTable

VICTIMS = {
    preemption.RecomputeNewest: NEWEST,
    preemption.SwapNewest: NEWEST,
    preemption.Newest: NEWEST,
    preemption.RecomputeLeastUrgent: LEAST_URGENT,
    preemption.LeastUrgent: LEAST_URGENT,
    preemption.LeastKv: LEAST_KV,
    preemption.MostSlack: MOST_SLACK,
}
"""policy -> who gives way"""


def needs_times(policy: preemption.Preemption) -> bool:
    """Does it ask how long a prompt takes?"""
    return isinstance(policy, preemption.MostSlack) or getattr(policy, "kv", "") == "cheaper"


def fields(servers: Deployment) -> dict[str, int]:
    """Of a run (world/run.py): who gives way, and where its KV goes."""
    policy = servers.preemption
    told = {"victim": VICTIMS[type(policy)], "swaps": policy.swaps}
    if isinstance(policy, preemption.MostSlack):
        told["decode_ns"], told["decode_token"] = policy.costs.decode_step_ns(policy.batch)
    return told | {"cheaper": getattr(policy, "kv", "") == "cheaper"}


def longest(table: RequestTable) -> int:
    """Most tokens that a request can have."""
    return int((table.prompt_tokens + table.output_tokens).max(initial=0))


def targets(table: RequestTable) -> np.ndarray:
    """What each class is promised, int64[classes * words]."""
    told = np.full(len(table.classes) * Target.words, NO_TARGET, dtype=np.int64)
    for name, column in Target.columns(told).items():
        for index, its in enumerate(table.targets):
            if getattr(its, name) is not None:
                column[index] = getattr(its, name)
    return told
