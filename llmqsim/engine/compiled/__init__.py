"""The compiled engine: the reference engine's results, byte for byte, for the built-in policies that it knows.

`Replicas` packs a deployment into the arena (layout.py), runs the kernels, and unpacks what they wrote. Read
`kernels.py` first (from event to event), then `step/` (form and commit a step, row by row) and `group/` (the same, with
all who decode as one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from llmqsim import jit
from llmqsim.clients import Loop
from llmqsim.engine.compiled import batchers, orders, read, victims
from llmqsim.engine.compiled import layout as at
from llmqsim.engine.compiled.clients import Crowd
from llmqsim.engine.compiled.prefix import Keys, number_keys
from llmqsim.engine.compiled.routers.forms import Router
from llmqsim.engine.compiled.routers.layout import F_CHOICE, F_SEEN_NS
from llmqsim.engine.deployment import Deployment
from llmqsim.errors import InvariantError
from llmqsim.kv import prefix as prefix_pool
from llmqsim.kv.pool import KvPool
from llmqsim.policies.protocol import FixedKeys
from llmqsim.records import GAP_BINS, GapHistogram, ReplicaUsage
from llmqsim.requests import RequestTable
from llmqsim.units import to_ns

END_OF_TIME = at.NEVER - 1
LOG_ROWS = 1 << 16
MOST_BYTES = 2 << 30
"""of state beside the request table"""


class NotCompiled(Exception):
    """The compiled engine can't run this to its end; the message says why. The reference engine can."""


class MoreSlots(Exception):
    """So many requests are preempted and others admitted meanwhile that the slots don't suffice: try with more."""


