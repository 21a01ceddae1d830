"""Routing that looks at no replica, so that arrivals can be handed out in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from llmqsim.policies.protocol import RoutedRequest, RouterView, Routing
from llmqsim.registry import register


def place_of(draw: ArrayLike, places: int) -> np.ndarray:
    """One of so many places, each as likely as the others, by a draw from [0, 1) or an array of them."""
    return np.multiply(draw, places).astype(np.int64)


@register("routing", "round_robin")
@dataclass(frozen=True)
class RoundRobin(Routing):
    """Each replica in turn."""

    def start(self, replicas: int) -> list:
        """The next index."""
        return [0]

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """The next one in turn, of those that may be chosen."""
        turn = state[0]
        view = next((r for r in replicas if r.index >= turn), replicas[0])
        state[0] = view.index + 1
        return view.index


@register("routing", "random")
@dataclass(frozen=True)
class Random(Routing):
    """Any replica, each as likely as the others. The draw belongs to the request, so that variants are paired."""

    draws = 1

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """One of them by the request's own draw."""
        return replicas[place_of(request.draws[0], len(replicas))].index
