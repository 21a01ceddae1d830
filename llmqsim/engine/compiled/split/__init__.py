"""A compiled run with prefill and decode pools: the reference engine's results, byte for byte, for what `why_not` knows.

Nothing here works on groups, as engine/compiled/group does: a step goes through its requests one by one, which is fast
enough for the little that a request does at either end.
"""

from __future__ import annotations

import numpy as np

from llmqsim import jit
from llmqsim.clients import Clients, Loop
from llmqsim.cost.lower import StepCost
from llmqsim.engine import handoff
from llmqsim.engine.compiled import read
from llmqsim.engine.compiled.split import layout as at
from llmqsim.engine.compiled.world.books import Usage
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.handoff import HandoffTerms
from llmqsim.errors import InvariantError
from llmqsim.kv.pool import KvPool
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.records import GAP_BINS, GapHistogram, LinkUsage, ReplicaUsage
from llmqsim.requests import INDEX, Handoff, Outcome, RequestTable
from llmqsim.units import to_ns

TRANSFERS = {handoff.PULL: at.PULL, handoff.PUSH: at.PUSH, handoff.LAYERWISE: at.LAYERWISE}
FIRST_TOKENS = {handoff.FROM_DECODE: at.FROM_DECODE, handoff.FROM_PREFILL: at.FROM_PREFILL, handoff.WITH_KV: at.WITH_KV}
LOG_ROWS = 1 << 16
LOG_COLUMNS = 8
MOST_BYTES = 2 << 30
"""of state beside the request table"""
MARKS = {
    "first_scheduled_ns": at.S_FIRST_SCHEDULED_NS,
    "generated_tokens": at.S_GENERATED,
    "preemptions": at.S_PREEMPTIONS,
    "max_itl_ns": at.S_MAX_GAP_NS,
    "wait_step_ns": at.S_WAIT,
    "wait_slots_ns": at.S_WAIT + 1,
    "wait_kv_ns": at.S_WAIT + 2,
    "wait_token_budget_ns": at.S_WAIT + 3,
    "wait_preempted_ns": at.S_WAIT_PREEMPTED_NS,
}
"""columns of the table that the state holds as they are"""


def nodes(pool: Deployment, rows: int) -> int:
    """Most nodes of a replica's free blocks: each run has a block, and there is one between runs that have an owner."""
    usable = KvPool(pool.kv_blocks, pool.options.block_size).usable_blocks
    return min(usable, 2 * rows + 1) + 2


