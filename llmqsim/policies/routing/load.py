"""Routing by load: the router's own count, what replicas report, or the work that is expected to be left.

What replicas report may be old (`routing.signal_age`); what the router itself has sent since then is known at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from llmqsim.policies import rules
from llmqsim.policies.protocol import RoutedRequest, RouterView, Routing
from llmqsim.policies.routing.blind import place_of
from llmqsim.registry import param, register


@register("routing", "least_outstanding")
@dataclass(frozen=True)
class LeastOutstanding(Routing):
    """The replica with the fewest requests in flight, as the router counts them; ties go to the lowest index."""

    sees_state = True

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Smallest count; `min` keeps the first of equals."""
        return min(replicas, key=lambda replica: replica.outstanding).index


@register("routing", "power_of_two")
@dataclass(frozen=True)
class PowerOfTwo(Routing):
    """Of two replicas drawn at random the one with fewer requests in flight; the first drawn where they are equal.

    Mitzenmacher, IEEE Transactions on Parallel and Distributed Systems 12 (2001).
    """

    sees_state = True
    draws = 2

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Two different ones by the request's own draws."""
        first, second = self.pair(*request.draws, len(replicas))
        return min((replicas[first], replicas[second]), key=lambda replica: replica.outstanding).index

    @staticmethod
    def pair(one: ArrayLike, other: ArrayLike, replicas: int) -> tuple[np.ndarray, np.ndarray]:
        """Two different places of so many (or one twice, of one) by two draws, numbers or arrays."""
        first = place_of(one, replicas)
        second = place_of(other, max(1, replicas - 1))
        return first, (second + (second >= first)) % replicas


@register("routing", "least_loaded")
@dataclass(frozen=True)
class LeastLoaded(Routing):
    """The replica that reports the fewest requests waiting and running; ties go to the lowest index.

    count_own : add what the router has sent since the report and not seen finish. Without it, all that arrive between
    two reports go to the same replica.
    """

    count_own: bool = True
    reads_signals = True
    sees_state = True

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Smallest load."""

        def load(replica: RouterView) -> int:
            own = replica.sent_since if self.count_own else 0
            return replica.signal.waiting + replica.signal.running + own

        return min(replicas, key=load).index


@register("routing", "least_kv")
@dataclass(frozen=True)
class LeastKv(Routing):
    """The replica that reports the fewest KV blocks held; ties go to the lowest index.

    count_own : add the blocks of the prompts that the router has sent since the report.
    """

    count_own: bool = True
    reads_signals = True
    sees_state = True

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Smallest use."""

        def used(replica: RouterView) -> int:
            return replica.signal.held_blocks + (replica.blocks_since if self.count_own else 0)

        return min(replicas, key=used).index


@register("routing", "least_predicted_work")
@dataclass(frozen=True)
class LeastPredictedWork(Routing):
    """The replica whose requests in flight are expected to need the least: prompt and predicted output tokens.

    prompt_weight : work of a prompt token in output tokens; prompts are computed many tokens at a time. A request
    counts whole until it ends: the router does not see tokens. Without a predictor it counts `max_tokens`.
    """

    prompt_weight: float = param(0.1, least=0)
    sees_state = True

    def start(self, replicas: int) -> list:
        """Prompt tokens and expected output tokens in flight at each replica."""
        return [(0, 0)] * replicas

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Smallest sum; ties go to the lowest index."""
        weight = float(self.prompt_weight)
        chosen = min(replicas, key=lambda replica: rules.work(weight, *state[replica.index])).index
        self._count(state, request, chosen, 1)
        return chosen

    def finished(self, state: list, request: RoutedRequest, index: int) -> None:
        """Its work is done, or nobody's any more."""
        self._count(state, request, index, -1)

    @staticmethod
    def _count(state: list, request: RoutedRequest, index: int, sign: int) -> None:
        prompts, answers = state[index]
        answer = rules.expected_answer(request.predicted_tokens, request.max_tokens)
        state[index] = prompts + sign * request.prompt_tokens, answers + sign * answer
