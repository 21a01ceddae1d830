"""Ordering: who is next in the waiting queue?"""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.protocol import RequestView
from llmqsim.registry import register


@register("ordering", "fcfs")
@dataclass(frozen=True)
class Fcfs:
    """First come, first served; a preempted request goes back to the front (vLLM's default)."""

    preempted_go_first = True

    def key(self, request: RequestView) -> int:
        """Arrival time."""
        return request.arrival_ns
