"""Orderings by what is cached."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.policies.order_view import OrderView
from llmqsim.policies.protocol import Ordering, RequestView
from llmqsim.registry import param, register


@register("ordering", "longest_prefix")
@dataclass(frozen=True)
class LongestPrefix(Ordering):
    """Longest cached prefix first, then by arrival; as they came while more than `most_waiting` wait (SGLang's lpm).

    Looked up for all at every step, so a step costs O(n log n) while n wait and n is at most `most_waiting`. SGLang's rule that equal prompts wait for the first of them is not here.
    """

    most_waiting: int = param(128, least=1)

    reviews = True

    def start(self) -> list[bool]:
        """Is it first come first served now?"""
        return [False]

    def review(self, view: OrderView) -> bool:
        """At every step."""
        view.state[0] = sum(1 for _ in view.waiting()) > self.most_waiting
        return True

    def key_at(self, request: RequestView, view: OrderView) -> tuple[int, int]:
        """(tokens not to be spared, arrival)."""
        return (0 if view.state[0] else -view.hit_tokens(request)), request.arrival_ns

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int]:
        """Behind all that have no hit."""
        return 1, now_ns
