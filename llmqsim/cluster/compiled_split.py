"""CompiledSplitCluster: a run with a prefill and a decode pool in the compiled engine, without a SimPy event."""

from __future__ import annotations

from dataclasses import replace

from llmqsim.clients import Clients
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.cluster.fleet import DECODE, PREFILL, Fleet
from llmqsim.cost.lower import StepCost
from llmqsim.engine.compiled import NotCompiled
from llmqsim.engine.compiled.clients import are_plain
from llmqsim.engine.compiled.split import MOST_BYTES, SplitReplicas
from llmqsim.engine.deployment import Deployment
from llmqsim.policies.batching.continuous import Continuous
from llmqsim.policies.ordering import Fcfs
from llmqsim.policies.placement import Split
from llmqsim.policies.preemption import RecomputeNewest
from llmqsim.policies.routing import LeastOutstanding, RoundRobin
from llmqsim.records import GapHistogram, LinkUsage, ReplicaUsage
from llmqsim.registry import name_of
from llmqsim.requests import COLUMNS, GIVEN, INDEX, UNSET, HandoffTable, Outcome, RequestTable

FORMS = {
    "engine.batching": ("batching", (Continuous,)),
    "engine.ordering": ("ordering", (Fcfs,)),
    "engine.preemption": ("preemption", (RecomputeNewest,)),
    "routing": ("routing", (RoundRobin, LeastOutstanding)),
}
"""scenario key of a pool -> (field of Deployment, policies that have a compiled form)"""


def why_not(table: RequestTable, fleet: Fleet, clients: Clients) -> str | None:
    """The first thing that has no compiled form, in the scenario's words; None if all of it has."""
    roles = tuple(pool.role for pool in fleet.pools)
    if roles == (DECODE, PREFILL):
        return f"a decode pool before the prefill pool: write pools.{fleet.pools[1].name} first"
    if roles != (PREFILL, DECODE):
        return "pools other than a prefill and then a decode pool"
    if type(fleet.placement) is not Split:
        return f"placement '{name_of('placement', fleet.placement)}'"
    for pool in fleet.pools:
        if reason := _strange_pool(pool.deployment):
            return f"pools.{pool.name}.{reason}"
    if not fleet.pools[0].deployment.admission.open:
        return f"admission '{name_of('admission', fleet.pools[0].deployment.admission)}'"
    if clients.retries is not None:
        return "clients that try again"
    if not are_plain(table, replace(clients, max_in_flight=clients.max_in_flight if clients.loops else None)):
        return "pools with clients who give up, in several loops or in an order of their own"
    least, early = _condition(fleet)
    waits = clients.loops or clients.max_in_flight is not None
    if waits and least and not (early or fleet.terms.pushes):
        return "placement 'split' with min_prompt_tokens for clients that wait for answers, where handoff.transfer is 'pull'"
    if table.prefixes is not None:
        return "pools with prompts that share prefixes"
    if SplitReplicas.words(len(table), tuple(pool.deployment for pool in fleet.pools)) * 8 > MOST_BYTES:
        replicas = sum(pool.deployment.replicas for pool in fleet.pools)
        return f"{len(table):,} requests over {replicas:,} replicas in pools, which need too much memory"
    return None


def _condition(fleet: Fleet) -> tuple[int, bool]:
    """The shortest prompt that goes to the prefill pool, tokens, and whether placement asks for a decode replica first.

    Where no prompts share prefixes nothing of an arriving one is cached, so that all conditions are ones of length.
    """
    placement = fleet.placement
    early = placement.min_uncached_tokens > 0 or placement.min_uncached_share > 0
    return max(placement.min_prompt_tokens, placement.min_uncached_tokens), early


def _strange_pool(servers: Deployment) -> str | None:
    if not isinstance(servers.cost, StepCost):
        return "cost.model 'stations'"
    if servers.cost.pipeline_stages > 1:
        return "pipeline_parallel_size above 1"
    for key, (field, forms) in FORMS.items():
        policy = getattr(servers, field)
        if type(policy) not in forms:
            return f"{key} '{name_of(field, policy)}'"
    return None


class CompiledSplitCluster:
    """One run's machinery, with the same face as Cluster. Raises NotCompiled from `run` with the table as it was."""

    def __init__(self, table: RequestTable, fleet: Fleet, clients: Clients, keep_steps: bool = False):
        self.table = table
        self.gaps = GapHistogram(len(table.classes))
        self.usage: tuple[ReplicaUsage, ...] = ()
        self.links: tuple[LinkUsage, ...] = ()
        self.step_log: list[tuple] | None = [] if keep_steps else None
        self._fleet, self._clients = fleet, clients
        refuse_unservable(table, fleet)
        self._arrival_ns = None if clients.max_in_flight is None else table.arrival_ns.copy()

    def run(self, until_ns: int | None = None) -> int:
        """Run until nothing is left to do, or up to `until_ns`; return the time, ns."""
        fleet = self._fleet
        pools = tuple(pool.deployment for pool in fleet.pools)
        in_turn = tuple(isinstance(pool.routing, RoundRobin) for pool in pools)
        self.table.open_rows(len(self.table))
        if self._clients.max_in_flight is not None:  # held back in the client, a request does not know its arrival yet
            self.table.arrival_ns[self.table.outcome != Outcome.REJECTED] = UNSET
        self.table.handoffs = HandoffTable(len(self.table))
        lane = fleet.lanes[tuple(pool.name for pool in fleet.pools)]
        keep_steps = self.step_log is not None
        replicas = SplitReplicas(
            self.table, pools, fleet.terms, fleet.link, lane, in_turn, _condition(fleet), self._clients, keep_steps
        )
        if lacking := replicas.run(until_ns):
            self._undo()
            raise NotCompiled(lacking)
        end_ns = replicas.now_ns if until_ns is None else until_ns
        replicas.close(end_ns)
        self.gaps = replicas.gaps()
        self.usage = tuple(replicas.usage(index) for index in range(sum(pool.replicas for pool in pools)))
        self.links = replicas.links()
        if self.step_log is not None:
            self.step_log = replicas.log()
        return end_ns

    def _undo(self) -> None:
        """Take back what the run wrote."""
        self.table.handoffs = None
        self.table.unpack()
        if self._arrival_ns is not None:
            self.table.arrival_ns[:] = self._arrival_ns
        if self._clients.loops:
            self.table.data[[INDEX["arrival_ns"], INDEX["intended_ns"]]] = UNSET
        for column in COLUMNS:
            if column.name not in GIVEN and column.name not in ("outcome", "reason"):
                self.table.data[INDEX[column.name]] = column.start
        outcome = self.table.data[INDEX["outcome"]]
        outcome[outcome != Outcome.REJECTED] = Outcome.UNFINISHED
