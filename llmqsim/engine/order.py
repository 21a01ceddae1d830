"""What an ordering that looks again sees of its replica: policies.order_view.OrderView."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from typing import TYPE_CHECKING

from llmqsim.engine.plan import StepPlan
from llmqsim.engine.sequence import Sequence

if TYPE_CHECKING:
    from llmqsim.engine.reference import ReferenceReplica


class Order:
    """The ordering of one replica, with its memory; and the order among those who run."""

    def __init__(self, replica: ReferenceReplica, ordering):
        self.policy = ordering
        self.state = ordering.start()
        self.steps = 0
        self._replica = replica

    @property
    def now_ns(self) -> int:
        """The time."""
        return self._replica.env.now

    @property
    def running(self) -> list[Sequence]:
        """In admission order."""
        return self._replica.running

    @property
    def swapped(self) -> list[Sequence]:
        """With their KV in the host's memory, by arrival."""
        return self._replica.swapped

    def waiting(self) -> Iterable[Sequence]:
        """Everybody in the waiting queue, by the keys of the last look."""
        return self._replica.queue.everybody()

    def hit_tokens(self, request: Sequence) -> int:
        """Leading tokens of a waiting request that are cached now."""
        return self._replica.pool.hit_tokens(request)[0]

    # What the engine asks.

    def look(self) -> None:
        """A step is about to be formed."""
        if self.policy.reviews and self.policy.review(self):
            self._replica.queue.sort_again()

    def ran(self, plan: StepPlan) -> None:
        """A step was formed."""
        self.steps += 1
        if self.policy.reviews:
            self.policy.ran(self, plan.rows.values(), plan.duration_ns)

    def rank(self, request: Sequence) -> tuple:
        """Where a request stands among all, as things are now."""
        return self.policy.key_at(request, self), request.row

    def ranked(self) -> Iterable[Sequence]:
        """Everybody who is here, in one order; a snapshot."""
        inside = sorted([*self.running, *self.swapped], key=self.rank)
        return merge(inside, list(self._replica.queue.everybody()), key=self.rank)

    def behind(self, request: Sequence, all_of_them: bool = False) -> list[Sequence]:
        """Running requests that rank behind a waiting one and have made a token since they entered, the last first."""
        place = self.rank(request)
        running = [s for s in self._replica.running if all_of_them or s.known_tokens > s.entered_with]
        moved = [s for s in running if self.rank(s) > place]
        return sorted(moved, key=self.rank, reverse=True)
