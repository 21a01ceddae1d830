"""Routing to where a request's prefix or its tenant has been before, so that caches are hit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from llmqsim.policies import rules
from llmqsim.policies.protocol import RoutedRequest, RouterView, Routing
from llmqsim.registry import param, register


class Remembered:
    """Prefix blocks that the router has sent to one replica, the ones used longest ago forgotten first.

    The router's own book, as in SGLang's router and llm-d's approximate mode: it does not see what a replica evicts.
    """

    def __init__(self):
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def hits(self, blocks: Sequence[int]) -> int:
        """Leading blocks that are known."""
        for count, block in enumerate(blocks):
            if block not in self._blocks:
                return count
        return len(blocks)

    def add(self, blocks: Sequence[int], most: int) -> None:
        """These were sent there now; at most so many are kept."""
        for block in reversed(blocks):  # a prefix without its first block is worth nothing: that goes last
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > most:
            self._blocks.popitem(last=False)


@register("routing", "prefix_affinity")
@dataclass(frozen=True)
class PrefixAffinity(Routing):
    """Where most of the prompt's blocks were sent before, weighed against load.

    A replica's score is affinity_weight × (share of the prompt's tokens that it should have cached) − load_weight ×
    (its requests in flight, above those of the least loaded, over the mean of all). The highest score wins, ties go to
    fewer in flight, then to the lowest index. With load_weight 0 everybody who shares a prefix goes to one place.
    """

    affinity_weight: float = param(1.0, least=0)
    load_weight: float = param(1.0, least=0)
    sees_state = True

    def start(self, replicas: int) -> list:
        """What was sent to each replica."""
        return [Remembered() for _ in range(replicas)]

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """Best score."""
        blocks = request.prefix_blocks
        least = min(replica.outstanding for replica in replicas)
        mean = max(1.0, sum(replica.outstanding for replica in replicas) / len(replicas))
        affinity_weight, load_weight = float(self.affinity_weight), float(self.load_weight)

        def order(replica: RouterView) -> tuple[float, int]:
            cached = state[replica.index].hits(blocks) * replica.block_size / request.prompt_tokens
            ahead = (replica.outstanding - least) / mean
            return rules.penalty(affinity_weight, cached, load_weight, ahead), replica.outstanding

        chosen = min(replicas, key=order)
        state[chosen.index].add(blocks, chosen.usable_blocks)
        return chosen.index


@register("routing", "session_sticky")
@dataclass(frozen=True)
class SessionSticky(Routing):
    """Whoever has been here before goes to the same replica again; who is new goes to the fewest in flight.

    by : what makes a session: "tenant", or "prefix" (the first shared block of the prompt, such as a system prompt or
    the start of a conversation; prompts without one are new each time).
    """

    by: str = param("tenant", choices=("tenant", "prefix"))
    sees_state = True

    def start(self, replicas: int) -> list:
        """Session -> replica."""
        return [{}]

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """The known place, if it may be chosen now."""
        (places,) = state
        session = request.tenant_id if self.by == "tenant" else next(iter(request.prefix_blocks), None)
        place = places.get(session)
        if place is None or all(replica.index != place for replica in replicas):
            place = min(replicas, key=lambda replica: replica.outstanding).index
            if session is not None:
                places[session] = place
        return place
