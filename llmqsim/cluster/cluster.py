"""Cluster: wires source → router → replicas and runs the clock. Everything that a run mutates lives here."""

from __future__ import annotations

import simpy

from llmqsim.cluster import source
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.engine.deployment import Deployment
from llmqsim.cluster.router import Router
from llmqsim.engine.reference import ReferenceReplica
from llmqsim.errors import InvariantError
from llmqsim.records import GapHistogram
from llmqsim.requests import Outcome, RequestTable
from llmqsim.units import to_ns


class Cluster:
    """One run's machinery. `run` mutates `table`; `gaps`, `replicas[i].usage` and `step_log` hold the rest."""

    def __init__(self, table: RequestTable, deployment: Deployment, keep_steps: bool = False):
        self.table = table
        self.env = simpy.Environment(initial_time=0)
        self.gaps = GapHistogram(len(table.classes))
        self.step_log: list[tuple] | None = [] if keep_steps else None
        refuse_unservable(table, deployment)
        self.replicas = [
            ReferenceReplica(self.env, index, table, deployment, self.gaps, self.step_log)
            for index in range(deployment.replicas)
        ]
        self._router = Router(
            self.env,
            table,
            deployment.routing,
            [replica.submit for replica in self.replicas],
            to_ns(deployment.host.request_before_s),
        )
        for replica in self.replicas:
            replica.on_finish = self._router.finished
        self.env.process(source.open_loop(self.env, table, self._router.submit))

    def run(self, until_ns: int | None = None) -> int:
        """Run until nothing is left to do, or up to `until_ns`; return the time, ns.

        A run always ends: arrivals are finite, and while a replica holds requests, its oldest gets a token a step.
        """
        self.env.run(until=until_ns)
        for replica in self.replicas:
            replica.close()
        if until_ns is None and (self.table.outcome == Outcome.UNFINISHED).any():
            raise InvariantError(f"the clock stopped at {self.env.now} ns with requests unfinished")
        return self.env.now
