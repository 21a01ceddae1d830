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
    reasons = {r.name.lower(): int((rejected & (table.reason == r)).sum()) for r in Reason if r is not Reason.NONE}
    return {
        "arrived": int(rows.sum()),
        "completed": int((rows & latency.completed(table)).sum()),
        "rejected": int(rejected.sum()),
        "timed_out": int((rows & (table.outcome == Outcome.TIMED_OUT)).sum()),
        "unfinished": int((rows & (table.outcome == Outcome.UNFINISHED)).sum()),
        "rejected_for": {name: count for name, count in reasons.items() if count},
    }


def group(result: Result, rows: np.ndarray, name: str, classes: list[int] | None) -> dict[str, Any]:
    """Counts, latencies, SLO and rates of the measured requests of a mask (bool[rows]), over the measured window.

    name : the class whose SLO is shown. classes : whose gaps between tokens itl_s describes.
    """
    table, promise = result.table, result.promise
    window = usage.makespan(table, result.measured, result.end_ns)
    figures = latency.latencies(table, result.gaps, rows, classes)
    met = rows & promise.given(table) & slo.meets_all(table, promise)
    return {
        "requests": counts(table, rows),
        **figures,
        "attainment": slo.attainment(table, promise, rows),
        "slo": slo.report(table, promise, rows, promise.of_class(name)),
        "goodput_per_s": ratio(int(met.sum()), window.seconds) if (rows & promise.given(table)).any() else None,
        "throughput": usage.throughput(table, rows, window),
    }


def by_class(result: Result) -> dict[str, Any]:
    """Figures of each class, where there are several."""
    table = result.table
    if len(table.classes) < 2:
        return {}
    return {
        name: group(result, result.measured & (table.class_id == i), name, [i]) for i, name in enumerate(table.classes)
    }


def by_tenant(result: Result) -> dict[str, Any]:
    """Figures of each tenant, where there are several; without itl_s, which is kept by class."""
    table = result.table
    if len(table.tenants) < 2:
        return {}
    found = {}
    for i, name in enumerate(table.tenants):
        figures = group(result, result.measured & (table.tenant_id == i), "", [])
        found[name] = {key: value for key, value in figures.items() if key not in ("itl_s", "slo")}
    return found
