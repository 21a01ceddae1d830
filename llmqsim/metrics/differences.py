"""Differences between two runs, judged by what their requests say in order: batches of one run stand for replications.

A figure of a whole run is taken apart into what each request adds to its error (its influence: Hampel 1974), and the
sums of that over BATCHES batches are compared, so that the spread is that of the whole run's figure and not of the
figures of its twentieths: a P99 of 200 requests is another figure than a P99 of 4,000, with another spread. A
percentile's influence needs a density that a tail does not show, so its interval is read off shares instead
(`percentile_difference`). Nothing here knows the engine or a scenario.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from llmqsim.metrics.stats import (
    BATCHES,
    CONFIDENCE,
    MOST_CORRELATION,
    Interval,
    bent,
    inflation,
    part_error,
    t_quantile,
)

STEPS = 12
"""halvings of a bracket around a limit: it is known to a thousandth of the interval"""
ENOUGH_BATCHES = 8
"""with fewer batches in which the runs differ beyond a percentile, few patterns of signs can speak against chance"""
LEAST_BEYOND = 3 * BATCHES
"""requests of both runs together beyond a percentile, below which shares of batches are a matter of one request or none"""


@dataclass(frozen=True)
class Places:
    """The batch of each row of two runs, int64[rows], BATCHES where a row is in none.

    paired : the rows are the same requests in both, so that a batch holds the same ones.
    """

    a: np.ndarray
    b: np.ndarray
    paired: bool

    def parts(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Sums over batches of b less those of a, times BATCHES; a, b : float64[rows]. float64[BATCHES]."""
        return BATCHES * (_sums(self.b, b) - _sums(self.a, a))

    def active(self, a: np.ndarray, b: np.ndarray) -> int:
        """Batches in which any request differs between the runs; all where they are not the same requests."""
        if not self.paired:
            return BATCHES
        return len(np.unique(self.a[(a != b) & (self.a < BATCHES)]))


def placed(order: np.ndarray, rows: int) -> np.ndarray:
    """The batch of each row, int64[rows]. order : the rows that count, int64[k], as they were due."""
    place = np.full(rows, BATCHES, dtype=np.int64)
    place[order] = np.arange(len(order)) * BATCHES // max(len(order), 1)
    return place


def of_mean(values: np.ndarray) -> np.ndarray:
    """What each adds to the error of the mean of float64[rows] (NaN: has none), float64[rows]; 0 for those."""
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros(len(values))
    return np.where(known, values - values[known].mean(), 0.0) / known.sum()


def of_ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The same of sum(above) / sum(below), float64[rows] each."""
    total = below.sum()
    return (above - below * (above.sum() / total)) / total if total else np.zeros(len(above))


def of_jain(values: np.ndarray) -> np.ndarray:
    """The same of Jain's index (mean x)^2 / mean x^2 of float64[rows] (NaN: has none)."""
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros(len(values))
    mean, square = values[known].mean(), (values[known] ** 2).mean()
    slope = 2 * mean / square * (values - mean) - (mean / square) ** 2 * (values**2 - square)
    return np.where(known, slope, 0.0) / known.sum()


