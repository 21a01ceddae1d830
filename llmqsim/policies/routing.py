"""Routing: which replica? Load is what the router itself counts: sent and not yet finished, always fresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmqsim.policies.protocol import RouterView
from llmqsim.registry import register


@register("routing", "round_robin")
@dataclass(frozen=True)
class RoundRobin:
    """One after the other, whatever their load."""

    sees_state = False

    def start(self, replicas: int) -> list:
        """State: the next index."""
        return [0]

    def choose(self, state: list, request: int, replicas: Sequence[RouterView]) -> int:
        """The next one in turn."""
        index = state[0]
        state[0] = (index + 1) % len(replicas)
        return index


@register("routing", "least_outstanding")
@dataclass(frozen=True)
class LeastOutstanding:
    """The replica with the fewest requests in flight; ties go to the lowest index."""

    sees_state = True

    def start(self, replicas: int) -> list:
        """No state of its own."""
        return []

    def choose(self, state: list, request: int, replicas: Sequence[RouterView]) -> int:
        """Smallest count; `min` keeps the first of equals."""
        return min(replicas, key=lambda replica: replica.outstanding).index
