"""A run in the compiled engine whose requests come and go (passing.py): open traffic to replicas of one kind."""

from __future__ import annotations

from llmqsim.clients import Clients
from llmqsim.cluster.compiled import CompiledCluster, why_not
from llmqsim.cluster.fleet import Fleet
from llmqsim.engine.compiled.routers.forms import Router
from llmqsim.engine.deployment import Deployment
from llmqsim.passing import PassingTable
from llmqsim.policies.batching.continuous import Continuous
from llmqsim.policies.ordering import Fcfs
from llmqsim.policies.routing import LeastOutstanding, RoundRobin
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.registry import name_of
from llmqsim.requests import RequestTable


def why_all(servers: Deployment | Fleet, sample: RequestTable) -> str | None:
    """What of these servers keeps something of each request, so that a run needs memory for all; None: nothing.

    sample : some of the requests.
    """
    if not isinstance(servers, Deployment):
        return "pools"
    if type(servers.batching) is not Continuous:
        return f"engine.batching '{name_of('batching', servers.batching)}'"
    if type(servers.ordering) is not Fcfs:
        return f"engine.ordering '{name_of('ordering', servers.ordering)}'"
    if type(servers.routing) not in (RoundRobin, LeastOutstanding) or servers.signal_age_ns:
        return f"routing '{name_of('routing', servers.routing)}'"
    if not servers.admission.open:
        return "admission"
    return why_not(sample, servers, Clients())


class PassingCluster(CompiledCluster):
    """One run's machinery. The table's rows are refused as they are drawn, and its results are folded as they end.

    Raises NotCompiled or MoreSlots from `run`, with the table spent.
    """

    def __init__(self, table: PassingTable, deployment: Deployment):
        self.table = table
        self.gaps = GapHistogram(1)
        self.usage: tuple[ReplicaUsage, ...] = ()
        self.step_log = None
        self._deployment, self._clients = deployment, Clients()
        self._router = Router(deployment, table)
        self._sending = None

    @property
    def _are_plain(self) -> bool:
        return True

    def _undo(self) -> None:
        """Rows that are gone don't come back: whoever asked has to start again, with all of them."""
        raise Spent


class Spent(Exception):
    """The run needs more slots or another engine, and its first rows are gone."""
