"""The compiled engine: the reference engine's results, byte for byte, for the built-in policies that it knows.

`Replicas` packs a deployment into the arena (world/), runs the kernels, and unpacks what they wrote. Read `replica.py`
first (from event to event), then `step/` (form and commit a step, row by row) and `group/` (the same, with all who decode
as one).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmqsim import jit
from llmqsim.clients import Loop
from llmqsim.engine.compiled import batchers, entries, orders, read, victims
from llmqsim.engine.compiled.clients import Crowd
from llmqsim.engine.compiled.prefix import Keys, number_keys
from llmqsim.engine.compiled.routers.forms import Router
from llmqsim.engine.compiled.world.blocks import HOST_ENDS, UNHASHED, Node
from llmqsim.engine.compiled.world.books import GapSum
from llmqsim.engine.compiled.world.clients import Turn
from llmqsim.engine.compiled.world.limits import (
    ASK,
    CACHED_TWICE,
    DONE,
    LAST_TIME,
    LONGEST_STEP,
    MORE_SLOTS,
    NEVER,
    NO_LIMIT,
    STUCK,
    TOO_LONG,
)
from llmqsim.engine.compiled.world.queue import MARKS, NOBODY_IN_LINE, NOT_DELIVERED, NOT_LATE, Entry
from llmqsim.engine.compiled.world.replica import GAPS, Replica
from llmqsim.engine.compiled.world.request import Request
from llmqsim.engine.compiled.world.router import Report, Since
from llmqsim.engine.compiled.world.router import Router as RouterRecord
from llmqsim.engine.compiled.world.run import LOG_COLUMNS, Run, Target
from llmqsim.engine.compiled.world.step import Drafted, Step
from llmqsim.engine.deployment import Deployment
from llmqsim.errors import InvariantError
from llmqsim.kv import prefix as prefix_pool
from llmqsim.kv.pool import KvPool
from llmqsim.policies.protocol import FixedKeys
from llmqsim.records import GAP_BINS, GapHistogram, ReplicaUsage
from llmqsim.requests import RequestTable
from llmqsim.units import to_ns

END_OF_TIME = NEVER - 1
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
        self.run = Run(self.arena, 0)
        self._replicas = [Replica(self.arena, self._first + index * self._stride) for index in range(self._count)]
        self._set_globals(servers, keep_steps, caching)
        router.fill(self.arena, self._place, floats=len(servers.cost.costs) + 1)
        self._router_record = RouterRecord(self.arena, self._place["router"])
        self._kernel = entries.kernel_of(looped=loop is not None, crowded=crowd is not None)
        for index, replica in enumerate(self._replicas):
            self._set_replica(index, replica)
        if self._keys is not None:
            self._set_keys(self._keys)
        if self._fixed is not None:
            self._set_queue(self._fixed)

    def _layout(self, servers: Deployment, keep_steps: bool, clients: int) -> int:
        """Place the regions; return the words needed."""
        numbers = self._keys.numbers if self._keys else 0
        classes, slots, block_size = len(self._table.classes), self._slots, servers.options.block_size
        sizes = {
            "run": Run.words,
            "next": self._count,
            "outstanding": self._count,
            "gaps": classes * GAP_BINS,
            "sums": classes * GapSum.words,
            "log": LOG_ROWS * LOG_COLUMNS if keep_steps else 0,
            "turns": clients * Turn.words,
            "due": clients,
            "answers": len(self._table) if self._router.listens else slots,
            "draft": 3 * slots * Drafted.words,  # a row may be taken back and given again
            "scratch": 6 * slots,
            "marks": len(self._table) * MARKS if orders.needs_rows(self._batcher.order) else 0,
            "targets": classes * Target.words,
            "times": victims.longest(self._table) + 2 if self._asks_times(servers) else 0,
            "queue": len(self._table) * Entry.words * orders.entries(self._batcher.order) if self._fixed else 0,
            **(self._crowd.sizes() if self._crowd else {}),
            **self._router.sizes(),
            "prefix": len(self._keys.kept) if self._keys else 0,
            "prefix_ids": int(self._keys.kept[-1]) if self._keys else 0,
        }
        self._place, self._words, end = {}, sizes, 0
        for name, words in sizes.items():
            self._place[name] = end
            end += words
        self._parts, stride = {}, Replica.words
        parts = {
            "ring": self._ring * (Step.words + slots),
            "order": 3 * slots,  # who has left keeps a place until the ranks are closed
            **dict.fromkeys(("stack", "swaps", "free", "ends", "ending", "kept", "prefill"), slots),
            "gaps": 2 * GAPS,
            "nodes": self._nodes(slots) * Node.words,
            "keys": numbers,
            "host_keys": numbers if self._host_blocks else 0,
            "residues": block_size,
            "classes": classes,
            **dict.fromkeys(orders.OF_TENANTS, self._tenants),
            "slots": slots * Request.words,
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
        self.run.set(
            replicas=self._count,
            rows=len(self._table),
            before_ns=to_ns(servers.host.request_before_s),
            after_ns=to_ns(servers.host.request_after_s),
            max_num_seqs=options.max_num_seqs,
            budget=options.max_num_batched_tokens if servers.batching.has_token_budget else NO_LIMIT,
            keeps_slots=servers.batching.keeps_slots,
            preempted_go_first=servers.ordering.preempted_go_first,
            draft=place["draft"],
            scratch=place["scratch"],
            block_size=options.block_size,
            chunked=options.enable_chunked_prefill,
            whole_prompt=options.scheduler_reserve_full_isl,
            threshold=options.long_prefill_token_threshold,
            watermark=servers.watermark_blocks,
            in_flight=options.in_flight if servers.cost.pipeline_stages == 1 else 1,
            stages=servers.cost.pipeline_stages,
            ring=self._ring,
            caching=caching,
            unhashed_first=options.unhashed_blocks_first,
            host_blocks=self._host_blocks,
            looks_again=not isinstance(self._batcher.order, orders.Fixed),
            tenants=self._tenants,
            marks=place["marks"],
            targets=place["targets"],
            prefill_ns=place["times"],
            **victims.fields(servers),
            block_bytes=link.block_bytes,
            copy_ns=link.per_block_ns,
            link=len(servers.cost.costs),
            cached_percent=servers.cost.cached_read_percent,
            near_admissions=prefix_pool.NEAR_ADMISSIONS,
            cold_ns=to_ns(servers.host.cold_step_s),
            longest=options.max_model_len or NO_LIMIT,
            classes=len(self._table.classes),
            slots=self._slots,
            next_ns=place["next"],
            outstanding=place["outstanding"],
            in_turn=self._router.form.in_turn,
            router=place["router"],
            answers=place["answers"] if self._router.listens else 0,
            gaps=place["gaps"],
            gap_sums=place["sums"],
            log=place["log"],
            log_rows=LOG_ROWS if keep_steps else 0,
            first_replica=self._first,
            stride=self._stride,
            step_words=Step.words + self._slots,
        )
        self._region("targets")[:] = victims.targets(self._table)
        if self._words["times"]:
            self._set_times(servers)

    @staticmethod
    def _asks_times(servers: Deployment) -> bool:
        return victims.needs_times(servers.preemption) or orders.needs_times(servers.ordering)

    def _region(self, name: str) -> np.ndarray:
        return self.arena[self._place[name] :][: self._words[name]]

    def _set_times(self, servers: Deployment) -> None:
        """What policies ask that reckon with time: prompts of any length alone, the host's link; corrected predictions."""
        from llmqsim.engine.costs.kernels import FINE, LONGEST_NS, fill_prefill_ns

        cost, budget = servers.cost, servers.options.max_num_batched_tokens
        self.run.re_estimate, self.run.link_rate = self._table.re_estimate, servers.link.bytes_per_s
        if not fill_prefill_ns(cost.costs, cost.params, cost.cached_read_percent, budget, self._region("times")):
            raise NotCompiled(f"a prompt alone takes more than {LONGEST_NS:,} ns")
        longest, order = self._words["times"], self._batcher.order
        steps = [(self.run.decode_ns, self.run.decode_token)]
        if isinstance(order, orders.GoodputFirst):
            steps.append((order.decode_ns, order.decode_token))
        for base_ns, per_token in steps:
            if max(per_token * longest, longest * (base_ns + per_token * longest // FINE)) > LONGEST_NS:
                raise NotCompiled(f"an answer alone takes more than {LONGEST_NS:,} ns")

    def _set_replica(self, index: int, replica: Replica) -> None:
        base, slots, usable = self._base(index), self._slots, self._usable
        parts = {name: base + offset for name, offset in self._parts.items()}
        replica.set(
            index=index,
            form_ns=NEVER,
            deliver_ns=NEVER,
            deliver_row=-1,
            last_commit_ns=-2,  # before any time, and not that of a slot without a token (-1)
            usable_blocks=usable,
            free_blocks=usable,
            free_slots=slots,
            host_free=self._swap_blocks,
            cold_steps=self._cold_steps,
            rejoined=NOBODY_IN_LINE,
            late=NOBODY_IN_LINE,
            last_sent=-1,
            oldest_row=-1,
            retry_ns=NEVER,
            full_since=-1,
            **parts,
        )
        for first in range(parts["ring"], parts["order"], self.run.step_words):
            Step(self.arena, first).samples = first + Step.words
        replica.top.first = replica.timers.first = replica.starved.first = NOBODY_IN_LINE
        for first in (replica.first_of, replica.rest_of):
            self.arena[first:][: self._tenants] = NOBODY_IN_LINE
        ends, host, first = (Node(self.arena, replica.nodes + node * Node.words) for node in range(3))
        host.next = host.previous = replica.nodes_used = HOST_ENDS
        if usable:  # one run of blocks that hold nothing
            ends.next = ends.previous = replica.nodes_used = HOST_ENDS + 1
            first.key, first.count = UNHASHED, usable
        self.arena[replica.free :][:slots] = np.arange(slots)[::-1]
        self.arena[self._place["next"] + index] = NEVER

    def _set_queue(self, fixed: FixedKeys) -> None:
        """Entries of all rows, in no queue yet."""
        self.run.set(sorted=1, queue=self._place["queue"], slope=fixed.slope)
        entries = self._entries()
        for name in ("next_row", "slot", "child", "sibling"):
            entries[name][:] = -1
        entries["later"][:] = NOT_LATE
        entries["level"][:], entries["base"][:] = fixed.level, fixed.base_ns

    def _entries(self) -> dict[str, np.ndarray]:
        return Entry.columns(self._region("queue")[: len(self._table) * Entry.words])

    def _set_keys(self, keys: Keys) -> None:
        from llmqsim.engine.compiled.prefix import copies, numbering

        place = self._place["prefix"]
        self.arena[place:][: len(keys.kept)] = keys.kept
        self.run.set(prefix=place, prefix_ids=self._place["prefix_ids"], warm=keys.warm)
        numbering.pack(keys.offsets, keys.ids, self.arena)
        if keys.warm:
            copies.warm_all(self.arena)

    def _base(self, index: int) -> int:
        return self._first + index * self._stride

    # Running.

    def offer(self, first: int, end: int) -> None:
        """The rows first:end have their replicas (table.replica, -1: not sent): from now they can be delivered."""
        self.run.routed = end
        if self._fixed is not None:
            for replica in self._replicas:
                self._chain(replica, first, end)
        self._call(entries.OFFER, first)

    def _chain(self, replica: Replica, first: int, end: int) -> None:
        """The rows first:end of a replica, in the order in which they are sent, after those before."""
        rows = first + np.flatnonzero(self._table.replica[first:end] == replica.index)
        if len(rows):
            next_row = self._entries()["next_row"]
            if replica.last_sent >= 0:
                next_row[replica.last_sent] = rows[0]
            else:
                replica.oldest_row = rows[0]
            next_row[rows[:-1]] = rows[1:]
            replica.last_sent = rows[-1]

    @property
    def counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Requests in flight, int64[replicas]; reports, and what was sent since, int64[replicas, words]: as they change."""
        reports, since = self._region("router_reports"), self._region("router_since")
        return self._region("outstanding"), reports.reshape(-1, Report.words), since.reshape(-1, Since.words)

    def send(self, end: int, until_ns: int | None, ask: Callable[[int], int] | None = None) -> None:
        """Send each row up to `end` to the replica that the router chooses when it is due, up to `until_ns`.

        ask : where a row goes, for a policy without a compiled form.
        """
        self.run.rows = end
        self._ask = ask
        self._call(entries.SEND, END_OF_TIME if until_ns is None else until_ns)

    def run_up_to(self, now_ns: int) -> None:
        """Bring every replica to where a router finds it that looks at `now_ns`."""
        self._call(entries.ADVANCE, now_ns, now_ns)

    def run_loop(self, loop: Loop, turnaround_ns: int, until_ns: int | None) -> None:
        """Clients send the rows, each the next one when its answer has come."""
        clients = np.arange(loop.clients)
        starts_ns = clients * loop.ramp_up_ns // loop.clients
        if loop.clients * loop.ramp_up_ns >= 1 << 63:  # the product does not fit
            starts_ns = [client * loop.ramp_up_ns // loop.clients for client in range(loop.clients)]
        self.run.set(
            turns=self._place["turns"],
            turns_size=loop.clients,
            due=self._place["due"],
            answers=self._place["answers"],
            stop_ns=NEVER if loop.stop_ns is None else loop.stop_ns,
            turnaround_ns=turnaround_ns,
        )
        turns = Turn.columns(self._region("turns"))  # in order of time: a heap already
        turns["time_ns"][:], turns["client"][:] = starts_ns, clients
        self._call(entries.SEND, END_OF_TIME if until_ns is None else until_ns)

    def run_crowd(self, until_ns: int | None) -> None:
        """Clients of all kinds send what they have to."""
        self._entries()["slot"][:] = NOT_DELIVERED
        self.run.answers = self._place["answers"]
        self._crowd.fill(self.arena, self._place)
        self._call(entries.SEND, END_OF_TIME if until_ns is None else until_ns)

    def run_out(self, until_ns: int | None) -> None:
        """Run every replica until it has nothing left to do, or up to all that is before `until_ns`."""
        commits, rest = (END_OF_TIME, END_OF_TIME) if until_ns is None else (until_ns - 1, until_ns)
        self._call(entries.ADVANCE, commits, rest)

    def _call(self, what: int, *numbers: int) -> None:
        """Call the kernel of this kind of clients: it does `what` (compiled/entries), until it is done."""
        jit.about_to_call(self._kernel)
        first, last = (*numbers, 0, 0)[:2]
        while True:
            code = self._kernel(
                self._batcher, self._kind, self._table.data, self.arena, self._costs, self._params, what, first, last
            )
            self._drain()
            if code == DONE:
                return
            if code == ASK:
                self._router_record.choice = self._ask(self.run.next_row)
            if code == CACHED_TWICE:
                raise NotCompiled("a request that was swapped has to recompute, and its blocks may be cached twice")
            if code == TOO_LONG:
                raise NotCompiled(f"a step takes more than {LONGEST_STEP:,} ns, or the clock passes {LAST_TIME:,} ns")
            if code == MORE_SLOTS:
                raise MoreSlots
            if code == STUCK:
                raise InvariantError("compiled engine: a replica with requests can't form a step")

    def _drain(self) -> None:
        rows = self.run.logged
        if rows:
            log = self.arena[self.run.log :][: rows * LOG_COLUMNS]
            self._logs.append(log.reshape(rows, LOG_COLUMNS).copy())
            self.run.logged = 0

    def close(self, now_ns: int) -> None:
        """The clock stops: settle what is still here."""
        self._call(entries.CLOSE, now_ns)

    # What is left behind.

    @property
    def last_ns(self) -> int:
        """When the last step ended, a policy wanted to be asked again, or a client looked whether there is more to send."""
        watched = self._crowd is not None and self.run.timeout_ns != NEVER
        impatient = watched or self._router.period_ns > 0
        ends = max(replica.usage.end_ns for replica in self._replicas)
        asked = 0 if impatient else max(replica.asked_ns for replica in self._replicas)
        last = self.run.last_client_ns if impatient and self._crowd else self.run.last_turn_ns
        seen = 0 if self._crowd else self._router_record.seen_ns
        return max(ends, asked, last, seen)

    def usage(self, index: int) -> ReplicaUsage:
        """What one replica did."""
        return read.usage(self._replicas[index].usage)

    def gaps(self) -> GapHistogram:
        """Gaps between tokens, by class."""
        classes = len(self._table.classes)
        counts = self.arena[self._place["gaps"] :][: classes * GAP_BINS]
        return read.gaps(counts, self._region("sums"))

    def log(self) -> list[tuple]:
        """Every step, in the order in which they ended; of steps that ended together, the one waited for longest."""
        if not self._logs:
            return []
        rows = np.concatenate(self._logs)
        return list(map(tuple, rows[np.lexsort((rows[:, 0], rows[:, 8], rows[:, 2])), :8].tolist()))
