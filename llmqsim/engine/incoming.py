"""Incoming: requests of a decode replica whose KV comes from a prefill replica.

    waiting ──takes blocks──▶ loading ──all KV is here──▶ loaded ──slot, budget──▶ running

Rules of vLLM V1 with NixlConnector (docs/disaggregation.md): blocks are taken at a normal visit of the waiting queue; a
request that loads holds them, but no slot; the transfer begins with the step that is formed then, at once if there is
none; that it has ended is seen when the next step is formed. Who has his KV here enters before all who wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmqsim.engine import rules
from llmqsim.engine.handoff import FROM_DECODE, WITH_KV, Handoff
from llmqsim.engine.plan import StepPlan
from llmqsim.engine.sequence import Sequence, Stage
from llmqsim.requests import HANDOFF_INDEX, RequestTable

if TYPE_CHECKING:
    from llmqsim.engine.reference import ReferenceReplica


def arriving(table: RequestTable, row: int, handoff: Handoff) -> Sequence:
    """The sequence of a request that joins a decode replica. Its first token may already be known, or yet to come."""
    sequence = Sequence(table, row)
    sequence.handoff = handoff
    sequence.known_tokens += handoff.terms.first_token != FROM_DECODE
    if handoff.source is not None:
        sequence.inherit(handoff.source)
    return sequence


class Incoming:
    """Who holds blocks for KV that is on its way, or has arrived, in the order of taking them."""

    def __init__(self, replica: ReferenceReplica):
        self._replica = replica
        self._sequences: list[Sequence] = []
        self._to_begin: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self):
        return iter(self._sequences)

    @property
    def loading(self) -> bool:
        """Is any KV still to come?"""
        return any(sequence.stage is not Stage.LOADED for sequence in self._sequences)

    @property
    def loaded(self) -> list[Sequence]:
        """Those that only want a slot."""
        return [sequence for sequence in self._sequences if sequence.stage is Stage.LOADED]

    @property
    def held_blocks(self) -> int:
        """Blocks of all of them."""
        return sum(sequence.kv_blocks for sequence in self._sequences)

    def refused_by(self, sequence: Sequence, need: int, hits: tuple[int, int], watermark: bool) -> int:
        """Can it have `need` blocks, of which `hits` (blocks, of them held by nobody) are here? ADMITTED or WAIT_KV."""
        replica, terms = self._replica, sequence.handoff.terms
        size, pool = replica.options.block_size, replica.pool
        others = len(replica.running) + len(self)
        above = replica.watermark_blocks if watermark and others else 0
        above += others * rules.blocks_for(terms.reserve_tokens, size)
        if not rules.has_memory(need * size, *hits, size, pool.free_blocks, above):
            return rules.WAIT_KV
        if self._sequences and terms.waiting_share is not None:
            if self.held_blocks + need > int(terms.waiting_share * pool.usable_blocks):
                return rules.WAIT_KV
        return rules.ADMITTED

    def take(self, sequence: Sequence) -> None:
        """It leaves the queue for here; its transfer begins with the step that is being formed."""
        self._replica.queue.leave(sequence, self._replica.env.now)
        sequence.stage = Stage.LOADING
        sequence.handoff.begun = True
        self._sequences.append(sequence)
        self._to_begin.append(sequence)

    def carried_by(self, plan: StepPlan) -> None:
        """A step is formed: the transfers asked for meanwhile begin when it does."""
        plan.loads, self._to_begin = self._to_begin, []

    def begin(self, plan: StepPlan | None = None) -> None:
        """A step begins, or none could be formed: transfers begin."""
        sequences = plan.loads if plan is not None else self._to_begin
        for sequence in sequences:
            if sequence.stage is Stage.ABORTED:
                self.drop(sequence)
            else:
                self._replica.on_load(sequence)
        sequences.clear()

    def arrived(self, sequence: Sequence) -> None:
        """All of its KV is here. Blocks of a client that has given up meanwhile are free."""
        replica = self._replica
        if sequence.stage is Stage.ABORTED:
            self.drop(sequence)
            return
        replica.settle()
        handoff = sequence.handoff
        handoff.fetched = True
        if handoff.terms.pushes:
            sequence.inherit(handoff.source)
        if handoff.terms.first_token == WITH_KV:
            sequence.first_token_ns = sequence.last_token_ns = replica.env.now
            sequence.generated_tokens = 1
        sequence.computed_tokens = sequence.known_tokens - 1
        sequence.stage = Stage.LOADED
        replica.pool.computed(sequence)
        replica.rouse()

    def drop(self, sequence: Sequence) -> None:
        """It does not need its blocks any more: it ended where its prompt was computed, or its client gave up."""
        self._replica.settle()
        self.remove(sequence)
        self._replica.pool.release(sequence)
        self._replica.rouse()

    def enter(self, sequence: Sequence) -> None:
        """It runs on."""
        replica = self._replica
        self.remove(sequence)
        sequence.stage = Stage.RUNNING
        sequence.handoff = None
        replica.running.append(sequence)
        mark_resumed(replica.table, sequence.row, replica.env.now)

    def remove(self, sequence: Sequence) -> None:
        """It leaves; its blocks are another matter."""
        self._sequences.remove(sequence)


def mark_resumed(table: RequestTable, row: int, now_ns: int) -> None:
    """Write when a request first ran where it decodes."""
    table.handoffs.data[HANDOFF_INDEX["resumed_ns"], row] = now_ns
