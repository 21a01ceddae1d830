"""A scenario with a few values changed: the same checked scenario, its origins kept, so that defaults stay defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmqsim.errors import UserError
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import Prepared, prepare


def changed(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """The scenario with other values at dotted keys. Values are of the schema's own types, and are not checked again."""
    spec = scenario.spec
    for key, value in values.items():
        spec = _put(spec, key.split("."), value)
    return replace(scenario, spec=spec)


def one_kind(prepared: Prepared, what: str) -> Prepared:
    """The same, for what knows replicas of one kind only. what : the command. Raises UserError for pools."""
    if prepared.scenario.spec.pools is not None:
        told = f"llmqsim {what} knows replicas of one kind; compare numbers of replicas by variants with llmqsim compare"
        raise UserError(prepared.scenario.fault("pools", told))
    return prepared


def pool_names(prepared: Prepared, what: str) -> tuple[str, str]:
    """Names of the prefill and of the decode pool. what : the command. Raises UserError for other pools."""
    roles = {its.role_of(name): name for name, its in prepared.scenario.spec.pools.items()}
    if len(prepared.scenario.spec.pools) != 2 or set(roles) != {"prefill", "decode"}:
        got = ", ".join(f"{name} ({its.role_of(name)})" for name, its in prepared.scenario.spec.pools.items())
        told = f"llmqsim {what} knows one prefill and one decode pool (got {got}); compare others with llmqsim compare"
        raise UserError(prepared.scenario.fault("pools", told))
    return roles["prefill"], roles["decode"]


def with_replicas(prepared: Prepared, replicas: int) -> Prepared:
    """The same servers, another number of them; nothing is built again."""
    deployment = replace(prepared.servers.deployment, replicas=replicas)
    scenario = changed(prepared.scenario, {"replicas": replicas})
    return Prepared(scenario, replace(prepared.servers, deployment=deployment))


def at_load(scenario: Scenario, factor: float) -> Scenario:
    """The same traffic, `factor` times as fast: every open arrival process, its stages, and the pace of a trace.

    Gaps are drawn at unit rate, so that all loads share one pattern. Closed loops have no rate: they stay as they are.
    """
    workload, values = scenario.spec.workload, {}
    if workload.trace is not None:
        values["workload.trace.rate_scale"] = workload.trace.rate_scale * factor
    elif workload.arrivals is not None:
        values["workload.arrivals"] = faster(workload.arrivals, factor)
    spec = changed(scenario, values)
    if not workload.classes:
        return spec
    classes = {
        name: one if one.arrivals is None else one.model_copy(update={"arrivals": faster(one.arrivals, factor)})
        for name, one in workload.classes.items()
    }
    return changed(spec, {"workload.classes": classes})


def faster(arrivals: Any, factor: float) -> Any:
    """An arrival process at `factor` times its rate; a burst or a closed loop as it is."""
    update: dict[str, Any] = {}
    if getattr(arrivals, "rate", None) is not None:
        update["rate"] = arrivals.rate * factor
    if getattr(arrivals, "stages", None) is not None:
        update["stages"] = tuple({**stage, "rate": stage["rate"] * factor} for stage in arrivals.stages)
    return arrivals.model_copy(update=update)


def loops(scenario: Scenario) -> bool:
    """Does any of the traffic wait for answers before it sends more?"""
    workload = scenario.spec.workload
    processes = [workload.arrivals, *(c.arrivals for c in (workload.classes or {}).values())]
    held = workload.clients is not None and workload.clients.max_in_flight is not None
    return held or any(getattr(p, "process", None) == "closed_loop" for p in processes if p is not None)


def prepared_at(scenario: Scenario, factor: float) -> Prepared:
    """Servers built for the same scenario at another load."""
    return prepare(at_load(scenario, factor))


def _put(spec: Any, path: list[str], value: Any) -> Any:
    head, *rest = path
    if isinstance(spec, dict):
        return {**spec, head: _put(spec[head], rest, value) if rest else value}
    return spec.model_copy(update={head: _put(getattr(spec, head), rest, value) if rest else value})
