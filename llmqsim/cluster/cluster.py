"""Cluster: wires clients → router → replicas and runs the clock. Everything that a run mutates lives here."""

from __future__ import annotations

import simpy

from llmqsim.clients import Clients
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.cluster.clients import ClientSide
from llmqsim.cluster.router import Router
from llmqsim.cluster.stations import StationsReplica
from llmqsim.cost.stations import Stations
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.pipeline import PipelinedReplica
from llmqsim.engine.reference import ReferenceReplica
from llmqsim.errors import InvariantError
from llmqsim.records import GapHistogram
from llmqsim.requests import UNSET, Outcome, RequestTable
from llmqsim.units import to_ns


class Cluster:
    """One run's machinery. `run` mutates `table`; `gaps`, `replicas[i].usage` and `step_log` hold the rest."""

    def __init__(
        self,
        table: RequestTable,
        deployment: Deployment,
        keep_steps: bool = False,
        clients: Clients = Clients(),
    ):
        self.table = table
        self.env = simpy.Environment(initial_time=0)
        self.gaps = GapHistogram(len(table.classes))
        self.step_log: list[tuple] | None = [] if keep_steps else None
        refuse_unservable(table, deployment)
        self.replicas = [self._replica(index, deployment) for index in range(deployment.replicas)]
        self._router = Router(
            self.env,
            table,
            deployment.routing,
            [replica.submit for replica in self.replicas],
            to_ns(deployment.host.request_before_s),
            [replica.abort for replica in self.replicas],
        )
        self._clients = ClientSide(self.env, table, clients, self._router.submit, self._router.abort)
        self._impatient = clients.timeout_ns is not None
        for replica in self.replicas:
            replica.on_finish = self._finished

    def _replica(self, index: int, deployment: Deployment) -> ReferenceReplica | StationsReplica:
        if isinstance(deployment.cost, Stations):
            after_ns = to_ns(deployment.host.request_after_s)
            return StationsReplica(self.env, index, self.table, deployment.cost, self.gaps, after_ns, self.step_log)
        kind = PipelinedReplica if deployment.cost.pipeline_stages > 1 else ReferenceReplica
        return kind(self.env, index, self.table, deployment, self.gaps, self.step_log)

    def _finished(self, row: int) -> None:
        self._router.finished(row)
        self._clients.finished(row)

    def run(self, until_ns: int | None = None) -> int:
        """Run until nothing is left to do, or up to `until_ns`; return the time, ns.

        A run always ends: arrivals are finite, and while a replica holds requests, its oldest gets a token a step.
        """
        self.env.run(until=until_ns)
        for replica in self.replicas:
            replica.close()
        if until_ns is not None:
            return self.env.now
        if ((self.table.outcome == Outcome.UNFINISHED) & (self.table.arrival_ns != UNSET)).any():
            raise InvariantError(f"the clock stopped at {self.env.now} ns with requests unfinished")
        if self._impatient:  # the clock ran on to a deadline that nobody missed
            return max([self._clients.last_ns, *(replica.usage.end_ns for replica in self.replicas)])
        return self.env.now
