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
    table, promised = result.table, result.promise.given(result.table) & result.arrived & part
    if not result.promise.targets(table) or not promised.any():
        return None
    met = promised & slo.meets_all(table, result.promise) & (table.finish_ns >= window.start_ns)
    return ratio(int(met.sum()), window.seconds)


def group(result: Result, part: np.ndarray, name: str, classes: list[int] | None) -> dict[str, Any]:
    """Counts, latencies and SLO of the measured requests of a mask (bool[rows]), and its rates in the measured window.

    name : the class whose SLO is shown. classes : whose gaps between tokens itl_s describes.
    """
    table, promise, rows = result.table, result.promise, result.measured & part
    window = usage.makespan(table, result.measured, result.end_ns)
    figures = latency.latencies(table, result.gaps, rows, classes)
    return {
        "requests": counts(table, rows),
        **figures,
        "attainment": slo.attainment(table, promise, rows),
        "slo": slo.report(table, promise, rows, promise.of_class(name)),
        "goodput_per_s": goodput(result, part, window),
        "throughput": usage.throughput(table, result.arrived & part, window),
    }


def by_class(result: Result) -> dict[str, Any]:
    """Figures of each class, where there are several."""
    table = result.table
    if len(table.classes) < 2:
        return {}
    return {
        name: group(result, table.class_id == i, name, [i]) for i, name in enumerate(table.classes)
    }


def by_tenant(result: Result) -> dict[str, Any]:
    """Figures of each tenant, where there are several; without itl_s, which is kept by class."""
    table = result.table
    if len(table.tenants) < 2:
        return {}
    found = {}
    for i, name in enumerate(table.tenants):
        figures = group(result, table.tenant_id == i, "", [])
        found[name] = {key: value for key, value in figures.items() if key not in ("itl_s", "slo")}
    return found
