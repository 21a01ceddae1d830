"""CompiledCluster: the whole run in the compiled engine, without a SimPy event, where nothing outside has to look in.

`why_not` says what a run has that the compiled engine does not know; the reference engine runs everything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmqsim.clients import Clients
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.cluster.asked import Asked
from llmqsim.cluster.fleet import Fleet
from llmqsim.cost.lower import StepCost
from llmqsim.engine.compiled import MoreSlots, NotCompiled, Replicas, batchers, orders
from llmqsim.engine.compiled.clients import Crowd, are_plain
from llmqsim.engine.compiled.routers.doors import DOORS
from llmqsim.engine.compiled.routers.forms import ROUTERS, Router
from llmqsim.engine.compiled.victims import VICTIMS
from llmqsim.engine.deployment import Deployment
from llmqsim.packed import PIECE_ROWS
from llmqsim.policies.ordering import Fcfs
from llmqsim.policies.protocol import FixedKeys, Routing
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.registry import name_of
from llmqsim.requests import COLUMNS, GIVEN, INDEX, UNSET, Outcome, Reason, RequestTable

KNOWN = {
    "engine.preemption": ("preemption", tuple(VICTIMS)),
    "admission": ("admission", tuple(DOORS)),
}
"""scenario key -> (field of Deployment, policies that have a compiled form)"""


PLAIN = Clients()
SENDING = [INDEX["arrival_ns"], INDEX["intended_ns"]]


def why_not(table: RequestTable, deployment: Deployment, clients: Clients) -> str | None:
    """The first thing that the compiled engine has no form for, in the scenario's words; None if it knows everything."""
    if not isinstance(deployment.cost, StepCost):
        return "cost.model 'stations'"
    if not batchers.knows(deployment.batching):
        return f"engine.batching '{name_of('batching', deployment.batching)}'"
    if deployment.ordering.preempts and not batchers.takes_ranks(deployment.batching):
        return f"engine.ordering '{name_of('ordering', deployment.ordering)}', which preempts, beside this engine.batching"
    if deployment.ordering.swaps_ahead:
        return f"engine.ordering '{name_of('ordering', deployment.ordering)}' with proactive swapping"
    if not orders.knows(deployment.ordering, table):
        return f"engine.ordering '{name_of('ordering', deployment.ordering)}'"
    for key, (field, forms) in KNOWN.items():
        policy = getattr(deployment, field)
        if type(policy) not in forms:
            return f"{key} '{name_of(field, policy)}'"
    if type(deployment.routing) not in ROUTERS and (reason := _cannot_ask(table, deployment, clients)):
        return f"routing '{name_of('routing', deployment.routing)}' {reason}"
    if deployment.late_binding is not None:
        return "routing.late_binding"
    if clients.retries is not None:
        return "clients that try again"
    if _caches(deployment) and (reason := _strange_prefixes(table, deployment)):
        return reason
    return None


def _strange_prefixes(table: RequestTable, deployment: Deployment) -> str | None:
    """Shared blocks are known as blocks of prompts; what is cached in the host's memory, without preemption by swap."""
    if deployment.offload_blocks and deployment.preemption.swaps:
        return "engine.kv_offloading_size beside preemption by swap"
    if table.prefixes is None:
        return None
    if (np.diff(table.prefixes.offsets) * deployment.options.block_size > table.prompt_tokens).any():
        return "prompts whose answers share prefixes, too"
    return None


def _cannot_ask(table: RequestTable, deployment: Deployment, clients: Clients) -> str | None:
    """Why a router of one's own can't be asked from outside, when a request is due."""
    if type(deployment.routing).finished is not Routing.finished:
        return "of one's own, which hears of ends"
    if clients.loops or not are_plain(table, clients):
        return "of one's own, with clients that wait or give up"
    return None if deployment.admission.open else "of one's own, behind admission"


def _caches(deployment: Deployment) -> bool:
    return deployment.options.enable_prefix_caching and deployment.kv_blocks is not None


