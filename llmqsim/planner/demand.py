"""What is asked for, beside what arithmetic says can be had."""

from __future__ import annotations

from llmqsim.metrics.slo import objectives
from llmqsim.planner.bounds import Bounds, Mix
from llmqsim.planner.vary import loops
from llmqsim.scenario.build import build_workload
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import Prepared, promise


def arrival_rate(scenario: Scenario, mix: Mix) -> float | None:
    """Arrivals a second, as written where it is one number; None where they depend on the run."""
    workload = scenario.spec.workload
    if loops(scenario):
        return None
    written = None if workload.trace is not None else getattr(workload.arrivals, "rate", None)
    return written or mix.rate_per_s


def beyond(prepared: Prepared, seed: int) -> bool:
    """Does arithmetic say that these replicas can't do it, whatever a run shows? False for pools, of which it knows less."""
    spec = prepared.scenario.spec
    if spec.pools is not None:
        return False
    table = build_workload(prepared.scenario, prepared.servers, seed, 0).table
    bounds = Bounds(prepared.servers.deployment, table)
    asked = objectives(promise(prepared.scenario), table.classes)
    return bounds.fewest(arrival_rate(prepared.scenario, bounds.mix), asked) > spec.replicas
