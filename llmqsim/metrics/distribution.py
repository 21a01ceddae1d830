"""Mean, percentiles and maximum of a sample of durations, the same way for every metric.

Percentiles interpolate linearly between order statistics (position (n - 1) q, numpy's default). Sums of integers are
exact and sums of floats are correctly rounded, so that a figure does not depend on the processor's vector width.
"""

from __future__ import annotations

import math

import numpy as np

from llmqsim.metrics import kernels
from llmqsim.records import GapHistogram, gap_bin_edges

PERCENTILES: tuple[int, ...] = (50, 90, 95, 99)
KEYS: tuple[str, ...] = ("mean", "p50", "p90", "p95", "p99", "max", "n")
NS_PER_S = 10**9


def ratio(part: float, whole: float) -> float | None:
    """part / whole, or None when there is no whole: a share of nothing is unknown, not zero."""
    return part / whole if whole else None


def exact_sum(values: np.ndarray) -> int | float:
    """Sum without rounding (int64, beyond 2**63 too) or rounded once (float64, finite)."""
    if not len(values):
        return 0
    if values.dtype.kind == "i":
        if max(abs(int(values.max())), abs(int(values.min()))) * len(values) < 1 << 63:
            return int(values.sum())
        return (int(np.sum(values >> 31)) << 31) + int(np.sum(values & 0x7FFFFFFF))
    return _rounded_once(values)


def _rounded_once(values: np.ndarray) -> float:
    """Sum of float64[n >= 1] as `math.fsum` has it, without a Python number for each."""
    low, high = np.zeros((2, kernels.EXPONENTS), dtype=np.int64)
    kernels.add_floats(np.ascontiguousarray(values).view(np.int64), low, high)
    total = 0
    for exponent in np.flatnonzero(low | high).tolist():
        mantissas = (int(high[exponent]) << kernels.HALF) + int(low[exponent])
        total += mantissas << max(exponent - 1, 0)
    return total / (1 << 1074)  # the quotient of two whole numbers is rounded once


def up_to(times: np.ndarray, looks: np.ndarray) -> np.ndarray:
    """How many of `times` are not after each of `looks`, int64[looks]; both int64 and sorted."""
    counts = np.empty(len(looks), dtype=np.int64)
    kernels.count_up_to(times, looks, counts)
    return counts


def in_order(values: np.ndarray) -> np.ndarray:
    """The same values, sorted, a copy; int64[n] or float64[n] without NaN.

    Floats that are not negative are in the order of their bits, and whole numbers are sorted twice as fast.
    """
    if values.dtype == np.float64:
        bits = np.ascontiguousarray(values).view(np.int64)
        if len(bits) and bits.min() >= 0:
            return np.sort(bits).view(np.float64)
    return np.sort(values)


def quantile(ordered: np.ndarray, q: float) -> float:
    """`np.quantile` of what is sorted already, to the last bit; ordered : int64[n >= 1], q : in [0, 1]."""
    place = (len(ordered) - 1) * q
    below = int(place)
    share = place - below
    low, high = ordered[below].item(), ordered[min(below + 1, len(ordered) - 1)].item()
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


def median(ordered: np.ndarray) -> float:
    """`np.median` of what is sorted already; ordered : [n >= 1]."""
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1 : half + 1].mean())


