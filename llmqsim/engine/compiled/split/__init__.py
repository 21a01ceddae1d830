"""A compiled run with prefill and decode pools: the reference engine's results, byte for byte, for what `why_not` knows.

Nothing here works on groups, as engine/compiled/group does: a step goes through its requests one by one, which is fast
enough for the little that a request does at either end.
"""

from __future__ import annotations

import numpy as np

from llmqsim import jit
from llmqsim.cost.kernels import AXES
from llmqsim.cost.lower import StepCost
from llmqsim.engine.compiled.split import layout as at
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.handoff import FROM_DECODE, HandoffTerms
from llmqsim.errors import InvariantError
from llmqsim.kv.pool import KvPool
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.records import GAP_BINS, GapHistogram, LinkUsage, ReplicaUsage
from llmqsim.requests import INDEX, Outcome, RequestTable
from llmqsim.units import to_ns

LIMB = 1 << 60
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


class SplitReplicas:
    """All replicas of a run with one prefill and one decode pool. `run` mutates the table; the rest reads the arena."""

    def __init__(
        self,
        table: RequestTable,
        pools: tuple[Deployment, Deployment],
        terms: HandoffTerms,
        link: KvLink,
        lane: KvLane,
        in_turn: tuple[bool, bool],
        keep_steps: bool,
    ):
        self._table = table
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
        self._set_globals(lane, in_turn, keep_steps)
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
        self._step = at.STEP + slots + rows
        sizes = {"links": at.LINK * max(1, replicas), "gap_sums": 3 * classes}
        sizes |= dict.fromkeys(("sent", "answered", "onward", "transfers"), 2 * rows)
        sizes |= {"asked": rows, "go_on": rows}
        self._place, end = {}, at.GLOBALS
        for name, words in sizes.items():
            self._place[name] = end
            end += words
        self._parts, stride = {}, at.REPLICA
        parts = {"STEP": 2 * self._step, "RUN": slots}
        parts |= dict.fromkeys(("HEAP", "FRESH_ROWS", "STACK", "INCOMING_ROWS", "TO_BEGIN_ROWS"), rows)
        for name, words in parts.items():
            self._parts[name] = stride
            stride += words
        self._first, self._stride = end, stride
        return end + stride * replicas

    @staticmethod
    def words(rows: int, replicas: int) -> int:
        """About how many words a run of this size needs."""
        return rows * (at.S_WORDS + 10 + 8 * replicas)

    def _set_globals(self, lane: KvLane, in_turn: tuple[bool, bool], keep_steps: bool) -> None:
        place, link, terms = self._place, self._link, self._terms
        decode = self._pools[1]
        share = terms.waiting_share
        usable = KvPool(decode.kv_blocks, decode.options.block_size).usable_blocks
        values = {
            at.G_REPLICAS: sum(self._counts),
            at.G_PREFILLS: self._counts[0],
            at.G_ROWS: len(self._table),
            at.G_CLASSES: len(self._table.classes),
            at.G_GAP_SUMS: place["gap_sums"],
            at.G_FIRST_TOKEN_HERE: terms.first_token != FROM_DECODE,
            at.G_RESERVE_BLOCKS: -(-terms.reserve_tokens // decode.options.block_size),
            at.G_MOST_WAITING: -1 if share is None else int(share * usable),
            at.G_BLOCK_BYTES: lane.block_bytes,
            at.G_LANE_BYTES: lane.lane_bytes,
            at.G_FRAGMENTS: lane.fragments,
            at.G_BYTES_PER_US: link.bytes_per_us,
            at.G_PER_FRAGMENT_NS: link.per_fragment_ns,
            at.G_LATENCY_NS: link.latency_ns,
            at.G_SHARED: link.shared,
            at.G_LINKS: place["links"],
            at.G_SENT: place["sent"],
            at.G_ANSWERED: place["answered"],
            at.G_ONWARD: place["onward"],
            at.G_TRANSFERS: place["transfers"],
            at.G_ASKED: place["asked"],
            at.G_GO_ON: place["go_on"],
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
            at.R_COLD_STEPS: servers.cold_steps,
            at.R_COLD_STEP_NS: to_ns(servers.host.cold_step_s),
            at.R_STEP_WORDS: self._step,
            at.R_LOADS_AT: at.STEP + max(self._slots),
            **{getattr(at, f"R_{name}"): base + offset for name, offset in self._parts.items()},
        }
        for word, value in values.items():
            self.arena[base + word] = value

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
                self._table.data, self._table.handoffs.data, self.arena, self._state, self._gaps, self._log, *tables, limit
            )
            logged = int(self.arena[at.G_LOGGED])
            self._logs.append(self._log[:logged].copy())
            self.arena[at.G_LOGGED] = 0
            if code == at.DONE:
                return None
            if code == at.PREEMPTS:
                return "a request is preempted with engine.enable_prefix_caching in pools"
            if code == at.TOO_LONG:
                return f"a step takes more than {at.LONGEST_STEP:,} ns, or the clock passes {at.LAST_TIME:,} ns"
            if code == at.STUCK:
                raise InvariantError("compiled engine: a replica with requests can't form a step")

    def close(self, now_ns: int) -> None:
        """The clock stops: settle what is still here, and write all marks."""
        from llmqsim.engine.compiled.split import kernels

        kernels.close(self.arena, self._state, now_ns)
        state, data = self._state, self._table.data
        sent = self._table.arrival_ns >= 0
        sent &= self._table.handoffs.handoff > 0
        for name, word in MARKS.items():
            np.copyto(data[INDEX[name]], state[:, word], where=sent)
        after = [int(self.arena[at.G_AFTER_NS + pool]) for pool in range(2)]
        here = bool(self.arena[at.G_FIRST_TOKEN_HERE])
        first, finish = state[:, at.S_FIRST_TOKEN_NS], state[:, at.S_FINISH_NS]
        alone = self._table.replica < 0  # never sent on: it ended, or still is, where its prompt is computed
        data[INDEX["first_token_ns"]] = np.where(sent & (first >= 0), first + after[0 if here else 1], -1)
        data[INDEX["finish_ns"]] = np.where(sent & (finish >= 0), finish + np.where(alone, *after), -1)
        np.copyto(data[INDEX["outcome"]], int(Outcome.COMPLETED), where=sent & (finish >= 0))

    # What is left behind.

    @property
    def now_ns(self) -> int:
        """The last instant in which anything happened."""
        return int(self.arena[at.G_NOW])

    def usage(self, index: int) -> ReplicaUsage:
        """What one replica did."""
        words = self.arena[self._base(index) :][: at.REPLICA].tolist()
        outside = dict(zip(AXES, words[at.U_OUTSIDE :], strict=False))

        def integral(word: int) -> int:
            return words[word] * LIMB + words[word + 1]

        return ReplicaUsage(
            steps=words[at.U_STEPS],
            busy_ns=integral(at.U_BUSY),
            cut_ns=words[at.U_CUT],
            tokens=words[at.U_TOKENS],
            recomputed_tokens=words[at.U_RECOMPUTED],
            wasted_rows=words[at.U_WASTED],
            padded_tokens=words[at.U_PADDED],
            preemptions=words[at.U_PREEMPTIONS],
            running_ns=integral(at.U_RUNNING),
            waiting_ns=integral(at.U_WAITING),
            kv_block_ns=integral(at.U_BLOCKS),
            running_peak=words[at.U_RUNNING_PEAK],
            waiting_peak=words[at.U_WAITING_PEAK],
            kv_blocks_peak=words[at.U_BLOCKS_PEAK],
            requests=words[at.U_REQUESTS],
            end_ns=words[at.U_END_NS],
            outside={axis: count for axis, count in outside.items() if count},
        )

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
        histogram = GapHistogram(classes)
        histogram.counts[:] = self._gaps
        sums = self.arena[self._place["gap_sums"] :][: classes * 3].reshape(classes, 3).tolist()
        histogram.sum_ns = [high * LIMB + low for high, low, _ in sums]
        histogram.max_ns = [largest for _, _, largest in sums]
        return histogram

    def log(self) -> list[tuple]:
        """Every step, in the order in which they ended; of steps that ended together, the one that began first."""
        rows = np.concatenate(self._logs) if self._logs else np.zeros((0, LOG_COLUMNS), dtype=np.int64)
        return list(map(tuple, rows[np.lexsort((rows[:, 0], rows[:, 1], rows[:, 2]))].tolist()))
