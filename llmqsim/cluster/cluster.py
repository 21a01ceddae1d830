"""Cluster: wires clients → router → replicas and runs the clock. Everything that a run mutates lives here."""

from __future__ import annotations

import simpy

from llmqsim.clients import Clients
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.cluster.clients import ClientSide
from llmqsim.cluster.door import Door
from llmqsim.cluster.fleet import PREFILL, Fleet, Pool
from llmqsim.cluster.gate import Gate
from llmqsim.cluster.router import Router, Stop
from llmqsim.cluster.stations import StationsReplica
from llmqsim.cost.stations import Stations
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.handoff import HandoffTerms
from llmqsim.engine.pipeline import PipelinedReplica
from llmqsim.engine.prefill import PipelinedPrefillReplica, PrefillReplica
from llmqsim.engine.reference import ReferenceReplica
from llmqsim.errors import InvariantError
from llmqsim.records import GapHistogram, LinkUsage
from llmqsim.requests import INDEX, UNSET, Outcome, RequestTable
from llmqsim.units import to_ns


class Cluster:
    """One run's machinery. `run` mutates `table`; `gaps`, `replicas[i].usage` and `step_log` hold the rest."""

    def __init__(
        self,
        table: RequestTable,
        servers: Deployment | Fleet,
        keep_steps: bool = False,
        clients: Clients = Clients(),
    ):
        self.table = table
        self.env = simpy.Environment(initial_time=0)
        self.gaps = GapHistogram(len(table.classes))
        self.step_log: list[tuple] | None = [] if keep_steps else None
        self.fleet = fleet = Fleet.of(servers)
        refuse_unservable(table, fleet)
        self.replicas = self._replicas(fleet)
        front = fleet.pools[0].deployment
        fleet.draw(table)
        self._inside = self._one_pool(fleet.only) if fleet.only is not None else self._pools(fleet)
        self._gate = Gate(self.env, table, front.admission, self._inside.submit, lambda: self._inside.waiting)
        self._clients = ClientSide(self.env, table, clients, self._gate.submit, self._abort)
        reports = any(pool.deployment.signal_age_ns for pool in fleet.pools)
        self._impatient = clients.timeout_ns is not None or reports

    def _one_pool(self, servers: Deployment) -> Router:
        """One router, one kind of replica: no door."""
        stops = [Stop(replica.submit, replica.abort, replica.report) for replica in self.replicas]
        router = Router(self.env, self.table, servers, stops, self.table.data[INDEX["replica"]], draws=self.table.draws)

        def finished(row: int) -> None:
            router.finished(row)
            self._told(row)

        for replica in self.replicas:
            replica.on_finish = finished
        return router

    def _pools(self, fleet: Fleet) -> Door:
        """Several pools: a door in front of their routers."""
        return Door(self.env, self.table, fleet, self.replicas, self._told)

    def _replicas(self, fleet: Fleet) -> list[ReferenceReplica | StationsReplica]:
        """All replicas, numbered through."""
        made: list[ReferenceReplica | StationsReplica] = []
        for pool in fleet.pools:
            for _ in range(pool.deployment.replicas):
                made.append(self._replica(len(made), pool, fleet.terms))
        return made

    def _replica(self, index: int, pool: Pool, terms: HandoffTerms) -> ReferenceReplica | StationsReplica:
        servers = pool.deployment
        if isinstance(servers.cost, Stations):
            after_ns = to_ns(servers.host.request_after_s)
            return StationsReplica(self.env, index, self.table, servers.cost, self.gaps, after_ns, self.step_log)
        given = self.env, index, self.table, servers, self.gaps, self.step_log
        pipelined = servers.cost.pipeline_stages > 1
        if pool.role == PREFILL:
            return (PipelinedPrefillReplica if pipelined else PrefillReplica)(*given, terms)
        return (PipelinedReplica if pipelined else ReferenceReplica)(*given)

    def _told(self, row: int) -> None:
        self._gate.finished(row)
        self._clients.finished(row)

    def _abort(self, row: int) -> None:
        self._gate.taken_back(row)
        self._inside.abort(row)

    @property
    def links(self) -> tuple[LinkUsage, ...]:
        """What the links between pools did; empty without any."""
        handoffs = self._inside.handoffs if isinstance(self._inside, Door) else None
        return () if handoffs is None else handoffs.links.usage()

    def run(self, until_ns: int | None = None) -> int:
        """Run until nothing is left to do, or up to `until_ns`; return the time, ns.

        A run always ends: arrivals are finite, and while a replica holds requests, its oldest gets a token a step.
        """
        self.env.run(until=until_ns)
        for replica in self.replicas:
            replica.close()
        self._inside.close()
        if until_ns is not None:
            return self.env.now
        if ((self.table.outcome == Outcome.UNFINISHED) & (self.table.arrival_ns != UNSET)).any():
            raise InvariantError(f"the clock stopped at {self.env.now} ns with requests unfinished")
        if self._impatient or self.fleet.terms.lease_ns is not None:  # the clock ran on to a deadline that nobody missed
            return max([self._clients.last_ns, *(replica.usage.end_ns for replica in self.replicas)])
        return self.env.now
