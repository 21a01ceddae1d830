"""The figures of a part of the requests: of everybody, of a class, of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from llmqsim.metrics import latency, slo, usage
from llmqsim.metrics.distribution import ratio
from llmqsim.requests import Outcome, Reason, RequestTable

if TYPE_CHECKING:
    from llmqsim.result import Result


def counts(table: RequestTable, rows: np.ndarray) -> dict[str, Any]:
    """What became of the requests of a mask (bool[rows])."""
    rejected = rows & (table.outcome == Outcome.REJECTED)
    refused = table.reason[rejected]
    reasons = {r.name.lower(): int((refused == r).sum()) for r in Reason if r is not Reason.NONE}
    return {
        "arrived": int(rows.sum()),
        "completed": int((rows & latency.completed(table)).sum()),
        "rejected": int(rejected.sum()),
        "timed_out": int((rows & (table.outcome == Outcome.TIMED_OUT)).sum()),
        "unfinished": int((rows & (table.outcome == Outcome.UNFINISHED)).sum()),
        "rejected_for": {name: count for name, count in reasons.items() if count},
    }


def goodput(result: Result, part: np.ndarray, window: usage.Window) -> float | None:
    """Requests of a mask (bool[rows]) that meet their SLO and end in the window, per second; None without an SLO."""
    table, seen = result.table, slo.stand_all(result, result.due & part)
    if not (seen.asked | seen.undecided).any():
        return None
    return ratio(int((seen.met & (table.finish_ns >= window.start_ns)).sum()), window.seconds)


def group(result: Result, part: np.ndarray, name: str, classes: list[int] | None, verdict: str) -> dict[str, Any]:
    """Counts, latencies and SLO of the measured requests of a mask (bool[rows]), and its rates in the measured window.

    name : the class whose SLO is shown. classes : whose gaps between tokens itl_s describes. verdict : of the run's
    stability.
    """
    table, rows, promised = result.table, result.measured & part, result.promised & part
    window = usage.makespan(table, result.measured, result.end_ns)
    figures = latency.latencies(table, result.gaps, rows, classes)
    return {
        "requests": counts(table, rows),
        **figures,
        "attainment": slo.stand_all(result, promised).share,
        "slo": slo.report(result, promised, result.promise.of_class(name), verdict),
        "goodput_per_s": goodput(result, part, window),
        "throughput": usage.throughput(table, result.arrived & part, window),
    }


def by_class(result: Result, verdict: str) -> dict[str, Any]:
    """Figures of each class, where there are several. verdict : of the run's stability."""
    table = result.table
    if len(table.classes) < 2:
        return {}
    return {
        name: group(result, table.class_id == i, name, [i], verdict) for i, name in enumerate(table.classes)
    }


def by_tenant(result: Result, verdict: str) -> dict[str, Any]:
    """Figures of each tenant, where there are several; without itl_s, which is kept by class."""
    table = result.table
    if len(table.tenants) < 2:
        return {}
    found = {}
    for i, name in enumerate(table.tenants):
        figures = group(result, table.tenant_id == i, "", [], verdict)
        found[name] = {key: value for key, value in figures.items() if key not in ("itl_s", "slo")}
    return found
