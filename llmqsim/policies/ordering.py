"""Ordering: who is next in the waiting queue?"""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.protocol import Ordering, RequestView
from llmqsim.registry import register


@register("ordering", "fcfs")
@dataclass(frozen=True)
class Fcfs(Ordering):
    """First come, first served; a preempted request goes back to the front (vLLM's default)."""

    def key(self, request: RequestView) -> int:
        """Arrival time."""
        return request.arrival_ns

    def late_key(self, now_ns: int) -> int:
        """Now: nobody in the queue has arrived later."""
        return now_ns
