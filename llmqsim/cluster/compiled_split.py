"""CompiledSplitCluster: a run with a prefill and a decode pool in the compiled engine, without a SimPy event."""

from __future__ import annotations

import numpy as np

from llmqsim.clients import Clients
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.cluster.fleet import DECODE, PREFILL, Fleet
from llmqsim.cost.lower import StepCost
from llmqsim.engine.compiled import NotCompiled
from llmqsim.engine.compiled.split import MOST_BYTES, SplitReplicas
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.handoff import PULL
from llmqsim.policies.batching.continuous import Continuous
from llmqsim.policies.ordering import Fcfs
from llmqsim.policies.placement import Split
from llmqsim.policies.preemption import RecomputeNewest
from llmqsim.policies.routing import LeastOutstanding, RoundRobin
from llmqsim.records import GapHistogram, LinkUsage, ReplicaUsage
from llmqsim.registry import name_of
from llmqsim.requests import COLUMNS, GIVEN, INDEX, HandoffTable, Outcome, RequestTable

FORMS = {
    "engine.batching": ("batching", (Continuous,)),
    "engine.ordering": ("ordering", (Fcfs,)),
    "engine.preemption": ("preemption", (RecomputeNewest,)),
    "routing": ("routing", (RoundRobin, LeastOutstanding)),
}
"""scenario key of a pool -> (field of Deployment, policies that have a compiled form)"""


def why_not(table: RequestTable, fleet: Fleet, clients: Clients) -> str | None:
    """The first thing that has no compiled form, in the scenario's words; None if all of it has."""
    if tuple(pool.role for pool in fleet.pools) != (PREFILL, DECODE):
        return "pools other than a prefill and then a decode pool"
    if type(fleet.placement) is not Split:
        return f"placement '{name_of('placement', fleet.placement)}'"
    if fleet.placement.is_conditional:
        return "placement 'split' with a condition"
    if fleet.terms.transfer != PULL:
        return f"handoff.transfer '{fleet.terms.transfer}'"
    if fleet.terms.lease_ns is not None:
        return "handoff.lease"
    for pool in fleet.pools:
        if reason := _strange_pool(pool.deployment):
            return f"pools.{pool.name}.{reason}"
    if not fleet.pools[0].deployment.admission.open:
        return f"admission '{name_of('admission', fleet.pools[0].deployment.admission)}'"
    if clients.loops or clients.max_in_flight is not None or clients.timeout_ns is not None:
        return "pools with clients that wait for answers or give up"
    if table.prefixes is not None:
        return "pools with prompts that share prefixes"
    if np.any(table.intended_ns[1:] < table.intended_ns[:-1]):
        return "requests that are not in the order of their due times"
    replicas = sum(pool.deployment.replicas for pool in fleet.pools)
    if SplitReplicas.words(len(table), replicas) * 8 > MOST_BYTES:
        return f"{len(table):,} requests over {replicas:,} replicas in pools, which need too much memory"
    return None


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

    def __init__(self, table: RequestTable, fleet: Fleet, keep_steps: bool = False):
        self.table = table
        self.gaps = GapHistogram(len(table.classes))
        self.usage: tuple[ReplicaUsage, ...] = ()
        self.links: tuple[LinkUsage, ...] = ()
        self.step_log: list[tuple] | None = [] if keep_steps else None
        self._fleet = fleet
        refuse_unservable(table, fleet)

    def run(self, until_ns: int | None = None) -> int:
        """Run until nothing is left to do, or up to `until_ns`; return the time, ns."""
        fleet = self._fleet
        pools = tuple(pool.deployment for pool in fleet.pools)
        in_turn = tuple(isinstance(pool.routing, RoundRobin) for pool in pools)
        self.table.open_rows(len(self.table))
        self.table.handoffs = HandoffTable(len(self.table))
        lane = fleet.lanes[tuple(pool.name for pool in fleet.pools)]
        replicas = SplitReplicas(self.table, pools, fleet.terms, fleet.link, lane, in_turn, self.step_log is not None)
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
        for column in COLUMNS:
            if column.name not in GIVEN and column.name not in ("outcome", "reason"):
                self.table.data[INDEX[column.name]] = column.start
        outcome = self.table.data[INDEX["outcome"]]
        outcome[outcome != Outcome.REJECTED] = Outcome.UNFINISHED