def memory(order_a: np.ndarray, order_b: np.ndarray, shorter: int) -> float:
    """How much more the mean of a long stretch varies than if stretches `shorter` times as short were independent.

    order_a, order_b : influences of two runs in the order in which requests were due, float64[k] each. A part of a run,
    cut into batches, is too short to show how long its own differences last; the whole run does show it. At least 1.
    """
    spreads = []
    for pieces in (BATCHES, BATCHES * shorter):
        sums = [np.bincount(np.arange(len(x)) * pieces // len(x), x, pieces) for x in (order_a, order_b)]
        spreads.append((sums[1] - sums[0]) * pieces)
    fine = float(spreads[1].var(ddof=1)) / (BATCHES * shorter)
    return max(part_error(spreads[0])[0] ** 2 / fine, 1.0) if fine else 1.0


def of_parts(
    difference: float,
    parts: np.ndarray,
    active: int,
    skewed: bool = True,
    ends: np.ndarray | None = None,
    memory: float = 1.0,
    confidence: float = CONFIDENCE,
) -> Interval:
    """The interval of a difference from the parts that its batches have in its error (Places.parts).

    active : batches in which the runs differ at all; those that are alike in both say nothing of the spread, so they
    give no degree of freedom. skewed : bend it by Willink's term (not for shares in a tail). ends : what the end of the
    run adds to the difference, if it ended after each batch; float64[BATCHES]. memory : of `memory`.
    """
    spread, correlation = part_error(parts, memory)
    error = spread
    if ends is not None:
        error = math.hypot(spread, _single(ends))
        active = max(active, int(np.count_nonzero(ends)))
    if error == 0:
        return Interval(difference, difference, difference, BATCHES, "batches", confidence)
    freedom = degrees(active, correlation)
    t = t_quantile(confidence, freedom)
    low, high = bent(t, parts) if skewed and spread else (-t, t)
    ends_at = difference - high * error, difference - low * error
    return Interval(difference, *ends_at, BATCHES, "batches", confidence, correlation < MOST_CORRELATION, freedom)


def _single(series: np.ndarray) -> float:
    """Standard deviation of one value of a series whose values hang together, float64[BATCHES].

    About their mean, which takes part of the spread with it: the more, the longer they hang together. Not about 0:
    where one of two runs falls behind, the end of the run is a difference, not chance.
    """
    error, correlation = part_error(series)
    widened = inflation(correlation)
    return error * math.sqrt(BATCHES / widened / (1 - (widened - 1) / (BATCHES - 1))) if error else 0.0


def degrees(active: int, correlation: float) -> float:
    """Degrees of freedom of the variance of batches that hang together: those of so many independent ones. At least 1.

    active : batches that differ at all. Squares of a first-order series with correlation r between neighbours have one
    of r^2, so n of them tell as much as n (1 - r^2) / (1 + r^2) that know nothing of one another (Bartlett 1946).
    """
    square = min(max(correlation, 0.0), MOST_CORRELATION) ** 2
    return max(min(active, BATCHES * (1 - square) / (1 + square)) - 1, 1)


def percentile_difference(
    a: np.ndarray, b: np.ndarray, percent: float, places: Places, memory: float = 1.0, confidence: float = CONFIDENCE
) -> Interval:
    """Percentile of b less that of a (float64[rows], NaN: has none), with the shifts of b that a test of shares allows.

    For a shift d, take the percentile of a and b - d together and compare the shares of either above it, batch by
    batch. The interval holds all d that this test does not reject (a test turned round, as Hodges and Lehmann 1963 do):
    no density is needed, and it leaves 0 out just where the test speaks against equal percentiles. low, high are None
    (n: the batches that tell, 0 with fewer than LEAST_BEYOND requests) where no shift is ever rejected: what lies beyond
    the percentile came in too few spells.
    """
    test = _Shares(a, b, percent, places, memory, confidence)
    if test.same:
        return Interval(0.0, 0.0, 0.0, BATCHES, "batches", confidence)
    few = (1 - percent / 100) * (len(test.a) + len(test.b)) < LEAST_BEYOND
    low = None if few else test.limit(-1)
    high = None if low is None else test.limit(+1)
    if low is None or high is None:
        return Interval(test.difference, None, None, test.telling, "batches", confidence, settled=False)
    return Interval(test.difference, low, high, BATCHES, "batches", confidence, test.settled, test.freedom)


class _Shares:
    """The test of one shift, and how far shifts may go."""

    def __init__(self, a: np.ndarray, b: np.ndarray, percent: float, places: Places, memory: float, confidence: float):
        self.same = places.paired and np.array_equal(a, b, equal_nan=True)
        self.percent, self.confidence, self.paired, self.memory = percent, confidence, places.paired, memory
        has_a, has_b = (~np.isnan(x) & (p < BATCHES) for x, p in ((a, places.a), (b, places.b)))
        self.a, self.b = a[has_a], b[has_b]
        self.place_a, self.place_b = places.a[has_a], places.b[has_b]
        self.row_a, self.row_b = np.flatnonzero(has_a), np.flatnonzero(has_b)
        self.rows = max(len(a), len(b))
        self.difference = float(np.percentile(self.b, percent) - np.percentile(self.a, percent))
        self.span = float(max(self.a.max(), self.b.max()) - min(self.a.min(), self.b.min()))
        self.settled, self.telling, self.freedom = True, 0, 1.0

    def limit(self, way: int) -> float | None:
        """The furthest shift on one side (-1, +1) that is not rejected; None where none is rejected."""
        if not self.rejects(self.difference + way * 2 * self.span):
            return None
        inside, step = self.difference, max(abs(self.difference), 1e-3 * self.span)
        while not self.rejects(inside + way * step):
            inside, step = inside + way * step, 2 * step
        outside = inside + way * step
        for _ in range(STEPS):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if self.rejects(middle) else (middle, outside)
        return inside

    def rejects(self, shift: float) -> bool:
        """Do the shares above the common percentile differ by more than chance, if b is moved back by a shift?"""
        moved = self.b - shift
        cut = _percentile(np.concatenate([self.a, moved]), self.percent)
        above_a, above_b = (_above(x, cut, self.percent) for x in (self.a, moved))
        share_a, share_b = above_a.mean(), above_b.mean()
        if share_a == share_b:
            return False
        parts = BATCHES * (
            np.bincount(self.place_b, (above_b - share_b) / len(moved), BATCHES)
            - np.bincount(self.place_a, (above_a - share_a) / len(self.a), BATCHES)
        )
        error, correlation = part_error(parts, self.memory)
        self.telling = self._active(above_a, above_b)
        self.settled = correlation < MOST_CORRELATION
        self.freedom = degrees(self.telling, correlation)
        return abs(share_b - share_a) > t_quantile(self.confidence, self.freedom) * error

    def _active(self, above_a: np.ndarray, above_b: np.ndarray) -> int:
        if not self.paired:
            both = np.concatenate([self.place_a[above_a > 0], self.place_b[above_b > 0]])
            return len(np.unique(both))
        change = np.zeros(self.rows)
        change[self.row_b] += above_b
        change[self.row_a] -= above_a
        place = np.full(self.rows, BATCHES)
        place[self.row_a], place[self.row_b] = self.place_a, self.place_b
        return len(np.unique(place[change != 0]))


def _above(values: np.ndarray, cut: float, percent: float) -> np.ndarray:
    """1 above a cut, 0 below it; a part at it, so that the mean is the share beyond the percentile, if it can be.

    Where many values are equal (constant steps), both runs may have their percentile there with unequal shares above.
    """
    above, at = values > cut, values == cut
    found = above.astype(float)
    if at.any():
        found[at] = min(max(((1 - percent / 100) * len(values) - above.sum()) / at.sum(), 0.0), 1.0)
    return found


def _percentile(values: np.ndarray, percent: float) -> float:
    """The value with that rank, no interpolation: at least that share is not above it."""
    rank = max(math.ceil(len(values) * percent / 100 - 1e-9) - 1, 0)
    return float(np.partition(values, rank)[rank])


def _sums(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.bincount(place, values, BATCHES + 1)[:BATCHES]
