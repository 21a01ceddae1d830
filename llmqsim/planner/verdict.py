"""One difference, judged: better, worse, no difference shown, or not enough runs to say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmqsim.metrics import stats
from llmqsim.metrics.differences import ENOUGH_BATCHES, LEAST_BEYOND
from llmqsim.metrics.stats import BATCHES
from llmqsim.planner import within
from llmqsim.planner.figures import HIGHER, NEITHER, TENTHS, Metric, Seen

MARGIN = 0.05
"""a relative difference that would not matter; a tenth of it, absolute, for shares"""
SHARE_MARGIN = 0.1
ENOUGH = 10
"""replications from which on every figure has a verdict: what was not shown was smaller than `smallest_seen`"""
BETTER, WORSE, HIGH, LOW = "better", "worse", "higher", "lower"
SAME, UNCLEAR = "no difference shown", "not enough runs"
GROWING = ("ttft_s", "e2e_s", "wait_s", "ntpot_s", "slowdown")
"""series that hold the time in the queue"""
MOST_TIMES = 1000
"""a longer run than this is no advice"""


@dataclass(frozen=True)
class Told:
    """One difference. base, value : means over runs. low, high : 95 %; None where nothing says how well it is known.

    n : replications in which both have the figure, or batches. smallest_seen : the smallest difference that this
    comparison would have called, as well as it is known (the wider half of the interval, or the difference itself where
    that is less and was called). settles : {"replications": n}
    or {"requests": n}: about what it takes for a verdict where there is none; None where nothing helps.
    """

    base: float
    value: float
    difference: float
    low: float | None
    high: float | None
    relative: float | None
    n: int
    method: str
    verdict: str
    smallest_seen: float | None
    settles: dict[str, int] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, by these names."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Judge:
    """Differences of figures over paired runs.

    segments : there is one run, so its batches stand for replications. replicable : more runs of other traffic are to
    be had.
    """

    margin: float = MARGIN
    segments: bool = False
    replicable: bool = True
    _whole: dict[tuple[str, int, int], stats.Interval | None] = field(default_factory=dict, repr=False, compare=False)
    """intervals of whole runs that tenths are held against, by figure and runs (kept here as long as those are)"""

    def told(self, metric: Metric, base: Sequence[Seen], other: Sequence[Seen], group: str | None) -> Told | None:
        """The difference of a figure, over the runs in which both have it; None where there is none.

        group : a name of Seen.groups, None for all requests.
        """
        pairs = [(a.of(metric, group), b.of(metric, group)) for a, b in zip(base, other, strict=True)]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if not known:
            return None
        before, after = ([pair[i] for pair in known] for i in (0, 1))
        found = self._interval(metric, before, after, base, other, group)
        start = float(np.mean(before))
        verdict = self.verdict(metric, found, start)
        if self.segments and group is None and verdict == UNCLEAR:
            verdict = _by_stability(metric, found.mean, base[0], other[0])
        return Told(
            base=start,
            value=float(np.mean(after)),
            difference=found.mean,
            low=found.low,
            high=found.high,
            relative=found.mean / start if start else None,
            n=found.n,
            method=found.method,
            verdict=verdict,
            smallest_seen=self._smallest(found, metric, base[0], other[0], group),
            settles=self._settles(metric, found, start, base, group) if verdict == UNCLEAR else None,
        )

    def verdict(self, metric: Metric, found: stats.Interval, base: float) -> str:
        """In words. What did not settle is not judged. An interval that holds 0 shows no difference where it excludes
        any that would matter, or where there are replications enough for `smallest_seen` to say it all."""
        if found.low is None or found.high is None or not found.settled:
            return UNCLEAR
        if found.low <= 0 <= found.high:
            enough = found.method == "replications" and found.n >= ENOUGH
            narrow = max(-found.low, found.high) <= self._allowed(metric, base)
            return SAME if enough or narrow else UNCLEAR
        up = found.mean > 0
        if metric.better == NEITHER:
            return HIGH if up else LOW
        return BETTER if up == (metric.better == HIGHER) else WORSE

    def _smallest(
        self, found: stats.Interval, metric: Metric, base: Seen, other: Seen, group: str | None
    ) -> float | None:
        """`smallest_seen`; of a tenth of one run no less than a tenth of its requests tells anywhere in the run.

        A calm tenth says little of how much it might have differed: the run has others, and which one a burst falls
        into is chance.
        """
        least = smallest_seen(found)
        if least is None or not self.segments or group is None or not group.startswith("time:"):
            return least
        key = (metric.key, id(base), id(other))
        if key not in self._whole:
            self._whole[key] = within.difference(metric, base, other, None)
        whole = self._whole[key]
        if whole is None or whole.low is None or whole.high is None or not whole.settled:
            return None
        wider = max(whole.high - whole.mean, whole.mean - whole.low)
        wider = max(least, math.sqrt(TENTHS) * wider * stats.spread_limit(whole.freedom or BATCHES - 1))
        return wider if found.low is not None and found.low <= 0 <= (found.high or 0) else min(wider, abs(found.mean))

    def _allowed(self, metric: Metric, base: float) -> float:
        """A difference that would not matter."""
        return SHARE_MARGIN * self.margin if metric.unit == "share" else self.margin * abs(base)

    def _interval(
        self, metric: Metric, a: list, b: list, base: Sequence[Seen], other: Sequence[Seen], group: str | None
    ) -> stats.Interval:
        if not self.segments:
            found = stats.paired(a, b)
        else:
            found = within.difference(metric, base[0], other[0], group) or stats.t_interval([b[0] - a[0]])
        return _no_less(found, metric, base, other, group) if metric.key == "attainment" else found

    def _settles(
        self, metric: Metric, found: stats.Interval, start: float, base: Sequence[Seen], group: str | None
    ) -> dict[str, int] | None:
        """About what it takes. The width of an interval falls with the root of what is behind it."""
        allowed, runs = self._allowed(metric, start), len(base)
        if not self.segments:
            if found.low is None and runs > 1:  # few of the runs have the figure at all
                return {"replications": math.ceil(ENOUGH * runs / found.n)}
            times = 2.0 if found.low is None or not allowed else (reach(found) / allowed) ** 2
            return {"replications": min(max(math.ceil(times * found.n), found.n + 1), ENOUGH)}
        if self.replicable:
            return {"replications": ENOUGH}
        if found.low is None and found.method != "batches":
            return None
        if found.low is None:
            times = max(2.0, _too_few(metric, base[0], group), ENOUGH_BATCHES / max(found.n, 1) if found.n else 0.0)
        elif not found.settled or not allowed:
            times = 2.0
        else:
            times = (reach(found) / allowed) ** 2
        return None if times > MOST_TIMES else {"requests": _rounded_up(times * int(base[0].rows.sum()))}


def _by_stability(metric: Metric, difference: float, base: Seen, other: Seen) -> str:
    """Where one run is stable and the other overloaded, waits of the latter grow with its length: no batches tell by
    how much, and it is worse all the same."""
    if metric.key.partition(".")[0] not in GROWING:
        return UNCLEAR
    verdicts = tuple(seen.summary["stability"]["verdict"] for seen in (base, other))
    if verdicts == ("stable", "overloaded") and difference > 0:
        return WORSE
    return BETTER if verdicts == ("overloaded", "stable") and difference < 0 else UNCLEAR


def _too_few(metric: Metric, base: Seen, group: str | None) -> float:
    """How many times as many requests of a group it takes to have enough beyond a percentile; 0 for other figures."""
    statistic = metric.key.rpartition(".")[2]
    if not statistic.startswith("p") or not statistic[1:].isdigit():
        return 0.0
    beyond = 2 * (1 - float(statistic[1:]) / 100) * int(base.counted(metric, group).sum())
    return LEAST_BEYOND / beyond if beyond else 0.0


def smallest_seen(found: stats.Interval) -> float | None:
    """The wider half of an interval: a difference beyond it would have been called; None where there is none, or none
    to be trusted, or where all runs are alike, which says nothing of how they might differ. No more than a difference that
    was called: the interval of one may reach further beyond it than it stands from 0. From one run, with the spread as
    large as its batches, few and hanging together, allow (stats.spread_limit)."""
    if found.low is None or found.high is None or found.low == found.high or not found.settled:
        return None
    wider = max(found.high - found.mean, found.mean - found.low)
    wider *= 1.0 if found.freedom is None else stats.spread_limit(found.freedom)
    return wider if found.low <= 0 <= found.high else min(wider, abs(found.mean))


def reach(found: stats.Interval) -> float:
    """How far the interval reaches from 0."""
    return max(-found.low, found.high) if found.low is not None and found.high is not None else math.inf


def _no_less(
    found: stats.Interval, metric: Metric, base: Sequence[Seen], other: Sequence[Seen], group: str | None
) -> stats.Interval:
    """Attainment that is alike in every run, where the times are not: so many requests show no rarer difference."""
    if found.low is None or found.low != found.high:
        return found
    total, alike = 0, True
    for a, b in zip(base, other, strict=True):
        one, two = a.counted(metric, group), b.counted(metric, group)
        total += int(two.sum())
        for series in ("ttft_s", "e2e_s"):
            alike = alike and np.array_equal(a.values[series][one], b.values[series][two], equal_nan=True)
    if alike or not total:
        return found
    half = stats.unseen(total)
    return stats.Interval(found.mean, found.mean - half, found.mean + half, found.n, found.method)


def _rounded_up(requests: float) -> int:
    """To two digits: no more is known."""
    unit = 10 ** max(math.floor(math.log10(requests)) - 1, 0)
    return math.ceil(requests / unit) * unit
