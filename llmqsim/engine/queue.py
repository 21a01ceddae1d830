"""WaitingQueue: requests in the ordering policy's order, and how long each was kept waiting by what.

Attribution costs O(1) a step. Four clocks (rules.WAIT_*) add up for how long the head of the queue was kept out by
each reason; a request notes the clocks when the scheduler first sees it and reads off the differences when it enters.
Time before that first look counts as WAIT_STEP: the step under way had to end.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmqsim.engine import rules
from llmqsim.engine.sequence import Sequence, Stage

if TYPE_CHECKING:
    from llmqsim.engine.order import Order

FRONT, SORTED = 0, 1


class WaitingQueue:
    """Sorted by (rank, the policy's key, row). A preempted request goes to the front if the policy says so."""

    def __init__(self, order: Order):
        self._order = order
        self._ordering = order.policy
        self._sorted = 0
        self._entries: list[tuple] = []
        self._fresh: list[Sequence] = []
        self._clocks = [0, 0, 0, 0]
        self._blocked_by = rules.WAIT_STEP
        self._clock_ns = 0
        self._fronts = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        """In order; entries that leave during the iteration are passed over, none is skipped. When the order changes
        on the way, it goes on with the first in the new order that it has not shown.
        """
        place, sorted_as, shown = 0, self._sorted, set()
        while place < len(self._entries):
            entry = self._entries[place]
            if self._ordering.reviews:
                if entry[-1].row in shown:
                    place += 1
                    continue
                shown.add(entry[-1].row)
            yield entry[-1]
            if sorted_as != self._sorted:
                place, sorted_as = 0, self._sorted
            elif place < len(self._entries) and self._entries[place] is entry:
                place += 1

    def everybody(self) -> list[Sequence]:
        """All who wait, in order."""
        return [entry[-1] for entry in self._entries]

    def sort_again(self) -> None:
        """Everybody but those at the front gets a new key."""
        self._sorted += 1
        for place, (rank, _, row, sequence) in enumerate(self._entries):
            if rank == SORTED:
                key = self._ordering.key_at(sequence, self._order)
                sequence.queue_key = (rank, key, row)
                self._entries[place] = (rank, key, row, sequence)
        self._entries.sort(key=lambda entry: entry[:3])

    def join(self, sequence: Sequence, now_ns: int) -> None:
        """A new request arrives."""
        sequence.delivered_ns = now_ns
        self._fresh.append(sequence)
        self._welcome(sequence)
        self._insert(sequence, SORTED, self._ordering.key_at(sequence, self._order))

    def rejoin(self, sequence: Sequence, now_ns: int, last: bool = False) -> None:
        """A preempted request waits again: at the front, where its key puts it, or behind everybody there now."""
        sequence.preempted_ns = now_ns
        self._welcome(sequence)
        if last:
            self._insert(sequence, SORTED, self._ordering.late_key(sequence, now_ns))
        elif self._ordering.preempted_go_first:
            self._fronts += 1
            self._insert(sequence, FRONT, -self._fronts)
        else:
            self._insert(sequence, SORTED, self._ordering.key_at(sequence, self._order))

    def leave(self, sequence: Sequence, now_ns: int, entered: bool = False) -> None:
        """A request enters a step, or finished while it waited. Its waiting time is settled."""
        place = bisect_left(self._entries, sequence.queue_key)
        del self._entries[place]
        self.settle(sequence, now_ns)
        if self._ordering.reviews and self._ordering.left(sequence, self._order, entered):
            self.sort_again()

    def abandon(self, sequence: Sequence, now_ns: int) -> None:
        """A waiting request is taken back by its client, perhaps before the scheduler ever saw it."""
        self._advance(now_ns)
        if sequence in self._fresh:
            self._fresh.remove(sequence)
            sequence.waited_for_step(now_ns)
        self.leave(sequence, now_ns)

    def _welcome(self, sequence: Sequence) -> None:
        if self._ordering.reviews:
            self._ordering.joined(sequence, self._order)

    def _advance(self, now_ns: int) -> None:
        self._clocks[self._blocked_by] += now_ns - self._clock_ns
        self._clock_ns = now_ns

    def look(self, now_ns: int) -> None:
        """The scheduler looks at the queue: bring the clocks up to date and let the new requests note them."""
        self._advance(now_ns)
        if self._fresh:
            clocks = tuple(self._clocks)
            for sequence in self._fresh:
                sequence.clock_at_entry = clocks
                sequence.waited_for_step(now_ns)
            self._fresh.clear()

    def blocked(self, reason: int) -> None:
        """What keeps the head of the queue out until the next look."""
        self._blocked_by = reason

    def settle(self, sequence: Sequence, now_ns: int) -> None:
        """Add the time since the sequence joined (or was preempted) to its waits."""
        if sequence.preempted_ns >= 0:
            sequence.wait_preempted_ns += now_ns - sequence.preempted_ns
            sequence.preempted_ns = -1
        elif sequence.clock_at_entry is not None:
            before, entry = sequence.wait_ns, sequence.clock_at_entry
            sequence.wait_ns = tuple(w + c - e for w, c, e in zip(before, self._clocks, entry, strict=True))
            sequence.clock_at_entry = None

    def close(self, now_ns: int) -> list[Sequence]:
        """The clock stops: settle everybody who still waits and return them."""
        self.look(now_ns)
        left = [entry[-1] for entry in self._entries]
        for sequence in left:
            self.settle(sequence, now_ns)
        return left

    def _insert(self, sequence: Sequence, rank: int, key) -> None:
        sequence.stage = Stage.WAITING
        sequence.queue_key = (rank, key, sequence.row)
        insort(self._entries, (rank, key, sequence.row, sequence))
