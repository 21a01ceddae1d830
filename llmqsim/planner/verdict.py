"""One difference, judged: better, worse, no difference shown, or not enough runs to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmqsim.metrics import stats
from llmqsim.planner.figures import HIGHER, NEITHER, Metric, Seen

MARGIN = 0.05
"""a relative difference that would not matter; a tenth of it, absolute, for shares"""
SHARE_MARGIN = 0.1
BETTER, WORSE, HIGH, LOW = "better", "worse", "higher", "lower"
SAME, UNCLEAR = "no difference shown", "not enough runs"


@dataclass(frozen=True)
class Judge:
    """Differences of figures over paired runs. segments : there is one run, so its batches stand for replications."""

    margin: float = MARGIN
    segments: bool = False

    def told(self, metric: Metric, base: Sequence[Seen], other: Sequence[Seen], group: str | None) -> dict[str, Any] | None:
        """base and other (means over runs), difference with low and high, relative difference, verdict.

        group : a name of Seen.groups, None for all requests. None where a run has no such figure.
        """
        a, b = ([s.figure(metric, None if group is None else s.groups[group]) for s in seen] for seen in (base, other))
        if None in a or None in b:
            return None
        found = self._interval(metric, a, b, base[0], other[0], group)
        start = float(np.mean(a))
        return {
            "base": start,
            "value": float(np.mean(b)),
            "difference": found.mean,
            "low": found.low,
            "high": found.high,
            "relative": found.mean / start if start else None,
            "n": found.n,
            "method": found.method,
            "verdict": self.verdict(metric, found, start),
        }

    def verdict(self, metric: Metric, found: stats.Interval, base: float) -> str:
        """In words. An interval that holds 0 shows no difference only where it excludes any that would matter."""
        allowed = SHARE_MARGIN * self.margin if metric.unit == "share" else self.margin * abs(base)
        if found.low is None or found.high is None:
            return UNCLEAR
        if found.low <= 0 <= found.high:
            return SAME if max(-found.low, found.high) <= allowed and found.settled else UNCLEAR
        up = found.mean > 0
        if metric.better == NEITHER:
            return HIGH if up else LOW
        return BETTER if up == (metric.better == HIGHER) else WORSE

    def _interval(
        self, metric: Metric, a: list, b: list, base: Seen, other: Seen, group: str | None
    ) -> stats.Interval:
        if not self.segments:
            return stats.paired(a, b)
        return _within_one_run(metric, base, other, group) or stats.t_interval([b[0] - a[0]])


def _within_one_run(metric: Metric, base: Seen, other: Seen, group: str | None) -> stats.Interval | None:
    """The difference with the spread of the same difference over batches of the same rows; None for whole-run figures."""
    if not metric.of_requests:
        return None
    part = np.ones(len(base.rows), dtype=bool) if group is None else base.groups[group]
    rows = np.flatnonzero((base.rows | other.rows) & part)  # row order is the order in which they were due
    if len(rows) < 5 * stats.BATCHES:
        return None

    def difference(chosen: np.ndarray) -> float:
        mask = np.zeros(len(base.rows), dtype=bool)
        mask[chosen] = True
        one, two = base.figure(metric, mask), other.figure(metric, mask)
        return np.nan if one is None or two is None else two - one

    found = stats.sectioned([rows], difference)
    return None if found.low is None or np.isnan(found.low) else found
