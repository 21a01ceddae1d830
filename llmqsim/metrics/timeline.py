"""A run over time, in a bounded number of bins: load, attainment, who waits and who is served, KV use, what they waited for.

All of it follows from the table of requests, in vectorised integer arithmetic, so that keeping it costs a run nothing. Two
things the table can't tell: when a request was preempted (its time without a place counts as served), and how many blocks
it held. KV use is exact where the run kept its log of steps; else it is made from lengths and times, and says so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from llmqsim.metrics import slo, usage
from llmqsim.metrics.distribution import NS_PER_S
from llmqsim.metrics.waiting import WORDS
from llmqsim.requests import UNSET, Outcome

MOST_BINS, FEWEST_BINS = 200, 20
A_BIN = 20
"""requests, on average, that a bin should hold"""
STEPS, LENGTHS = "steps", "lengths"


@dataclass(frozen=True)
class Timeline:
    """What happened in each of n bins of equal width. Lists of n numbers; None where a bin has none.

    start_s, end_s : first arrival and the end of the run, seconds. arrivals_per_s, completions_per_s : rates. attainment :
    of those due in the bin, the share that kept its SLO, as far as can be judged; `asked` is how many. waiting : requests
    that have arrived and are in no step yet, mean over the bin; serving : from the first step to the end, the same.
    serving_least, serving_most : of the replica with the fewest and the most. replicas : that served anybody. waits : mean
    seconds of the requests that arrived in the bin, by reason. preemptions, cached_share : of these requests. kv_mean,
    kv_most : share of usable KV blocks that is held, mean over replicas and of the fullest; kv_from : STEPS (exact as of
    when steps are formed) or LENGTHS; None where the pool is unlimited or there are several.
    """

    start_s: float
    end_s: float
    arrivals_per_s: list[float]
    completions_per_s: list[float]
    asked: list[int]
    attainment: list[float | None]
    waiting: list[float]
    serving: list[float]
    serving_least: list[float]
    serving_most: list[float]
    replicas: list[int]
    waits: dict[str, list[float | None]]
    preemptions: list[int]
    cached_share: list[float | None]
    kv_mean: list[float] | None
    kv_most: list[float] | None
    kv_from: str | None

    @property
    def middles_s(self) -> list[float]:
        """The middle of each bin, seconds."""
        n = len(self.waiting)
        return [self.start_s + (self.end_s - self.start_s) * (i + 0.5) / n for i in range(n)]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def timeline(result: Any) -> Timeline | None:
    """The timeline of a run (a Result) that kept its requests; None where nobody arrived. Raises UserError for a summary alone."""
    table, arrived = result.table, result.arrived
    window = usage.makespan(table, arrived, result.end_ns)
    if window.end_ns <= window.start_ns:
        return None
    bins = Bins(window.start_ns, window.end_ns, int(arrived.sum()))
    sent, done = table.arrival_ns[arrived], arrived & (table.outcome == Outcome.COMPLETED)
    asked, attained = _attainment(result, bins)
    begins, waiting, serving = _presence(result, bins)
    kv_mean, kv_most, kv_from = _kv(result, bins, begins)
    return Timeline(
        start_s=window.start_ns / NS_PER_S,
        end_s=window.end_ns / NS_PER_S,
        arrivals_per_s=_list(bins.count(sent) * NS_PER_S / bins.widths),
        completions_per_s=_list(bins.count(table.finish_ns[done]) * NS_PER_S / bins.widths),
        asked=asked.tolist(),
        attainment=attained,
        waiting=_list(waiting),
        serving=_list(serving.sum(axis=0)),
        serving_least=_list(serving.min(axis=0)),
        serving_most=_list(serving.max(axis=0)),
        replicas=(serving > 0).sum(axis=0).tolist(),
        **_of_arrivals(result, bins),
        kv_mean=kv_mean,
        kv_most=kv_most,
        kv_from=kv_from,
    )


class Bins:
    """Bins of equal width over start_ns to end_ns; the last one holds its end. widths : int64[n], ns."""

    def __init__(self, start_ns: int, end_ns: int, requests: int):
        n = max(FEWEST_BINS, min(MOST_BINS, requests // A_BIN))
        length = end_ns - start_ns
        self.n = min(n, length)
        self.edges = np.array([start_ns + length * i // self.n for i in range(self.n + 1)], dtype=np.int64)
        self.widths = np.diff(self.edges)

    def of(self, times: np.ndarray) -> np.ndarray:
        """The bin of each time (int64[k], within the window), int64[k]."""
        return np.clip(np.searchsorted(self.edges, times, side="right") - 1, 0, self.n - 1)

    def count(self, times: np.ndarray) -> np.ndarray:
        """How many of `times` (int64[k], ns) are in each bin, int64[n]; those outside of all are left out."""
        inside = times[(times >= self.edges[0]) & (times <= self.edges[-1])]
        return np.bincount(self.of(inside), minlength=self.n)

    def present(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, groups: int) -> np.ndarray:
        """Mean number present in each bin by group, float64[groups, n]. starts, ends : int64[k], ns; rows : group of each."""
        starts, ends = (np.clip(times, self.edges[0], self.edges[-1]) for times in (starts, ends))
        held = self._held(starts, rows, groups) - self._held(np.maximum(starts, ends), rows, groups)
        return held / self.widths

    def _held(self, times: np.ndarray, rows: np.ndarray, groups: int) -> np.ndarray:
        """Integral over each bin of how many of `times` have passed, float64[groups, n]."""
        place = self.of(times)
        flat, size = rows * self.n + place, groups * self.n
        passed = np.bincount(flat, minlength=size).reshape(groups, self.n)
        part = np.bincount(flat, weights=self.edges[place + 1] - times, minlength=size).reshape(groups, self.n)
        return (np.cumsum(passed, axis=1) - passed) * self.widths + part


def _list(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def _shares(part: np.ndarray, whole: np.ndarray) -> list[float | None]:
    """part / whole in each bin; None where there is no whole."""
    return [float(f"{p / w:.6g}") if w else None for p, w in zip(part.tolist(), whole.tolist(), strict=True)]


def _attainment(result: Any, bins: Bins) -> tuple[np.ndarray, list[float | None]]:
    """By when requests were due."""
    seen = slo.stand_all(result, result.due)
    due = result.table.intended_ns
    asked, met = (
        bins.count(np.maximum(due[seen.asked], bins.edges[0])),
        bins.count(np.maximum(due[seen.met], bins.edges[0])),
    )
    return asked, _shares(met, asked)


def _presence(result: Any, bins: Bins) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """When each request that arrived left (int64[rows]); who waits, float64[n]; who is served, float64[replicas, n]."""
    table, here = result.table, result.arrived & (result.table.outcome != Outcome.REJECTED)
    left = np.maximum(table.finish_ns, table.gave_up_ns)
    left = np.where(table.outcome == Outcome.UNFINISHED, max(result.end_ns, int(bins.edges[-1])), left)
    began = table.first_scheduled_ns != UNSET
    first = np.where(began, np.minimum(table.first_scheduled_ns, left), left)
    waiting = bins.present(table.arrival_ns[here], first[here], np.zeros(int(here.sum()), dtype=np.int64), 1)[0]
    served = here & began & (table.replica >= 0)
    replicas = max(len(result.usage), int(table.replica.max(initial=0)) + 1)
    return left, waiting, bins.present(first[served], left[served], table.replica[served], replicas)


def _of_arrivals(result: Any, bins: Bins) -> dict[str, Any]:
    """What became of the requests that arrived in each bin and were taken in."""
    table, here = result.table, result.arrived & (result.table.outcome != Outcome.REJECTED)
    place = bins.of(table.arrival_ns[here])
    arrived = np.bincount(place, minlength=bins.n)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, weights=values[here], minlength=bins.n)

    return {
        "waits": {name: _shares(total(getattr(table, f"wait_{name}_ns")) / NS_PER_S, arrived) for name in WORDS},
        "preemptions": total(table.preemptions).astype(np.int64).tolist(),
        "cached_share": _shares(total(table.cached_tokens), total(table.prompt_tokens)),
    }


def _kv(result: Any, bins: Bins, left: np.ndarray) -> tuple[list[float] | None, list[float] | None, str | None]:
    """kv_mean, kv_most, kv_from."""
    if result.kv is None or result.kv.get("blocks") is None or result.pools:
        return None, None, None
    replicas = max(1, len(result.usage), int(result.table.replica.max(initial=0)) + 1)
    block = result.kv["block_size"]
    if result.step_log is not None:
        share, kind = _held_in_steps(result.step_log, bins, replicas), STEPS
    else:
        share, kind = _held_by_length(result.table, bins, left, replicas, block) / block, LENGTHS
    share = share / max(1, result.kv["blocks"] - 1)
    return _list(share.mean(axis=0)), _list(share.max(axis=0)), kind


def _held_in_steps(log: Any, bins: Bins, replicas: int) -> np.ndarray:
    """Blocks held, mean over each bin, float64[replicas, n]: from a step's start to the next one's, at most to its end."""
    order = np.lexsort((log.start_ns, log.replica))
    replica, start, end, blocks = (getattr(log, name)[order] for name in ("replica", "start_ns", "end_ns", "kv_blocks"))
    same = replica[1:] == replica[:-1]
    end = np.append(np.where(same, np.minimum(end[:-1], start[1:]), end[:-1]), end[-1:])
    begins, ends = (np.clip(times, bins.edges[0], bins.edges[-1]) for times in (start, end))
    held = np.zeros((replicas, bins.n))
    first, last = bins.of(begins), bins.of(ends)
    # a step lies in one bin, or it is cut at the edge of each bin that it reaches into
    for reach in range(int((last - first).max(initial=0)) + 1):
        cut = last - first >= reach
        place = first[cut] + reach
        spent = np.minimum(ends[cut], bins.edges[place + 1]) - np.maximum(begins[cut], bins.edges[place])
        np.add.at(held, (replica[cut], place), blocks[cut] * np.maximum(0, spent))
    return held / bins.widths


def _held_by_length(table: Any, bins: Bins, left: np.ndarray, replicas: int, block: int) -> np.ndarray:
    """Tokens' room held in the middle of each bin, float64[replicas, n], as if nothing were shared or lost: the whole prompt
    from the first step on, one more for each token of the answer as if these came evenly, and half a block that isn't full."""
    served = (table.first_scheduled_ns != UNSET) & (table.replica >= 0)
    start, end = table.first_scheduled_ns[served], left[served]
    begun = table.first_token_ns[served] != UNSET
    first = np.clip(np.where(begun, table.first_token_ns[served], end), start, end)
    base, made = table.prompt_tokens[served] + block / 2, np.where(begun, table.generated_tokens[served], 0)
    looks = (bins.edges[:-1] + bins.edges[1:]) / 2 - bins.edges[0]
    held = np.zeros((replicas, bins.n))
    for replica in range(replicas):
        mine = table.replica[served] == replica
        held[replica] = _ramps(looks, bins.edges[0], start[mine], first[mine], base[mine], np.zeros(mine.sum()))
        held[replica] += _ramps(looks, bins.edges[0], first[mine], end[mine], base[mine], made[mine])
    return held


def _ramps(
    looks: np.ndarray, zero: int, start: np.ndarray, end: np.ndarray, base: np.ndarray, grown: np.ndarray
) -> np.ndarray:
    """Sum at each of `looks` (ns after zero) of lines from base at start to base + grown at end, nothing outside."""
    real = end > start
    start, end, base, grown = (
        np.asarray(values, dtype=float)[real] for values in (start - zero, end - zero, base, grown)
    )
    slope = grown / (end - start)
    level = base - slope * start
    order_in, order_out = np.argsort(start), np.argsort(end)
    total = np.zeros(len(looks))
    for order, times, sign in ((order_in, start, 1.0), (order_out, end, -1.0)):
        passed = np.searchsorted(times[order], looks, side="right")
        slopes, levels = (np.concatenate(([0.0], np.cumsum(values[order])))[passed] for values in (slope, level))
        total += sign * (slopes * looks + levels)
    return np.maximum(total, 0.0)
