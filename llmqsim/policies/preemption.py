"""Preemption: who gives way when the KV pool is full?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmqsim.policies.protocol import Preemption, RequestView
from llmqsim.registry import register


@register("preemption", "recompute_newest")
@dataclass(frozen=True)
class RecomputeNewest(Preemption):
    """vLLM V1 under fcfs: the last admitted request gives way and recomputes everything when it returns.

    The oldest is never a victim of a younger one, so somebody always gets on, and no run hangs.
    """

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Last of the running list."""
        return running[-1]


@register("preemption", "recompute_least_urgent")
@dataclass(frozen=True)
class RecomputeLeastUrgent(Preemption):
    """vLLM V1 under priority: the least urgent gives way (highest `priority`), of equals the one that arrived last."""

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Largest (priority, arrival, row)."""
        return max(running, key=lambda request: (request.priority, request.arrival_ns, request.row))


@register("preemption", "swap_newest")
@dataclass(frozen=True)
class SwapNewest(Preemption):
    """The last admitted request gives way and keeps its KV in the host's memory; with that full, it recomputes.

    vLLM V0 did this for groups of several sequences, or when told to; vLLM V1 has no swap.
    """

    swaps = True

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Last of the running list."""
        return running[-1]