def median_count(counts: np.ndarray) -> float:
    """`np.median` of int64[n >= 1]; by counting where they are not negative and not much larger than there are."""
    if counts.min() < 0 or counts.max() > 4 * len(counts):
        return float(np.median(counts))
    upto = np.cumsum(np.bincount(counts))
    low, high = (int(np.searchsorted(upto, rank, side="right")) for rank in ((len(counts) - 1) // 2, len(counts) // 2))
    return (low + high) / 2


def percentile(ordered: np.ndarray, percent: int) -> float:
    """Percentile of a sorted, non-empty array in its own unit, by linear interpolation."""
    below, hundredths = divmod((len(ordered) - 1) * percent, 100)
    low = ordered[below].item()
    if not hundredths:
        return low
    return (low * 100 + (ordered[below + 1].item() - low) * hundredths) / 100


def describe_ns(values: np.ndarray) -> dict[str, float | int | None]:
    """Describe durations in ns (int64[n] or float64[n]) in seconds: KEYS to numbers, None where n is 0."""
    count = len(values)
    if not count:
        return {**dict.fromkeys(KEYS), "n": 0}
    ordered = in_order(values)
    figures: dict[str, float | int | None] = {"mean": exact_sum(values) / (count * NS_PER_S)}
    for percent in PERCENTILES:
        figures[f"p{percent}"] = percentile(ordered, percent) / NS_PER_S
    return figures | {"max": ordered[-1].item() / NS_PER_S, "n": count}


def describe_weighted_ns(values: np.ndarray, weights: np.ndarray) -> dict[str, float | int | None]:
    """describe_ns of values (float64[n] or int64[n], ns) of which each stands `weights` (int64[n] >= 1) times."""
    count = int(exact_sum(weights))
    if not count:
        return {**dict.fromkeys(KEYS), "n": 0}
    order = np.argsort(values, kind="stable")
    ordered, upto = values[order], np.cumsum(weights[order])
    figures: dict[str, float | int | None] = {"mean": exact_sum(values * weights) / (count * NS_PER_S)}
    for percent in PERCENTILES:
        below, hundredths = divmod((count - 1) * percent, 100)
        ranks = (below, below + (hundredths > 0))
        low, high = (ordered[np.searchsorted(upto, rank, side="right")].item() for rank in ranks)
        figures[f"p{percent}"] = (low * 100 + (high - low) * hundredths) / 100 / NS_PER_S
    return figures | {"max": ordered[-1].item() / NS_PER_S, "n": count}


def std_ns(values: np.ndarray) -> float | None:
    """Population standard deviation of durations in ns (int64[n] or float64[n]), in seconds; None where n is 0."""
    count = len(values)
    if not count:
        return None
    offset = values - exact_sum(values) / count
    return math.sqrt(exact_sum(offset * offset) / count) / NS_PER_S


class WeightedGaps:
    """Gaps of some classes as (value, weight) pairs, from the histogram.

    Count, mean and maximum are exact. A percentile is the middle of a bin at most 2**-8 of its value wide, so it is
    within 0.2 %; it is exact when all gaps share one bin and equal one another.
    """

    def __init__(self, gaps: GapHistogram, classes: list[int] | None = None):
        chosen = list(range(len(gaps.sum_ns))) if classes is None else classes
        counts = gaps.counts[chosen].sum(axis=0)
        filled = np.flatnonzero(counts)
        edges = gap_bin_edges()
        self.weights = counts[filled]
        self.count = int(self.weights.sum())
        self.sum_ns = sum(gaps.sum_ns[c] for c in chosen)
        self.max_ns = max((gaps.max_ns[c] for c in chosen), default=0)
        middle = (edges[filled] + edges[filled + 1] - 1) / 2
        self.values = np.minimum(middle, self.max_ns)
        if len(filled) == 1:
            self.values = np.array([self.sum_ns / self.count])

    def describe(self) -> dict[str, float | int | None]:
        """As describe_ns, over all gaps (one a token)."""
        if not self.count:
            return {**dict.fromkeys(KEYS), "n": 0}
        figures: dict[str, float | int | None] = {"mean": self.sum_ns / (self.count * NS_PER_S)}
        upto = np.cumsum(self.weights)
        for percent in PERCENTILES:
            below, hundredths = divmod((self.count - 1) * percent, 100)
            low, high = (
                self.values[min(np.searchsorted(upto, rank, side="right"), len(upto) - 1)].item()
                for rank in (below, below + 1)
            )
            figures[f"p{percent}"] = (low + (high - low) * hundredths / 100) / NS_PER_S
        return figures | {"max": self.max_ns / NS_PER_S, "n": self.count}

    def std(self) -> float | None:
        """Population standard deviation in seconds, within 0.4 %; None without gaps."""
        if not self.count:
            return None
        offset = self.values - self.sum_ns / self.count
        return math.sqrt(math.fsum((self.weights * offset * offset).tolist()) / self.count) / NS_PER_S
