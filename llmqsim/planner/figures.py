"""What two runs are compared by: figures of a set of requests, and figures of a whole run, each with its direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmqsim.cluster.alone import Alone
from llmqsim.errors import UserError, or_known
from llmqsim.metrics import latency, slo, stats
from llmqsim.metrics.distribution import NS_PER_S
from llmqsim.requests import UNSET, Outcome, RequestTable
from llmqsim.result import Result

LOWER, HIGHER, NEITHER = -1, 1, 0


def percentile(values: np.ndarray, percent: int) -> float:
    """numpy.percentile of float64[n >= 1], bit for bit, in a tenth of its time: a comparison takes thousands."""
    virtual = (len(values) - 1) * (percent / 100)
    below = int(virtual)
    above, part = min(below + 1, len(values) - 1), virtual - below
    ordered = np.partition(values, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    step = high - low
    return high - step * (1 - part) if part >= 0.5 else low + step * part


SERIES = ("ttft_s", "tpot_s", "ntpot_s", "e2e_s", "wait_s", "slowdown")
STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "mean": lambda v: float(np.mean(v)),
    **{f"p{p}": (lambda v, p=p: percentile(v, p)) for p in (50, 90, 95, 99)},
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


TENTHS = 10
"""groups by length, and by when requests were due"""
LABELS = {
    "ttft_s": "TTFT", "tpot_s": "TPOT", "ntpot_s": "NTPOT", "e2e_s": "E2E", "wait_s": "wait", "slowdown": "slowdown",
}  # fmt: skip
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
    judged by one (bool[rows]). rows : those that count. counts : what each adds to a figure of the whole run (requests, tokens, preemptions, gaps
    between tokens and their time), float64[rows]. due_s, done_s : when each was due, and completed (NaN: never).
    lengths : prompt and output tokens, int64[2, rows].
    groups : name -> mask, "class:chat", "length:1-240", "time:0-10 %".
    """

    values: dict[str, np.ndarray]
    met: np.ndarray
    asked: np.ndarray
    rows: np.ndarray
    waited_s: np.ndarray
    """until first scheduled, or to the end for those who never were: what starvation shows in"""
    counts: dict[str, np.ndarray] = field(repr=False)
    due_s: np.ndarray = field(repr=False)
    done_s: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)
    groups: dict[str, np.ndarray] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)
    known: dict[tuple[str, str | None], float | None] = field(default_factory=dict, repr=False, compare=False)
    """figures that were asked for, by metric and group"""

    def part(self, group: str | None) -> np.ndarray:
        """The rows that count of a group (None: all), bool[rows]; none where the run has no such group."""
        if group is None:
            return self.rows
        return self.rows & self.groups[group] if group in self.groups else np.zeros(len(self.rows), dtype=bool)

    def counted(self, metric: Metric, group: str | None) -> np.ndarray:
        """The rows that a figure is of, bool[rows]: an SLO also counts those that were due and held back."""
        if metric.key != "attainment" or (group is not None and group not in self.groups):
            return self.part(group)
        return self.asked if group is None else self.asked & self.groups[group]

    def of(self, metric: Metric, group: str | None) -> float | None:
        """One figure of the run (group None) or of a group of its requests; None where there is none."""
        if (metric.key, group) not in self.known:
            self.known[metric.key, group] = self.figure(metric, None if group is None else self.counted(metric, group))
        return self.known[metric.key, group]

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
    due_ns = np.where(table.intended_ns != UNSET, table.intended_ns, table.arrival_ns)
    standing = slo.stand_all(result)
    return Seen(
        values=values,
        met=standing.met,
        asked=standing.asked,
        rows=result.measured,
        waited_s=_waited(result),
        counts=_counts(table, done, standing.met),
        due_s=due_ns / NS_PER_S,
        done_s=np.where(done, table.finish_ns / NS_PER_S, np.nan),
        lengths=np.stack([table.prompt_tokens, table.output_tokens]),
        groups=_groups(result, edges) | _times(due_ns, result.measured | standing.asked),
        summary=result.summary(),
    )


def _counts(table: RequestTable, done: np.ndarray, met: np.ndarray) -> dict[str, np.ndarray]:
    """By the keys of the figures that they add up to; "gaps", "gaps_s": between the tokens of those who completed."""
    output, gaps = np.where(done, table.generated_tokens, 0), np.where(done, table.generated_tokens - 1, 0)
    found = {
        "goodput_per_s": met,
        "throughput.requests_per_s": done,
        "throughput.output_tokens_per_s": output,
        "throughput.total_tokens_per_s": output + np.where(done, table.prompt_tokens, 0),
        "requests.completed": done,
        "requests.rejected": table.outcome == Outcome.REJECTED,
        "requests.timed_out": table.outcome == Outcome.TIMED_OUT,
        "preemptions": table.preemptions,
        "gaps": gaps,
        "gaps_s": np.where(gaps > 0, table.finish_ns - table.first_token_ns, 0) / NS_PER_S,
    }
    return {key: column.astype(float) for key, column in found.items()}


def _times(due_ns: np.ndarray, rows: np.ndarray, groups: int = TENTHS) -> dict[str, np.ndarray]:
    """Tenths of the requests that count, in the order in which they were due."""
    order = np.flatnonzero(rows)
    order = order[np.argsort(due_ns[order], kind="stable")]
    place = np.full(len(due_ns), -1)
    place[order] = np.arange(len(order)) * groups // max(len(order), 1)
    width = 100 // groups
    return {f"time:{width * i}-{width * (i + 1)} %": place == i for i in range(groups)} if len(order) >= groups else {}


def length_edges(result: Result, groups: int = TENTHS) -> np.ndarray | None:
    """Ends of length groups with equal numbers of requests, by prompt and output together; None where all are alike."""
    table = result.table
    tokens = np.sort((table.prompt_tokens + table.output_tokens)[result.arrived])
    if not len(tokens):
        return None
    ends = np.unique(tokens[[len(tokens) * i // groups - 1 for i in range(1, groups) if len(tokens) * i // groups]])
    ends = ends[ends < tokens[-1]]
    return ends if len(ends) else None


def _length_names(edges: np.ndarray) -> list[str]:
    """Each group by its range, tokens: "1-240"."""
    low = [1, *(int(e) + 1 for e in edges)]
    return [*(f"{a}-{int(b)}" for a, b in zip(low, edges, strict=False)), f"{low[-1]} and more"]


def _groups(result: Result, edges: np.ndarray | None) -> dict[str, np.ndarray]:
    table, found = result.table, {}
    if len(table.classes) > 1:
        found |= {f"class:{name}": table.class_id == i for i, name in enumerate(table.classes)}
    if len(table.tenants) > 1:
        found |= {f"tenant:{name}": table.tenant_id == i for i, name in enumerate(table.tenants)}
    if edges is not None:
        place = np.searchsorted(edges, table.prompt_tokens + table.output_tokens)
        found |= {f"length:{name}": place == i for i, name in enumerate(_length_names(edges))}
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