class CompiledCluster:
    """One run's machinery, with the same face as Cluster. Raises NotCompiled from `run` with the table as it was."""

    def __init__(
        self, table: RequestTable, deployment: Deployment, keep_steps: bool = False, clients: Clients = PLAIN
    ):
        self.table = table
        self.gaps = GapHistogram(len(table.classes))
        self.usage: tuple[ReplicaUsage, ...] = ()
        self.step_log: list[tuple] | None = [] if keep_steps else None
        self._deployment = deployment
        self._clients = clients
        refuse_unservable(table, deployment)
        Fleet.of(deployment).draw(table)
        self._router = Router(deployment, table)
        # a copy of what clients that are not plain write of what the workload has
        self._sending = None if self._are_plain else table.data[SENDING]

    @property
    def _are_plain(self) -> bool:
        """Those of a closed loop are, unless some may be refused, or the order matters in which they reach replicas."""
        looks = self._clients.loops and (self._router.reports or not self._deployment.admission.open)
        return are_plain(self.table, self._clients) and not looks

    def run(self, until_ns: int | None = None) -> int:
        """Run until nothing is left to do, or up to `until_ns`; return the time, ns."""
        deployment = self._deployment
        slots, replicas = deployment.options.max_num_seqs, None
        while replicas is None:
            try:
                replicas = self._run(until_ns, slots)
            except MoreSlots:
                self._undo()
                slots *= 2
            except NotCompiled:
                self._undo()
                raise
        end_ns = replicas.last_ns if until_ns is None else until_ns
        replicas.close(end_ns)
        self.gaps = replicas.gaps()
        self.usage = tuple(replicas.usage(index) for index in range(deployment.replicas))
        if self.step_log is not None:
            self.step_log = replicas.log()
        return end_ns

    def _run(self, until_ns: int | None, slots: int) -> Replicas:
        deployment, clients = self._deployment, self._clients
        crowd = None if self._are_plain else Crowd(self.table, clients)
        loop = clients.loops[0] if clients.loops and crowd is None else None
        fixed, caching = self._fixed_keys(crowd is not None), _caches(deployment)
        log = self.step_log is not None
        replicas = Replicas(self.table, deployment, self._router, log, caching, loop, fixed, slots, crowd)
        if clients.loops or crowd is not None:
            self.table.open_rows(len(self.table))
        if crowd is not None:
            replicas.run_crowd(until_ns)
        elif loop is not None:
            replicas.run_loop(loop, clients.turnaround_ns, until_ns)
        else:
            ask = Asked(self.table, deployment, replicas).choose if self._router.asks else None
            self._serve(replicas, until_ns, ask)
            replicas.run_out(until_ns)
        return replicas

    def _fixed_keys(self, must_sort: bool) -> FixedKeys | None:
        """Keys of the waiting queue, None where the order of arrival is enough."""
        ordering = self._deployment.ordering
        must_sort = must_sort or batchers.needs_sorted_queue(self._deployment.batching)
        if type(ordering) is Fcfs and not must_sort:
            return None
        return orders.keys_of(ordering, self.table)

    def _serve(self, replicas: Replicas, until_ns: int | None, ask: Callable[[int], int] | None) -> None:
        """Send the rows of an open loop: all at once, or, where the table is streamed, stretch by stretch of them.

        After each stretch the replicas are brought to the next row's time, and the rows that are over are packed.
        """
        table, rows, turn = self.table, len(self.table), 0
        stretch = PIECE_ROWS if table.streamed else rows
        for first in range(0, rows, stretch):
            end = min(first + stretch, rows)
            table.open_rows(end)
            if self._router.is_blind:
                turn = self._deal(first, end, turn, until_ns)
                replicas.offer(first, end)
            else:
                replicas.send(end, until_ns, ask)
            next_ns = int(table.intended_ns[end]) if end < rows else None
            if next_ns is not None and (until_ns is None or next_ns < until_ns):
                replicas.run_up_to(next_ns)
                table.pack_finished()

    def _deal(self, first: int, end: int, turn: int, until_ns: int | None) -> int:
        """Give the rows first:end their replicas, where `turn` were sent before them; return how many are then.

        A router that looks at no replica can do so before the clock gets there.
        """
        data = self.table.data[:, first:end]
        due_ns = data[INDEX["intended_ns"]]
        sent = data[INDEX["outcome"]] != Outcome.REJECTED
        if until_ns is not None:
            sent &= due_ns < until_ns
        data[INDEX["replica"]] = -1
        data[INDEX["replica"], sent] = self._router.deal(first + np.flatnonzero(sent), turn)
        np.copyto(data[INDEX["arrival_ns"]], due_ns, where=sent)
        return turn + int(sent.sum())

    def _undo(self) -> None:
        """Take back what the run wrote."""
        self.table.unpack()
        if self._sending is not None:
            self.table.data[SENDING] = self._sending
        elif self._clients.loops:
            self.table.data[SENDING] = UNSET
        for column in COLUMNS:
            if column.name not in GIVEN and column.name not in ("outcome", "reason"):
                self.table.data[INDEX[column.name]] = column.start
        self.table.data[INDEX["outcome"]] = Outcome.UNFINISHED
        self.table.data[INDEX["reason"]] = Reason.NONE
        refuse_unservable(self.table, self._deployment)
