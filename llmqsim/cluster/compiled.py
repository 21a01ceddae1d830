"""CompiledCluster: the whole run in the compiled engine, without a SimPy event, where nothing outside has to look in.

`why_not` says what a run has that the compiled engine does not know; the reference engine runs everything.
"""

from __future__ import annotations

import numpy as np

from llmqsim.clients import Clients
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.cost.lower import StepCost
from llmqsim.engine.compiled import NotCompiled, Replicas
from llmqsim.engine.deployment import Deployment
from llmqsim.policies.batching.continuous import Continuous
from llmqsim.policies.ordering import Fcfs
from llmqsim.policies.preemption import RecomputeNewest
from llmqsim.policies.routing import LeastOutstanding, RoundRobin
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.packed import PIECE_ROWS
from llmqsim.registry import name_of
from llmqsim.requests import COLUMNS, GIVEN, INDEX, UNSET, Outcome, RequestTable

KNOWN = {
    "engine.batching": ("batching", (Continuous,)),
    "engine.ordering": ("ordering", (Fcfs,)),
    "engine.preemption": ("preemption", (RecomputeNewest,)),
    "routing": ("routing", (RoundRobin, LeastOutstanding)),
}
"""scenario key -> (field of Deployment, policies that have a compiled form)"""


def why_not(table: RequestTable, deployment: Deployment, clients: Clients) -> str | None:
    """The first thing that the compiled engine has no form for, in the scenario's words; None if it knows everything."""
    if not isinstance(deployment.cost, StepCost):
        return "cost.model 'stations'"
    if deployment.cost.pipeline_stages > 1:
        return "pipeline_parallel_size above 1"
    for key, (field, forms) in KNOWN.items():
        policy = getattr(deployment, field)
        if type(policy) not in forms:
            return f"{key} '{name_of(field, policy)}'"
    if reason := _strange_loop(table, clients):
        return reason
    if clients.max_in_flight is not None:
        return "a cap on requests in flight"
    if clients.timeout_ns is not None:
        return "clients that give up"
    if _caches(deployment) and (reason := _strange_prefixes(table, deployment)):
        return reason
    if not clients.loops and np.any(table.intended_ns[1:] < table.intended_ns[:-1]):
        return "requests that are not in the order of their due times"
    return None


def _strange_loop(table: RequestTable, clients: Clients) -> str | None:
    """Closed loops are known as one loop that sends all rows, in their order."""
    if len(clients.loops) > 1:
        return "several closed loops"
    for loop in clients.loops:
        if not np.array_equal(loop.rows, np.arange(len(table))):
            return "a closed loop beside other traffic"
        if (table.arrival_ns != UNSET).any() or (table.intended_ns != UNSET).any():
            return "a closed loop whose requests have times of their own"
        if loop.drain_after is not None:
            return "a warm-up that is drained (run.warmup.drain)"
    return None


def _strange_prefixes(table: RequestTable, deployment: Deployment) -> str | None:
    """Shared blocks are known as blocks of prompts; where the host keeps what they lose, only the reference engine does."""
    if table.prefixes is None:
        return None
    if deployment.options.kv_offloading_bytes > 0:
        return "engine.kv_offloading_size with prompts that share prefixes"
    if (np.diff(table.prefixes.offsets) * deployment.options.block_size > table.prompt_tokens).any():
        return "prompts whose answers share prefixes, too"
    return None


def _caches(deployment: Deployment) -> bool:
    return deployment.options.enable_prefix_caching and deployment.kv_blocks is not None


class CompiledCluster:
    """One run's machinery, with the same face as Cluster. Raises NotCompiled from `run` with the table as it was."""

    def __init__(
        self, table: RequestTable, deployment: Deployment, keep_steps: bool = False, clients: Clients = Clients()
    ):
        self.table = table
        self.gaps = GapHistogram(len(table.classes))
        self.usage: tuple[ReplicaUsage, ...] = ()
        self.step_log: list[tuple] | None = [] if keep_steps else None
        self._deployment = deployment
        self._clients = clients
        refuse_unservable(table, deployment)

    def run(self, until_ns: int | None = None) -> int:
        """Run until nothing is left to do, or up to `until_ns`; return the time, ns."""
        deployment = self._deployment
        try:
            replicas = self._run(until_ns)
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

    def _run(self, until_ns: int | None) -> Replicas:
        deployment, clients = self._deployment, self._clients
        loop = clients.loops[0] if clients.loops else None
        in_turn = isinstance(deployment.routing, RoundRobin)
        replicas = Replicas(self.table, deployment, self.step_log is not None, _caches(deployment), loop)
        if loop is not None:
            self.table.open_rows(len(self.table))
            replicas.run_loop(loop, clients.turnaround_ns, in_turn, until_ns)
        else:
            self._serve(replicas, in_turn, until_ns)
            replicas.run_out(until_ns)
        return replicas

    def _serve(self, replicas: Replicas, in_turn: bool, until_ns: int | None) -> None:
        """Send the rows of an open loop: all at once, or, where the table is streamed, stretch by stretch of them.

        After each stretch the replicas are brought to the next row's time, and the rows that are over are packed.
        """
        table, rows, turn = self.table, len(self.table), 0
        stretch = PIECE_ROWS if table.streamed else rows
        for first in range(0, rows, stretch):
            end = min(first + stretch, rows)
            table.open_rows(end)
            if in_turn:
                turn = self._deal(first, end, turn, until_ns)
                replicas.offer(first, end)
            else:
                replicas.balance(end, until_ns)
            next_ns = int(table.intended_ns[end]) if end < rows else None
            if next_ns is not None and (until_ns is None or next_ns < until_ns):
                replicas.run_up_to(next_ns)
                table.pack_finished()

    def _deal(self, first: int, end: int, turn: int, until_ns: int | None) -> int:
        """Give the rows first:end their replicas in turn, beginning with `turn`; return the next turn.

        Round robin looks at nothing, so that they can have them before the clock gets there.
        """
        data = self.table.data[:, first:end]
        due_ns = data[INDEX["intended_ns"]]
        sent = data[INDEX["outcome"]] != Outcome.REJECTED
        if until_ns is not None:
            sent &= due_ns < until_ns
        turns = turn + np.cumsum(sent) - 1
        data[INDEX["replica"]] = np.where(sent, turns % self._deployment.replicas, -1)
        np.copyto(data[INDEX["arrival_ns"]], due_ns, where=sent)
        return turn + int(sent.sum())

    def _undo(self) -> None:
        """Take back what the run wrote."""
        self.table.unpack()
        if self._clients.loops:
            self.table.data[[INDEX["arrival_ns"], INDEX["intended_ns"]]] = UNSET
        for column in COLUMNS:
            if column.name not in GIVEN and column.name not in ("outcome", "reason"):
                self.table.data[INDEX[column.name]] = column.start
        outcome = self.table.data[INDEX["outcome"]]
        outcome[outcome != Outcome.REJECTED] = Outcome.UNFINISHED
