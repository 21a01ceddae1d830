"""Runs of so many requests that only those under way may take memory: drawn, served and added up stretch by stretch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmqsim import progress
from llmqsim.cluster.admission import refuse_unservable
from llmqsim.cluster.choose import Finished
from llmqsim.cluster.passing import PassingCluster, Spent, why_all
from llmqsim.engine.deployment import Deployment
from llmqsim.metrics.folded import Folded
from llmqsim.metrics.slo import Promise
from llmqsim.packed import PIECE_ROWS
from llmqsim.passing import PassingTable, refused
from llmqsim.requests import RequestTable
from llmqsim.scenario.build import Servers, build_workload, promise_to
from llmqsim.scenario.build_fleet import Plant
from llmqsim.scenario.load import Scenario
from llmqsim.workload.arrivals import MAX_REQUESTS
from llmqsim.workload.build import Workload
from llmqsim.workload.stretches import Stretches, why_not

ABOVE = 10_000_000
"""requests, beyond which figures are added up as requests end; up to here all are kept, in few bytes, and figures exact"""


@dataclass(frozen=True)
class LongRun:
    """A run that is over. sample : its first requests, as they were drawn. folded : what was added up."""

    sample: Workload
    finished: Finished
    folded: Folded


def run(scenario: Scenario, servers: Servers | Plant, seed: int, replication: int, promise: Promise) -> LongRun | None:
    """A run in the memory of its requests in flight; None where it is short, or something needs all of them at hand."""
    given = {key: value for key, value in scenario.spec.workload.model_dump().items() if value is not None}
    rows, asked, its = given.get("requests") or 0, scenario.spec.run, servers.everything
    if not ABOVE < rows <= MAX_REQUESTS or asked.warmup is not None or asked.until is not None or asked.engine == "reference":
        return None
    if why_not(given) is not None or promise.own or not isinstance(its, Deployment):
        return None
    sample = build_workload(_of(scenario, PIECE_ROWS), servers, seed, replication)
    if sample.notes or why_all(its, sample.table) is not None:
        return None
    drawn = Stretches(given, seed, replication, scenario.folder, servers.longest_request_tokens)
    folded = Folded(rows, its.replicas, promise, promise.slo)

    def draw(start: int, end: int) -> RequestTable:
        part = drawn.draw(end - start)
        promise_to(scenario, part)
        refuse_unservable(part, its)
        folded.backlog.due(part, ~refused(part))
        return part

    table = PassingTable(rows, draw, folded.add)
    table.targets = sample.table.targets
    cluster = PassingCluster(table, its)
    try:
        with progress.running(rows, lambda: table.gone / rows):
            end_ns = cluster.run(None)
    except Spent:
        return None
    table.close()
    finished = Finished("compiled", end_ns, cluster.gaps, cluster.usage, None)
    return LongRun(sample, finished, folded)


def _of(scenario: Scenario, requests: int) -> Scenario:
    """The scenario with so many requests."""
    spec = scenario.spec
    traffic = spec.workload.model_copy(update={"requests": requests})
    return replace(scenario, spec=spec.model_copy(update={"workload": traffic}))