class Replicas:
    """All replicas of a run. Kernels mutate `table` and the arena; `usage` and `log` read the arena.

    router : of this run. caching : prefix caching is on. fixed : keys that sort the waiting queues; None: first come, first
    served, and preempted requests first. slots : of a replica, where more than max_num_seqs are needed. crowd : clients that
    are not plain; their queues are sorted.
    """

    def __init__(
        self,
        table: RequestTable,
        servers: Deployment,
        router: Router,
        keep_steps: bool,
        caching: bool,
        loop: Loop | None = None,
        fixed: FixedKeys | None = None,
        slots: int | None = None,
        crowd: Crowd | None = None,
    ):
        self._table = table
        self._params = servers.cost.params
        self._costs = np.concatenate([servers.cost.costs, [float(servers.link.bytes_per_s)], router.floats])
        self._swap_blocks, self._host_blocks = servers.swap_blocks, servers.offload_blocks if caching else 0
        self._count = servers.replicas
        self._cold_steps = servers.cold_steps
        self._logs: list[np.ndarray] = []
        self._slots = min(slots or servers.options.max_num_seqs, max(1, len(table)))
        self._batcher = batchers.form_of(servers, table)
        if orders.overflows(self._batcher.order, table):
            raise NotCompiled("weights of tokens under which a tenant's counter may pass 2^60")
        self._tenants = orders.tenants(self._batcher.order, table)
        self._ring = max(2, servers.cost.pipeline_stages)
        self._fixed, self._crowd, self._router, self._kind = fixed, crowd, router, router.kind
        self._keys = number_keys(table.prefixes) if caching and table.prefixes is not None else None
        self._usable = KvPool(servers.kv_blocks, servers.options.block_size).usable_blocks
        self.arena = np.zeros(self._layout(servers, keep_steps, loop.clients if loop else 0), dtype=np.int64)
        self._set_globals(servers, keep_steps, caching)
        router.fill(self.arena, self._place, floats=len(servers.cost.costs) + 1)
        for index in range(self._count):
            self._set_replica(index)
        if self._keys is not None:
            self._set_keys(self._keys)
        if self._fixed is not None:
            self._set_queue(self._fixed)

    def _layout(self, servers: Deployment, keep_steps: bool, clients: int) -> int:
        """Place the regions; return the words needed."""
        numbers = self._keys.numbers if self._keys else 0
        classes, slots, block_size = len(self._table.classes), self._slots, servers.options.block_size
        sizes = {
            "globals": at.GLOBALS,
            "next": self._count,
            "outstanding": self._count,
            "gaps": classes * GAP_BINS,
            "sums": classes * 3,
            "log": LOG_ROWS * at.LOG_COLUMNS if keep_steps else 0,
            "turns": 2 * clients,
            "due": clients,
            "answers": len(self._table) if self._router.listens else slots,
            "draft": 3 * slots * at.DRAFT,  # a row may be taken back and given again
            "scratch": 6 * slots,
            "marks": len(self._table) * at.MARKS if orders.needs_rows(self._batcher.order) else 0,
            "targets": classes * at.TARGETS,
            "times": victims.longest(self._table) + 2 if self._asks_times(servers) else 0,
            "queue": len(self._table) * at.ENTRY * orders.entries(self._batcher.order) if self._fixed else 0,
            **(self._crowd.sizes() if self._crowd else {}),
            **self._router.sizes(),
            "prefix": len(self._keys.kept) if self._keys else 0,
            "prefix_ids": int(self._keys.kept[-1]) if self._keys else 0,
        }
        self._place, self._words, end = {}, sizes, 0
        for name, words in sizes.items():
            self._place[name] = end
            end += words
        self._parts, stride = {}, at.REPLICA + self._ring * (at.STEP + slots)
        parts = {
            "ORDER": 3 * slots,  # who has left keeps a place until the ranks are closed
            **dict.fromkeys(("STACK", "SWAPS", "FREE", "HEAP", "ENDING", "KEPT", "PREFILL"), slots),
            "GAPS": 2 * at.GAPS,
            "NODES": self._nodes(slots) * at.NODE,
            "KEYS": numbers,
            "HOST_KEYS": numbers if self._host_blocks else 0,
            "RESIDUES": block_size,
            "CLASSES": classes,
            **dict.fromkeys(orders.OF_TENANTS, self._tenants),
            "SLOTS": slots * at.SLOT,
        }
        for name, words in parts.items():
            self._parts[name] = stride
            stride += words
        self._first, self._stride = end, stride
        words = end + stride * self._count
        if words * 8 > MOST_BYTES:
            raise NotCompiled(
                f"{self._count:,} replicas of {slots:,} slots need {words * 8:,} bytes, more than {MOST_BYTES:,}"
            )
        return words

    def _nodes(self, slots: int) -> int:
        """Most nodes of a replica (compiled/blocks): each has a block.

        Without shared keys and a host there is one run at most between runs that have an owner. With a host, runs of two
        kinds may alternate there.
        """
        on_gpu = self._usable if self._keys or self._host_blocks else min(self._usable, 3 * slots + 3)
        return on_gpu + self._host_blocks + 3  # the ends of two lists, and one that is about to go

    def _set_globals(self, servers: Deployment, keep_steps: bool, caching: bool) -> None:
        options, place, link = servers.options, self._place, servers.link
        values = {
            at.G_REPLICAS: self._count,
            at.G_ROWS: len(self._table),
            at.G_BEFORE_NS: to_ns(servers.host.request_before_s),
            at.G_AFTER_NS: to_ns(servers.host.request_after_s),
            at.G_MAX_NUM_SEQS: options.max_num_seqs,
            at.G_BUDGET: options.max_num_batched_tokens if servers.batching.has_token_budget else at.NO_LIMIT,
            at.G_KEEPS_SLOTS: servers.batching.keeps_slots,
            at.G_FRONT: servers.ordering.preempted_go_first,
            at.G_DRAFT: place["draft"],
            at.G_SCRATCH: place["scratch"],
            at.G_BLOCK_SIZE: options.block_size,
            at.G_CHUNKED: options.enable_chunked_prefill,
            at.G_WHOLE_PROMPT: options.scheduler_reserve_full_isl,
            at.G_THRESHOLD: options.long_prefill_token_threshold,
            at.G_WATERMARK: servers.watermark_blocks,
            at.G_IN_FLIGHT: options.in_flight if servers.cost.pipeline_stages == 1 else 1,
            at.G_STAGES: servers.cost.pipeline_stages,
            at.G_RING: self._ring,
            at.G_CACHING: caching,
            at.G_UNHASHED_FIRST: options.unhashed_blocks_first,
            at.G_HOST_BLOCKS: self._host_blocks,
            at.G_LOOKS_AGAIN: not isinstance(self._batcher.order, orders.Fixed),
            at.G_TENANTS: self._tenants,
            at.G_MARKS: place["marks"],
            at.G_TARGETS: place["targets"],
            at.G_PREFILL_NS: place["times"],
            **victims.words(servers),
            at.G_BLOCK_BYTES: link.block_bytes,
            at.G_COPY_NS: link.per_block_ns,
            at.G_LINK: len(servers.cost.costs),
            at.G_CACHED_PERCENT: servers.cost.cached_read_percent,
            at.G_NEAR_ADMISSIONS: prefix_pool.NEAR_ADMISSIONS,
            at.G_COLD_NS: to_ns(servers.host.cold_step_s),
            at.G_LONGEST: options.max_model_len or at.NO_LIMIT,
            at.G_CLASSES: len(self._table.classes),
            at.G_SLOTS: self._slots,
            at.G_NEXT_NS: place["next"],
            at.G_OUTSTANDING: place["outstanding"],
            at.G_IN_TURN: self._router.form.in_turn,
            at.G_ROUTER: place["router"],
            at.G_ANSWERS: place["answers"] if self._router.listens else 0,
            at.G_GAPS: place["gaps"],
            at.G_GAP_SUMS: place["sums"],
            at.G_LOG: place["log"],
            at.G_LOG_ROWS: LOG_ROWS if keep_steps else 0,
            at.G_FIRST_REPLICA: self._first,
            at.G_STRIDE: self._stride,
        }
        for word, value in values.items():
            self.arena[word] = value
        self._region("targets")[:] = victims.targets(self._table).ravel()
        if self._words["times"]:
            self._set_times(servers)

    @staticmethod
    def _asks_times(servers: Deployment) -> bool:
        return victims.needs_times(servers.preemption) or orders.needs_times(servers.ordering)

    def _region(self, name: str) -> np.ndarray:
        return self.arena[self._place[name] :][: self._words[name]]

    def _set_times(self, servers: Deployment) -> None:
        """What policies ask that reckon with time: prompts of any length alone, the host's link; corrected predictions."""
        from llmqsim.engine.compiled.books.kernels import set_float
        from llmqsim.engine.costs.kernels import FINE, LONGEST_NS, fill_prefill_ns

        cost, budget = servers.cost, servers.options.max_num_batched_tokens
        set_float(self.arena, at.G_RE_ESTIMATE, float(self._table.re_estimate))
        set_float(self.arena, at.G_LINK_RATE, float(servers.link.bytes_per_s))
        if not fill_prefill_ns(cost.costs, cost.params, cost.cached_read_percent, budget, self._region("times")):
            raise NotCompiled(f"a prompt alone takes more than {LONGEST_NS:,} ns")
        longest, order = self._words["times"], self._batcher.order
        steps = [self.arena[[at.G_DECODE_NS, at.G_DECODE_TOKEN]].tolist()]
        if isinstance(order, orders.GoodputFirst):
            steps.append((order.decode_ns, order.decode_token))
        for base_ns, per_token in steps:
            if max(per_token * longest, longest * (base_ns + per_token * longest // FINE)) > LONGEST_NS:
                raise NotCompiled(f"an answer alone takes more than {LONGEST_NS:,} ns")

    def _set_replica(self, index: int) -> None:
        base, slots, usable = self._base(index), self._slots, self._usable
        values = {
            at.R_INDEX: index,
            at.R_FORM_NS: at.NEVER,
            at.R_DELIVER_NS: at.NEVER,
            at.R_DELIVER_ROW: -1,
            at.R_LAST_COMMIT_NS: -2,  # before any time, and not that of a slot without a token (-1)
            at.R_USABLE_BLOCKS: usable,
            at.R_FREE_BLOCKS: usable,
            at.R_FREE_SLOTS: slots,
            at.R_HOST_FREE: self._swap_blocks,
            at.R_COLD: self._cold_steps,
            at.R_TOP: at.NOBODY_IN_LINE,
            **dict.fromkeys((at.R_REJOINED, at.R_LATE, at.R_TIMERS, at.R_STARVED), at.NOBODY_IN_LINE),
            at.R_LAST_SENT: -1,
            at.R_OLDEST_ROW: -1,
            at.R_RETRY_NS: at.NEVER,
            at.R_FULL_SINCE: -1,
            **{getattr(at, f"R_{name}"): base + offset for name, offset in self._parts.items()},
        }
        for word, value in values.items():
            self.arena[base + word] = value
        for name in ("FIRST_OF", "REST_OF"):
            self.arena[base + self._parts[name] :][: self._tenants] = at.NOBODY_IN_LINE
        nodes = self.arena[base + self._parts["NODES"] :]
        host = nodes[at.HOST_ENDS * at.NODE :]
        host[[at.N_NEXT, at.N_PREV]] = first = at.HOST_ENDS
        if usable:  # one run of blocks that hold nothing
            first = at.HOST_ENDS + 1
            nodes[[at.N_NEXT, at.N_PREV]] = first
            nodes[first * at.NODE + at.N_KEY], nodes[first * at.NODE + at.N_COUNT] = at.UNHASHED, usable
        self.arena[base + at.R_NODES_USED] = first
        self.arena[base + self._parts["FREE"] :][:slots] = np.arange(slots)[::-1]
        self.arena[self._place["next"] + index] = at.NEVER

    def _set_queue(self, fixed: FixedKeys) -> None:
        """Entries of all rows, in no queue yet."""
        self.arena[[at.G_SORTED, at.G_QUEUE, at.G_SLOPE]] = 1, self._place["queue"], fixed.slope
        entries = self._entries()
        entries[:, [at.Q_NEXT, at.Q_SLOT, at.Q_CHILD, at.Q_SIBLING]] = -1
        entries[:, at.Q_LATER] = at.NOT_LATE
        entries[:, at.Q_LEVEL], entries[:, at.Q_BASE] = fixed.level, fixed.base_ns

    def _entries(self) -> np.ndarray:
        return self.arena[self._place["queue"] :][: len(self._table) * at.ENTRY].reshape(-1, at.ENTRY)

    def _set_keys(self, keys: Keys) -> None:
        from llmqsim.engine.compiled.prefix import kernels

        place = self._place["prefix"]
        self.arena[place:][: len(keys.kept)] = keys.kept
        self.arena[[at.G_PREFIX, at.G_PREFIX_IDS, at.G_WARM]] = place, self._place["prefix_ids"], keys.warm
        kernels.pack(keys.offsets, keys.ids, self.arena)
        if keys.warm:
            for index in range(self._count):
                kernels.warm(self.arena, self._base(index))

    def _base(self, index: int) -> int:
        return self._first + index * self._stride

    # Running.

    def offer(self, first: int, end: int) -> None:
        """The rows first:end have their replicas (table.replica, -1: not sent): from now they can be delivered."""
        from llmqsim.engine.compiled import kernels

        self.arena[at.G_ROUTED] = end
        for index in range(self._count):
            base = self._base(index)
            if self._fixed is not None:
                self._chain(index, first, end)
            if self.arena[base + at.R_DELIVER_ROW] < 0:
                row = kernels.next_row(self._table.data, self.arena, base, first - 1)
                kernels.expect(self._table.data, self.arena, base, row)

    def _chain(self, index: int, first: int, end: int) -> None:
        """The rows first:end of a replica, in the order in which they are sent, after those before."""
        rows = first + np.flatnonzero(self._table.replica[first:end] == index)
        if len(rows):
            base, entries = self._base(index), self._entries()
            last = self.arena[base + at.R_LAST_SENT]
            if last >= 0:
                entries[last, at.Q_NEXT] = rows[0]
            else:
                self.arena[base + at.R_OLDEST_ROW] = rows[0]
            entries[rows[:-1], at.Q_NEXT] = rows[1:]
            self.arena[base + at.R_LAST_SENT] = rows[-1]

    @property
    def counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Requests in flight, int64[replicas]; reports, and what was sent since, int64[replicas, words]: as they change."""
        reports, since = self._region("router_reports"), self._region("router_since")
        return self._region("outstanding"), reports.reshape(self._count, -1), since.reshape(self._count, -1)

    def send(self, end: int, until_ns: int | None, ask: Callable[[int], int] | None = None) -> None:
        """Send each row up to `end` to the replica that the router chooses when it is due, up to `until_ns`.

        ask : where a row goes, for a policy without a compiled form.
        """
        from llmqsim.engine.compiled import kernels

        self.arena[at.G_ROWS] = end
        self._ask = ask
        self._call_all(kernels.route, END_OF_TIME if until_ns is None else until_ns)

    def run_up_to(self, now_ns: int) -> None:
        """Bring every replica to where a router finds it that looks at `now_ns`."""
        self._advance(now_ns, now_ns)

    def run_loop(self, loop: Loop, turnaround_ns: int, until_ns: int | None) -> None:
        """Clients send the rows, each the next one when its answer has come."""
        from llmqsim.engine.compiled.loop import kernels

        clients, turns = np.arange(loop.clients), self._place["turns"]
        starts_ns = clients * loop.ramp_up_ns // loop.clients
        if loop.clients * loop.ramp_up_ns >= 1 << 63:  # the product does not fit
            starts_ns = [client * loop.ramp_up_ns // loop.clients for client in range(loop.clients)]
        self.arena[at.G_TURNS], self.arena[at.G_TURNS_SIZE] = turns, loop.clients
        self.arena[at.G_DUE], self.arena[at.G_ANSWERS] = self._place["due"], self._place["answers"]
        self.arena[at.G_STOP_NS] = at.NEVER if loop.stop_ns is None else loop.stop_ns
        self.arena[at.G_TURNAROUND_NS] = turnaround_ns
        heap = self.arena[turns:][: 2 * loop.clients].reshape(-1, 2)  # in order of time: a heap already
        heap[:, 0], heap[:, 1] = starts_ns, clients
        self._call_all(kernels.serve, END_OF_TIME if until_ns is None else until_ns)

    def run_crowd(self, until_ns: int | None) -> None:
        """Clients of all kinds send what they have to."""
        from llmqsim.engine.compiled.clients import kernels

        self._entries()[:, at.Q_SLOT] = at.NOT_DELIVERED
        self.arena[at.G_ANSWERS] = self._place["answers"]
        self._crowd.fill(self.arena, self._place)
        self._call_all(kernels.serve_all, END_OF_TIME if until_ns is None else until_ns)

    def run_out(self, until_ns: int | None) -> None:
        """Run every replica until it has nothing left to do, or up to all that is before `until_ns`."""
        commits, rest = (END_OF_TIME, END_OF_TIME) if until_ns is None else (until_ns - 1, until_ns)
        self._advance(commits, rest)

    def _advance(self, commit_limit: int, form_limit: int) -> None:
        from llmqsim.engine.compiled import kernels

        for index in range(self._count):
            limits = self._base(index), commit_limit, form_limit
            self._call(kernels.advance, self._table.data, self.arena, self._costs, self._params, *limits)
        if self._router.listens:
            kernels.hear_ends(self._kind, self._table.data, self.arena)

    def _call_all(self, kernel, until_ns: int) -> None:
        """Call a kernel that sends requests, too."""
        self._call(kernel, self._kind, self._table.data, self.arena, self._costs, self._params, until_ns)

    def _call(self, kernel, *arguments: Any) -> None:
        jit.about_to_call(kernel)
        while True:
            code = kernel(self._batcher, *arguments)
            self._drain()
            if code == at.DONE:
                return
            if code == at.ASK:
                self.arena[self._place["router"] + F_CHOICE] = self._ask(int(self.arena[at.G_NEXT_ROW]))
            if code == at.CACHED_TWICE:
                raise NotCompiled("a request that was swapped has to recompute, and its blocks may be cached twice")
            if code == at.TOO_LONG:
                raise NotCompiled(
                    f"a step takes more than {at.LONGEST_STEP:,} ns, or the clock passes {at.LAST_TIME:,} ns"
                )
            if code == at.MORE_SLOTS:
                raise MoreSlots
            if code == at.STUCK:
                raise InvariantError("compiled engine: a replica with requests can't form a step")

    def _drain(self) -> None:
        rows = int(self.arena[at.G_LOGGED])
        if rows:
            log = self.arena[self._place["log"] :][: rows * at.LOG_COLUMNS]
            self._logs.append(log.reshape(rows, at.LOG_COLUMNS).copy())
            self.arena[at.G_LOGGED] = 0

    def close(self, now_ns: int) -> None:
        """The clock stops: settle what is still here."""
        from llmqsim.engine.compiled import kernels

        for index in range(self._count):
            kernels.close(self._batcher, self._table.data, self.arena, self._base(index), now_ns)

    # What is left behind.

    @property
    def last_ns(self) -> int:
        """When the last step ended, a policy wanted to be asked again, or a client looked whether there is more to send."""
        watched = self._crowd is not None and self.arena[at.G_TIMEOUT_NS] != at.NEVER
        impatient = watched or self._router.period_ns > 0
        words = (at.U_END_NS,) if impatient else (at.U_END_NS, at.R_ASKED_NS)
        ends = [int(self.arena[self._base(index) + word]) for index in range(self._count) for word in words]
        last = at.G_LAST_CLIENT_NS if impatient and self._crowd else at.G_LAST_TURN_NS
        seen = 0 if self._crowd else int(self.arena[self._place["router"] + F_SEEN_NS])
        return max(*ends, int(self.arena[last]), seen)

    def usage(self, index: int) -> ReplicaUsage:
        """What one replica did."""
        return read.usage(self.arena[self._base(index) :][: at.REPLICA], at)

    def gaps(self) -> GapHistogram:
        """Gaps between tokens, by class."""
        classes = len(self._table.classes)
        counts = self.arena[self._place["gaps"] :][: classes * GAP_BINS]
        return read.gaps(counts, self.arena[self._place["sums"] :][: classes * 3])

    def log(self) -> list[tuple]:
        """Every step, in the order in which they ended; of steps that ended together, the one waited for longest."""
        if not self._logs:
            return []
        rows = np.concatenate(self._logs)
        return list(map(tuple, rows[np.lexsort((rows[:, 0], rows[:, 8], rows[:, 2])), :8].tolist()))
