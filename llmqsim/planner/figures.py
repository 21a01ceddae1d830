"""What two runs are compared by: figures of a set of requests, and figures of a whole run, each with its direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmqsim.errors import UserError, or_known
from llmqsim.metrics import latency, slo, stats
from llmqsim.metrics.distribution import NS_PER_S
from llmqsim.planner.alone import Alone
from llmqsim.requests import UNSET
from llmqsim.result import Result

LOWER, HIGHER, NEITHER = -1, 1, 0
SERIES = ("ttft_s", "tpot_s", "ntpot_s", "e2e_s", "wait_s", "slowdown")
STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "mean": lambda v: float(np.mean(v)),
    **{f"p{p}": (lambda v, p=p: float(np.percentile(v, p))) for p in (50, 90, 95, 99)},
    "max": lambda v: float(np.max(v)),
}


@dataclass(frozen=True)
class Metric:
    """One figure. better : HIGHER, LOWER or NEITHER. unit : "s", "share", "/s", "" (a plain number)."""

    key: str
    label: str
    unit: str
    better: int

    @property
    def of_requests(self) -> bool:
        """Can it be taken of a part of the requests?"""
        return self.key in ("attainment", "fairness") or self.key.split(".")[0] in SERIES


LABELS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "ntpot_s": "NTPOT", "e2e_s": "E2E", "wait_s": "wait", "slowdown": "slowdown"}
WHOLE: dict[str, Metric] = {
    m.key: m
    for m in (
        Metric("attainment", "attainment", "share", HIGHER),
        Metric("goodput_per_s", "goodput", "/s", HIGHER),
        Metric("fairness", "Jain fairness", "", HIGHER),
        Metric("throughput.requests_per_s", "requests", "/s", HIGHER),
        Metric("throughput.output_tokens_per_s", "output tokens", "/s", HIGHER),
        Metric("throughput.total_tokens_per_s", "all tokens", "/s", HIGHER),
        Metric("requests.completed", "completed", "", HIGHER),
        Metric("requests.rejected", "rejected", "", LOWER),
        Metric("requests.timed_out", "timed out", "", LOWER),
        Metric("preemptions", "preemptions", "", LOWER),
        Metric("recomputed_tokens", "recomputed", "", LOWER),
        Metric("utilisation.busy", "busy", "share", NEITHER),
        Metric("utilisation.mean_batch", "mean batch", "", NEITHER),
        Metric("utilisation.mean_step_s", "mean step", "s", NEITHER),
        Metric("kv.usage_mean", "KV used", "share", NEITHER),
        Metric("kv.usage_peak", "KV peak", "share", NEITHER),
        Metric("prefix_cache.hit_share", "prefix hits", "share", HIGHER),
        *(Metric(f"itl_s.{s}", f"ITL {s}", "s", LOWER) for s in STATISTICS),
    )
}
DEFAULT = (
    "attainment", "goodput_per_s", "ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "e2e_s.mean", "e2e_s.p99",
    "slowdown.p50", "slowdown.p90", "slowdown.p99", "fairness", "throughput.output_tokens_per_s", "preemptions",
)  # fmt: skip


def metrics(asked: list[str] | tuple[str, ...] = ()) -> list[Metric]:
    """The metrics of these names, or the usual ones. "ttft" is short for its mean and P99. Raises UserError."""
    chosen: list[Metric] = []
    for name in asked or DEFAULT:
        short = name if name in LABELS else f"{name}_s"
        keys = [f"{short}.mean", f"{short}.p99"] if short in LABELS else [name]
        chosen += [_metric(key) for key in keys]
    return list(dict.fromkeys(chosen))


def _metric(key: str) -> Metric:
    if key in WHOLE:
        return WHOLE[key]
    head, _, statistic = key.partition(".")
    if head in ("ttft", "tpot", "ntpot", "e2e", "wait"):
        head += "_s"
    if head in LABELS and statistic in STATISTICS:
        unit = "" if head == "slowdown" else "s"
        return Metric(f"{head}.{statistic}", f"{LABELS[head]} {statistic}", unit, LOWER)
    known = [*WHOLE, *(f"{s}.{name}" for s in LABELS for name in ("mean", "p99"))]
    raise UserError(f"--metric: unknown figure (got '{key}'){or_known(key, known)}")


@dataclass(frozen=True)
class Seen:
    """One run as it is compared: columns of its requests, masks of their groups, its summary and verdict.

    values : series to float64[rows], NaN where a request has none. met, asked : who kept the SLO, of those who can be
    judged by one (bool[rows]). rows : those that count. groups : name -> mask, "class:chat", "length:3".
    """

    values: dict[str, np.ndarray]
    met: np.ndarray
    asked: np.ndarray
    rows: np.ndarray
    waited_s: np.ndarray
    """until first scheduled, or to the end for those who never were: what starvation shows in"""
    groups: dict[str, np.ndarray] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)

    def figure(self, metric: Metric, part: np.ndarray | None = None) -> float | None:
        """One figure of the run, or of a part of its requests (bool[rows]); None where there is none."""
        rows = self.rows if part is None else self.rows & part
        head, _, statistic = metric.key.partition(".")
        if metric.key == "attainment":
            judged = self.asked if part is None else self.asked & part
            asked = int(judged.sum())
            return int((judged & self.met).sum()) / asked if asked else None
        if metric.key == "fairness":
            slowdown = self.values["slowdown"][rows]
            return stats.jain(1 / slowdown[slowdown > 0])
        if head in SERIES:
            values = self.values[head][rows]
            values = values[~np.isnan(values)]
            return STATISTICS[statistic](values) if len(values) else None
        return None if part is not None else _at(self.summary, metric.key)


def see(result: Result, alone: Alone | None, edges: np.ndarray | None) -> Seen:
    """What a comparison needs of a run. edges : upper ends of all but the last length group, tokens (int64[k])."""
    table, done = result.table, latency.completed(result.table)
    values = {}
    for key in SERIES[:-1]:
        name = key.removesuffix("_s")
        has = done & (table.generated_tokens >= 2) if name == "tpot" else done
        column = np.full(len(table), np.nan)
        column[has] = latency.per_request_ns(table, name, has) / NS_PER_S
        values[key] = column
    values["slowdown"] = values["e2e_s"] / alone.e2e_s(table) if alone is not None else np.full(len(table), np.nan)
    standing = slo.stand_all(result)
    return Seen(
        values,
        standing.met,
        standing.asked,
        result.measured,
        _waited(result),
        _groups(result, edges),
        result.summary(),
    )


def length_edges(result: Result, groups: int = 10) -> np.ndarray | None:
    """Ends of length groups with equal numbers of requests, by prompt and output together; None where all are alike."""
    table = result.table
    tokens = np.sort((table.prompt_tokens + table.output_tokens)[result.arrived])
    if not len(tokens):
        return None
    ends = np.unique(tokens[[len(tokens) * i // groups - 1 for i in range(1, groups) if len(tokens) * i // groups]])
    ends = ends[ends < tokens[-1]]
    return ends if len(ends) else None


def _groups(result: Result, edges: np.ndarray | None) -> dict[str, np.ndarray]:
    table, found = result.table, {}
    if len(table.classes) > 1:
        found |= {f"class:{name}": table.class_id == i for i, name in enumerate(table.classes)}
    if len(table.tenants) > 1:
        found |= {f"tenant:{name}": table.tenant_id == i for i, name in enumerate(table.tenants)}
    if edges is not None:
        place = np.searchsorted(edges, table.prompt_tokens + table.output_tokens)
        found |= {f"length:{i}": place == i for i in range(len(edges) + 1)}
    return found


def _waited(result: Result) -> np.ndarray:
    table = result.table
    until = np.where(table.first_scheduled_ns != UNSET, table.first_scheduled_ns, result.end_ns)
    never = (table.first_scheduled_ns == UNSET) & (table.gave_up_ns != UNSET)
    until = np.where(never, table.gave_up_ns, until)
    return np.maximum(until - table.arrival_ns, 0) / NS_PER_S


def _at(summary: dict[str, Any], key: str) -> float | None:
    value: Any = summary
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else float(value)
