"""HandOffs: requests on their way from prefill replicas to decode replicas, and the links that carry their KV.

Pull (vLLM with NIXL, DistServe): the prompt is computed and its blocks are lent; the decode replica takes blocks of its
own when the request's turn comes there, reads all of them, and the prefill replica has its blocks back.

    router P ─▶ P computes ─▶ P answers ─▶ router D ─▶ D takes blocks ─▶ transfer ─▶ D decodes, P frees

Push (SGLang) and layerwise (Mooncake): the decode replica takes its blocks first; only then may the prefill replica
start, which sends after each chunk, or each layer while the chunk is computed.

    router D ─▶ D takes blocks ─▶ router P ─▶ P computes ⇉ transfers ─▶ D decodes, P frees

What several replicas ask of links and routers in one instant is done by row, after all that ended in that instant.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy

from llmqsim import clock
from llmqsim.cluster.fleet import Fleet
from llmqsim.cluster.link import Links
from llmqsim.cluster.router import Router
from llmqsim.cluster.trip import Place, Trip
from llmqsim.engine import rules
from llmqsim.engine.handoff import LAYERWISE
from llmqsim.engine.prefill import Prefilling
from llmqsim.engine.reference import ReferenceReplica
from llmqsim.engine.sequence import Sequence
from llmqsim.requests import HANDOFF_INDEX, UNSET, Handoff, RequestTable


class HandOffs:
    """All trips of a run. `arrived(row, router)` is called when a request is its decode replica's alone."""

    def __init__(self, env: simpy.Environment, table: RequestTable, fleet: Fleet, arrived: Callable[[int, Router], None]):
        self.links = Links(fleet.link)
        self._env = env
        self._marks = table.handoffs
        self._terms = fleet.terms
        self._trips: dict[int, Trip] = {}
        self._arrived = arrived
        self._asked: dict[int, list[Callable[[], None]]] = {}

    # What the door and the replicas say.

    def begin(self, trip: Trip) -> None:
        """A request sets out."""
        self._trips[trip.row] = trip
        self._mark(trip.row, handoff=Handoff.PENDING)
        trip.prefill.choose(trip.row)
        if not self._terms.pushes:
            trip.prefill.send(trip.row, self._env.now)
            return
        if not trip.chosen:
            trip.decode.choose(trip.row)
            trip.chosen = True
        trip.place = Place.RESERVING
        trip.decode.send(trip.row, self._env.now)

    def deliver(self, row: int, replica: ReferenceReplica) -> None:
        """A request reaches the queue of a replica that decodes; its prompt is computed elsewhere if it is on a trip."""
        trip = self._trips.get(row)
        if trip is None:
            replica.submit(row)
            return
        self._mark(row, decode_joined_ns=self._env.now)
        trip.waiting = replica.submit(row, trip.handoff)
        if trip.expired:
            self._compute_again(trip)

    def load(self, sequence: Sequence, replica: ReferenceReplica) -> None:
        """A decode replica has taken blocks for a request: read its KV, or let its prefill replica start."""
        trip = self._trips[sequence.row]
        trip.taker, trip.at = sequence, replica
        self._soon(trip.row, lambda: self._let_prefill(trip) if self._terms.pushes else self._pull(trip))

    def chunk(self, sequence: Sequence, tokens: int, start_ns: int) -> None:
        """A prefill replica has computed a prompt up to `tokens`, in a step that began at start_ns."""
        if self._terms.pushes:
            trip = self._trips[sequence.row]
            self._soon(trip.row, lambda: self._push(trip, tokens, start_ns))

    def prefilled(self, sequence: Sequence, sender: Prefilling) -> None:
        """A prompt is computed, its blocks are lent."""
        trip = self._trips[sequence.row]
        trip.sender, trip.handoff.source = sender, sequence
        trip.place = Place.SENDING if self._terms.pushes else Place.BETWEEN
        trip.prefill.finished(trip.row)
        self._mark(trip.row, prefilled_ns=self._env.now)
        self._soon(trip.row, lambda: self._expect_last(trip) if self._terms.pushes else self._answer(trip))

    def ended(self, row: int) -> None:
        """A request ended with its first token, where its prompt was computed."""
        trip = self._trips.pop(row)
        self._asked.pop(row, None)
        self._mark(row, handoff=Handoff.ENDED)
        trip.prefill.finished(row)
        self._release_taker(trip)
        if trip.chosen:
            trip.decode.finished(row)

    def abort(self, row: int) -> bool:
        """The client has given up. False: the request is on no trip."""
        trip = self._trips.pop(row, None)
        if trip is None:
            return False
        self._asked.pop(row, None)
        if trip.place in (Place.PREFILLING, Place.RESERVING):
            self._abort_early(trip)
        else:
            self._abort_late(trip)
        return True

    # What follows.

    def _answer(self, trip: Trip) -> None:
        """Pull: the prefill engine's answer goes back to whoever sends the request on. Its lease begins."""
        now, lease_ns = self._env.now, self._terms.lease_ns
        if lease_ns is not None:
            later = clock.At(self._env, now + lease_ns, clock.DELIVER)
            later.callbacks.append(lambda _: self._expire(trip))
        if trip.after_ns:
            later = clock.At(self._env, now + trip.after_ns, clock.DELIVER)
            later.callbacks.append(lambda _: self._soon(trip.row, lambda: self._go_on(trip)))
        else:
            self._go_on(trip)

    def _go_on(self, trip: Trip) -> None:
        if self._trips.get(trip.row) is not trip:
            return
        trip.place = Place.DECODING
        if not trip.chosen:
            trip.decode.choose(trip.row)
            trip.chosen = True
        trip.decode.send(trip.row, self._env.now)

    def _expire(self, trip: Trip) -> None:
        """Nobody has asked for the KV in time: its blocks are free, and the decode replica computes it again."""
        if trip.over or trip.handoff.begun:
            return
        trip.expired = True
        trip.sender.give_back(trip.row)
        self._mark(trip.row, handoff=Handoff.EXPIRED)
        if trip.waiting is not None:
            self._compute_again(trip)

    def _compute_again(self, trip: Trip) -> None:
        trip.waiting.handoff = None
        self._end(trip)

    def _let_prefill(self, trip: Trip) -> None:
        """Push: blocks are taken, the prompt may start."""
        trip.place = Place.PREFILLING
        trip.prefill.send(trip.row, trip.arrived_ns)

    def _pull(self, trip: Trip) -> None:
        """Read all blocks that are not here."""
        handoff, now = trip.handoff, self._env.now
        trip.until_ns = now
        self._mark(trip.row, transfer_start_ns=now)
        self._carry(trip, handoff.prompt_blocks - handoff.skip_blocks, now)
        self._expect_last(trip)

    def _push(self, trip: Trip, tokens: int, start_ns: int) -> None:
        """Send the blocks that this chunk has filled, the last one of a prompt also half full."""
        handoff = trip.handoff
        whole = tokens >= trip.prompt_tokens
        blocks = (handoff.prompt_blocks if whole else tokens // trip.block_size) - handoff.sent_blocks
        if blocks > 0:
            handoff.sent_blocks += blocks
            self._carry(trip, blocks, start_ns)

    def _carry(self, trip: Trip, blocks: int, start_ns: int) -> None:
        """Put blocks on their links; layer by layer, all but the last layer could go since start_ns."""
        if not blocks:
            return
        now, lane = self._env.now, trip.lane
        size, fragments = blocks * lane.lane_bytes, blocks * lane.fragments
        if self._terms.transfer == LAYERWISE:
            body = rules.layerwise_body(size, lane.layers)
            first = rules.layerwise_body(fragments, lane.layers)
            if body:
                self.links.carry(trip.ends, start_ns, body, first)
            size, fragments = size - body, fragments - first
        trip.until_ns = self.links.carry(trip.ends, now, size, fragments)
        marks = self._marks.data[:, trip.row]
        if marks[HANDOFF_INDEX["transfer_start_ns"]] == UNSET:
            self._mark(trip.row, transfer_start_ns=start_ns if self._terms.transfer == LAYERWISE else now)
        marks[HANDOFF_INDEX["transfer_blocks"]] += blocks
        marks[HANDOFF_INDEX["transfer_bytes"]] += blocks * lane.block_bytes

    def _expect_last(self, trip: Trip) -> None:
        """All is sent or asked for: wait until it is there."""
        trip.sending = True
        later = clock.At(self._env, max(trip.until_ns, self._env.now), clock.DELIVER)
        later.callbacks.append(lambda _: self._fetched(trip))

    def _fetched(self, trip: Trip) -> None:
        """All KV is at the decode replica, the prefill replica has its blocks back."""
        if trip.over and trip.place is not Place.DECODING:
            return
        self._mark(trip.row, transfer_end_ns=self._env.now)
        if not trip.over:
            self._mark(trip.row, handoff=Handoff.DONE)
            self._end(trip)
        trip.sender.give_back(trip.row)
        trip.at.incoming.arrived(trip.taker)

    def _end(self, trip: Trip) -> None:
        trip.over = True
        del self._trips[trip.row]
        self._arrived(trip.row, trip.decode)

    # When a client gives up.

    def _abort_early(self, trip: Trip) -> None:
        """Its prompt is not computed yet."""
        trip.over = True
        if trip.place is Place.PREFILLING:
            trip.prefill.abort(trip.row)
            if self._terms.pushes:
                trip.at.abort(trip.row)
            if trip.chosen:
                trip.decode.finished(trip.row)
        else:
            trip.prefill.finished(trip.row)
            trip.decode.abort(trip.row)
        self._release_taker(trip)

    def _abort_late(self, trip: Trip) -> None:
        """Its prompt is computed. A read that has begun goes on to its end, and only then are the blocks free."""
        trip.over = True
        if trip.place is Place.DECODING:
            trip.decode.abort(trip.row)
        elif trip.chosen:
            trip.decode.finished(trip.row)
        if trip.place is Place.SENDING:
            trip.at.abort(trip.row)
        if trip.place is Place.DECODING and trip.sending:
            return
        self._release_taker(trip)
        if not trip.expired:
            trip.sender.give_back(trip.row, wasted=trip.place is not Place.DECODING or trip.waiting is None)

    def _release_taker(self, trip: Trip) -> None:
        if trip.taker is not None:
            trip.at.incoming.drop(trip.taker)

    # Helpers.

    def _soon(self, row: int, act: Callable[[], None]) -> None:
        """Do something in this instant, after all that ended in it, rows in order."""
        if not self._asked:
            clock.At(self._env, self._env.now, clock.DELIVER).callbacks.append(lambda _: self._do_asked())
        self._asked.setdefault(row, []).append(act)

    def _do_asked(self) -> None:
        asked, self._asked = self._asked, {}
        for row in sorted(asked):
            for act in asked[row]:
                act()

    def _mark(self, row: int, **marks: int) -> None:
        for name, value in marks.items():
            self._marks.data[HANDOFF_INDEX[name], row] = value
