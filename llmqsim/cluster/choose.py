"""Which engine runs, and what every run leaves behind, whichever it was."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.clients import Clients
from llmqsim.cluster.compiled import CompiledCluster, why_not
from llmqsim.cluster.fleet import Fleet
from llmqsim.cluster.limits import refuse_too_large
from llmqsim.engine.compiled import NotCompiled
from llmqsim.engine.deployment import Deployment
from llmqsim.records import GapHistogram, LinkUsage, ReplicaUsage
from llmqsim.requests import RequestTable


@dataclass(frozen=True)
class Finished:
    """A run that is over; its marks are in the request table. engine : "compiled" or "reference"."""

    engine: str
    end_ns: int
    gaps: GapHistogram
    usage: tuple[ReplicaUsage, ...]
    step_log: list[tuple] | None
    fallback: str | None = None
    """what the compiled engine lacked, where "auto" took the reference engine"""
    links: tuple[LinkUsage, ...] = ()
    """between pools"""


def run(
    engine: str,
    table: RequestTable,
    servers: Deployment | Fleet,
    clients: Clients,
    keep_steps: bool,
    until_ns: int | None,
) -> Finished:
    """Run with the engine asked for. "auto": the compiled one if it knows everything that this run has.

    Raises NotCompiled when the compiled engine was asked for and does not, ScenarioError for a run that can't fit.
    """
    if (only := Fleet.of(servers).only) is not None:
        refuse_too_large(table, only, clients, keep_steps, until_ns)
    fallback = None
    if engine != "reference":
        try:
            return _compiled(table, servers, clients, keep_steps, until_ns)
        except NotCompiled as lacking:
            if engine == "compiled":
                raise
            fallback = str(lacking)
    from llmqsim.cluster.cluster import Cluster  # most runs have no need of the reference engine, nor of SimPy

    table.open_rows(len(table))
    cluster = Cluster(table, servers, keep_steps, clients)
    end_ns = cluster.run(until_ns)
    table.close()
    usage = tuple(replica.usage for replica in cluster.replicas)
    return Finished("reference", end_ns, cluster.gaps, usage, cluster.step_log, fallback, cluster.links)


def _compiled(
    table: RequestTable, servers: Deployment | Fleet, clients: Clients, keep_steps: bool, until_ns: int | None
) -> Finished:
    fleet = Fleet.of(servers)
    deployment = fleet.only
    if deployment is None:
        return _compiled_split(table, fleet, clients, keep_steps, until_ns)
    reason = why_not(table, deployment, clients)
    if reason is not None:
        raise NotCompiled(reason)
    cluster = CompiledCluster(table, deployment, keep_steps, clients)
    end_ns = cluster.run(until_ns)
    table.close()
    return Finished("compiled", end_ns, cluster.gaps, cluster.usage, cluster.step_log)


def _compiled_split(
    table: RequestTable, fleet: Fleet, clients: Clients, keep_steps: bool, until_ns: int | None
) -> Finished:
    from llmqsim.cluster import compiled_split

    reason = compiled_split.why_not(table, fleet, clients)
    if reason is not None:
        raise NotCompiled(reason)
    cluster = compiled_split.CompiledSplitCluster(table, fleet, clients, keep_steps)
    end_ns = cluster.run(until_ns)
    table.close()
    return Finished("compiled", end_ns, cluster.gaps, cluster.usage, cluster.step_log, links=cluster.links)
