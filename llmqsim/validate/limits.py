"""Simulating with clients' limits: the compiled engine where it can, also where a limit that it lacks binds nobody.

Time-outs and caps on requests in flight change nothing in a run in which nobody waits as long and never so many are in
flight. Such a run is found by leaving the limits out and looking; where one would have bound, the run is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from llmqsim.errors import ScenarioError
from llmqsim.requests import UNSET, Outcome
from llmqsim.result import Result
from llmqsim.scenario.load import Scenario, from_mapping
from llmqsim.simulation import simulate
from llmqsim.units import NS_PER_S

LIMITS = ("timeout", "max_in_flight")


def simulated(mapping: Mapping[str, Any], folder: str) -> tuple[Scenario, Result]:
    """The scenario, checked, and its result. Raises UserError as `simulate` does."""
    scenario = from_mapping(mapping, folder=folder)
    clients = mapping["workload"].get("clients") or {}
    if any(limit in clients for limit in LIMITS):
        try:
            return scenario, simulate(_with_engine(mapping, folder))
        except ScenarioError as error:
            if not any("the compiled engine has no form" in fault for fault in error.faults):
                raise
        freed = {key: value for key, value in clients.items() if key not in (*LIMITS, *_idle(mapping))}
        relaxed = {**mapping, "workload": {**mapping["workload"], "clients": freed}}
        result = simulate(from_mapping(relaxed, folder=folder))
        if result.engine == "compiled" and not _bind(result, clients):
            return scenario, result
    return scenario, simulate(scenario)


def _idle(mapping: Mapping[str, Any]) -> tuple[str, ...]:
    """What means nothing once the limits are gone: in an open loop nothing waits for an answer."""
    closed = (mapping["workload"].get("arrivals") or {}).get("process") == "closed_loop"
    return () if closed else ("turnaround",)


def _with_engine(mapping: Mapping[str, Any], folder: str) -> Scenario:
    return from_mapping({**mapping, "run": {**(mapping.get("run") or {}), "engine": "compiled"}}, folder=folder)


def _bind(result: Result, clients: Mapping[str, Any]) -> bool:
    """Would any limit have changed this run, which was made without?"""
    table = result.table
    sent = table.outcome != Outcome.REJECTED
    if (table.outcome[sent] != Outcome.COMPLETED).any():
        return True
    took_ns = table.finish_ns[sent] - table.arrival_ns[sent]
    timeout, cap = clients.get("timeout"), clients.get("max_in_flight")
    if timeout is not None and took_ns.max(initial=0) >= timeout * NS_PER_S:
        return True
    if cap is None:
        return False
    free_ns = table.finish_ns[sent] + round(clients.get("turnaround", 0.0) * NS_PER_S)
    return most_at_once(table.arrival_ns[sent], free_ns) > cap


def most_at_once(from_ns: np.ndarray, to_ns: np.ndarray) -> int:
    """Most stretches that hold one instant, int64[n] each; one that ends where another begins is not over there."""
    known = (from_ns != UNSET) & (to_ns != UNSET)
    times = np.concatenate([from_ns[known], to_ns[known]])
    change = np.concatenate([np.ones(known.sum(), dtype=np.int64), np.full(known.sum(), -1)])
    return int(np.cumsum(change[np.argsort(times, kind="stable")]).max(initial=0))