class SplitReplicas:
    """All replicas of a run with one prefill and one decode pool. `run` mutates the table; the rest reads the arena.

    in_turn : of each pool, is its router round robin? condition : of the placement, the shortest prompt (tokens) that is
    computed at the prefill pool, and whether the decode replica is chosen on arrival.
    """

    def __init__(
        self,
        table: RequestTable,
        pools: tuple[Deployment, Deployment],
        terms: HandoffTerms,
        link: KvLink,
        lane: KvLane,
        in_turn: tuple[bool, bool],
        condition: tuple[int, bool],
        clients: Clients,
        keep_steps: bool,
    ):
        self._table = table
        self._loop, self._cap = clients.loops[0] if clients.loops else None, clients.max_in_flight
        self._pools = pools
        self._terms = terms
        self._link = link
        self._counts = tuple(pool.replicas for pool in pools)
        self._logs: list[np.ndarray] = []
        rows, classes = len(table), len(table.classes)
        self._gaps = np.zeros((classes, GAP_BINS), dtype=np.int64)
        self._log = np.zeros((LOG_ROWS if keep_steps else 1, LOG_COLUMNS), dtype=np.int64)
        self._state = self._requests(table)
        self.arena = np.zeros(self._layout(rows, classes), dtype=np.int64)
        self._set_globals(lane, in_turn, condition, keep_steps)
        self.arena[at.G_TURNAROUND_NS] = clients.turnaround_ns
        if self._loop is not None:
            self._set_turns(self._loop)
        for index in range(sum(self._counts)):
            self._set_replica(index, pools[index >= self._counts[0]], decodes=index >= self._counts[0])

    def _requests(self, table: RequestTable) -> np.ndarray:
        """Each request as a prefill replica gets it."""
        state = np.zeros((len(table), at.S_WORDS), dtype=np.int64)
        state[:, at.S_PROMPT] = state[:, at.S_KNOWN] = table.prompt_tokens
        state[:, at.S_OUTPUT] = table.output_tokens
        state[:, at.S_CLASS] = table.class_id
        state[:, at.S_MAX] = 1
        for word in (at.S_LAST_NS, at.S_MAX_GAP_NS, at.S_FIRST_SCHEDULED_NS, at.S_FIRST_TOKEN_NS, at.S_FINISH_NS):
            state[:, word] = -1
        return state

    def _layout(self, rows: int, classes: int) -> int:
        """Place the regions; return the words needed."""
        replicas = sum(self._counts)
        self._slots = [min(pool.options.max_num_seqs, max(1, rows)) for pool in self._pools]
        slots = max(self._slots)
        self._step = at.STEP + slots + rows + 2 * slots * self._terms.pushes
        clients = self._loop.clients if self._loop else min(self._cap or 0, rows)
        sizes = {"links": at.LINK * max(1, replicas), "gap_sums": 3 * classes, "turns": 2 * clients, "due": clients}
        sizes |= dict.fromkeys(("sent", "answered", "onward", "leases", "later"), 2 * rows)
        sizes |= dict.fromkeys(("asked", "go_on", "chunks"), rows)
        self._place, end = {}, at.GLOBALS
        for name, words in sizes.items():
            self._place[name] = end
            end += words
        self._parts, stride = {}, at.REPLICA
        parts = {"STEP": 2 * self._step, "RUN": slots}
        parts |= dict.fromkeys(("HEAP", "FRESH_ROWS", "STACK", "INCOMING_ROWS", "TO_BEGIN_ROWS"), rows)
        parts["NODES"] = max(nodes(pool, rows) for pool in self._pools) * at.NODE
        for name, words in parts.items():
            self._parts[name] = stride
            stride += words
        self._first, self._stride = end, stride
        return end + stride * replicas

    @staticmethod
    def words(rows: int, pools: tuple[Deployment, ...]) -> int:
        """About how many words a run of this size needs."""
        most = max(nodes(pool, rows) for pool in pools) * at.NODE
        return rows * (at.S_WORDS + 14) + sum(pool.replicas for pool in pools) * (8 * rows + most)

    def _set_turns(self, loop: Loop) -> None:
        """Clients of the closed loop begin, in order of time: a heap already."""
        place = self._place["turns"]
        self.arena[[at.G_CLOSED, at.G_TURNS_SIZE]] = 1, loop.clients
        self.arena[at.G_STOP_NS] = at.NEVER if loop.stop_ns is None else loop.stop_ns
        for client in range(loop.clients):
            starts_ns = client * loop.ramp_up_ns // loop.clients
            self.arena[place + 2 * client : place + 2 * client + 2] = starts_ns, client

    def _set_globals(
        self, lane: KvLane, in_turn: tuple[bool, bool], condition: tuple[int, bool], keep_steps: bool
    ) -> None:
        place, link, terms = self._place, self._link, self._terms
        decode = self._pools[1]
        share = terms.waiting_share
        usable = KvPool(decode.kv_blocks, decode.options.block_size).usable_blocks
        values = {
            at.G_REPLICAS: sum(self._counts),
            at.G_PREFILLS: self._counts[0],
            at.G_ROWS: len(self._table),
            at.G_CLASSES: len(self._table.classes),
            at.G_TRANSFER: TRANSFERS[terms.transfer],
            at.G_FIRST_TOKEN: FIRST_TOKENS[terms.first_token],
            at.G_LEAST_PROMPT: condition[0],
            at.G_CAP: at.NEVER if self._cap is None else self._cap,
            at.G_CHOOSES_EARLY: condition[1] or terms.pushes,
            at.G_LEASE_NS: at.NEVER if terms.lease_ns is None else terms.lease_ns,
            at.G_RESERVE_BLOCKS: -(-terms.reserve_tokens // decode.options.block_size),
            at.G_MOST_WAITING: -1 if share is None else int(share * usable),
            at.G_BLOCK_BYTES: lane.block_bytes,
            at.G_LANE_BYTES: lane.lane_bytes,
            at.G_FRAGMENTS: lane.fragments,
            at.G_LAYERS: lane.layers,
            at.G_BYTES_PER_US: link.bytes_per_us,
            at.G_PER_FRAGMENT_NS: link.per_fragment_ns,
            at.G_LATENCY_NS: link.latency_ns,
            at.G_SHARED: link.shared,
            **{getattr(at, f"G_{name.upper()}"): first for name, first in place.items()},
            at.G_LOG_ROWS: LOG_ROWS if keep_steps else 0,
            at.G_FIRST_REPLICA: self._first,
            at.G_STRIDE: self._stride,
        }
        for pool, servers in enumerate(self._pools):
            values[at.G_IN_TURN + pool] = in_turn[pool]
            values[at.G_BEFORE_NS + pool] = to_ns(servers.host.request_before_s)
            values[at.G_AFTER_NS + pool] = to_ns(servers.host.request_after_s)
        for word, value in values.items():
            self.arena[word] = value

    def _set_replica(self, index: int, servers: Deployment, decodes: bool) -> None:
        base, options = self._base(index), servers.options
        usable = KvPool(servers.kv_blocks, options.block_size).usable_blocks
        values = {
            at.R_INDEX: index,
            at.R_DECODES: decodes,
            at.R_FORM_NS: at.NEVER,
            at.R_FREE: usable,
            at.R_USABLE: usable,
            at.R_MAX_NUM_SEQS: options.max_num_seqs,
            at.R_BUDGET: options.max_num_batched_tokens,
            at.R_BLOCK_SIZE: options.block_size,
            at.R_CHUNKED: options.enable_chunked_prefill,
            at.R_WHOLE_PROMPT: options.scheduler_reserve_full_isl,
            at.R_THRESHOLD: options.long_prefill_token_threshold,
            at.R_WATERMARK: servers.watermark_blocks,
            at.R_IN_FLIGHT: options.in_flight,
            at.R_CACHING: options.enable_prefix_caching and servers.kv_blocks is not None,
            at.R_UNHASHED_FIRST: options.unhashed_blocks_first,
            at.R_NODES_USED: 1,
            at.R_COLD_STEPS: servers.cold_steps,
            at.R_COLD_STEP_NS: to_ns(servers.host.cold_step_s),
            at.R_STEP_WORDS: self._step,
            at.R_LOADS_AT: at.STEP + max(self._slots),
            at.R_ENDS_AT: self._step - 2 * max(self._slots) if self._terms.pushes and not decodes else 0,
            **{getattr(at, f"R_{name}"): base + offset for name, offset in self._parts.items()},
        }
        for word, value in values.items():
            self.arena[base + word] = value
        ends, run = self.arena[base + self._parts["NODES"] :][: 2 * at.NODE].reshape(2, at.NODE)
        ends[[at.N_NEXT, at.N_PREV]] = 1  # one run that holds nothing
        run[[at.N_OWNER, at.N_COUNT]] = at.OF_NOBODY, usable

    def _base(self, index: int) -> int:
        return self._first + index * self._stride

    # Running.

    def run(self, until_ns: int | None) -> str | None:
        """Run to the end, or up to all that is before `until_ns`. Says what it can't go on with, if there is something."""
        from llmqsim.engine.compiled.split import kernels

        jit.about_to_call(kernels.run)
        costs: list[StepCost] = [pool.cost for pool in self._pools]
        tables = [part for cost in costs for part in (cost.costs, cost.params)]
        limit = at.NEVER - 1 if until_ns is None else until_ns
        while True:
            code = kernels.run(
                self._table.data,
                self._table.handoffs.data,
                self.arena,
                self._state,
                self._gaps,
                self._log,
                *tables,
                limit,
            )
            logged = int(self.arena[at.G_LOGGED])
            self._logs.append(self._log[:logged].copy())
            self.arena[at.G_LOGGED] = 0
            if code == at.DONE:
                return None
            if code == at.TOO_LONG:
                return f"a step takes more than {at.LONGEST_STEP:,} ns, or the clock passes {at.LAST_TIME:,} ns"
            if code == at.STUCK:
                raise InvariantError("compiled engine: a replica with requests can't form a step")

    def close(self, now_ns: int) -> None:
        """The clock stops: settle what is still here, and write all marks."""
        from llmqsim.engine.compiled.split import kernels

        kernels.close(self.arena, self._state, now_ns)
        state, data = self._state, self._table.data
        for name, word in MARKS.items():
            data[INDEX[name]] = state[:, word]
        after = [int(self.arena[at.G_AFTER_NS + pool]) for pool in range(2)]
        first, finish = state[:, at.S_FIRST_TOKEN_NS], state[:, at.S_FINISH_NS]
        early = self._table.handoffs.handoff == Handoff.ENDED
        told_early = early
        if self._terms.first_token == handoff.FROM_PREFILL:
            told_early = self._table.handoffs.prefill_replica >= 0
        data[INDEX["first_token_ns"]] = np.where(first >= 0, first + np.where(told_early, *after), -1)
        data[INDEX["finish_ns"]] = np.where(finish >= 0, finish + np.where(early, *after), -1)
        np.copyto(data[INDEX["outcome"]], int(Outcome.COMPLETED), where=finish >= 0)

    # What is left behind.

    @property
    def now_ns(self) -> int:
        """When the run ended: the last instant in which anything happened but the end of a lease."""
        if self._terms.lease_ns is None:
            return int(self.arena[at.G_NOW])
        ends = (int(self.arena[self._base(index) + at.U_END_NS]) for index in range(sum(self._counts)))
        return max(int(self.arena[at.G_LAST_CLIENT_NS]), *ends)

    def usage(self, index: int) -> ReplicaUsage:
        """What one replica did."""
        return read.usage(Usage(self.arena, self._base(index) + at.USAGE))

    def links(self) -> tuple[LinkUsage, ...]:
        """What each link did that carried anything, by name."""
        found = []
        for index in range(sum(self._counts)):
            free, *counts = self.arena[self._place["links"] + index * at.LINK :][: at.LINK].tolist()
            name = "shared" if self._link.shared else f"replica {index} {'in' if index >= self._counts[0] else 'out'}"
            if counts[0]:
                found.append(LinkUsage(name, *counts))
        return tuple(sorted(found, key=lambda link: link.name))

    def gaps(self) -> GapHistogram:
        """Gaps between tokens, by class."""
        classes = len(self._table.classes)
        sums = self.arena[self._place["gap_sums"] :][: classes * 3]
        return read.gaps(self._gaps, sums)

    def log(self) -> list[tuple]:
        """Every step, in the order in which they ended."""
        return list(map(tuple, np.concatenate(self._logs).tolist()))
