"""Intervals: how far a figure may be off because a run is a sample.

Independent replications give t-intervals. Requests of one run are correlated (they wait for one another), so one long
run is cut into batches (batch means), and what correlation and skewness are left between the batches widens the
interval. A share is never known better than independent requests would tell it. Nothing here knows the engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from llmqsim.metrics.student import t_quantile
from llmqsim.metrics.warmup import mser5

CONFIDENCE = 0.95
BATCHES = 20
"""of one run: with 10 to 60 the coverage on queues is alike (docs/compare.md), 20 leave the narrowest one"""
MOST_CORRELATION = 0.8
"""what is left between batches is believed up to here; beyond, the run is too short for its memory"""
SETTLED_CORRELATION = 0.5
MOST_BATCHES = 0.75


@dataclass(frozen=True)
class Interval:
    """A figure with its confidence interval. low, high : None where one sample is all there is.

    n : replications or batches behind it. settled : False where a single run is too short for its own memory, so that
    the interval can't be trusted. freedom : degrees of freedom of its spread, of one run's batches; not in plain data.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    method: str
    confidence: float = CONFIDENCE
    settled: bool = True
    freedom: float | None = None

    @property
    def half(self) -> float:
        """Half of its width; infinite where there is none."""
        return math.inf if self.low is None or self.high is None else (self.high - self.low) / 2

    def to_dict(self) -> dict[str, Any]:
        """Plain data: mean, low, high, n, method, confidence, settled."""
        return {key: value for key, value in asdict(self).items() if key != "freedom"}


def spread_limit(degrees: float, share: float = 0.8) -> float:
    """How many times its estimate a standard deviation may be, at this one-sided confidence (chi-square)."""
    from scipy.special import gammaincinv

    return math.sqrt(degrees / (2 * float(gammaincinv(degrees / 2, 1 - share))))


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean of independent replications. values : one figure a replication. Raises ValueError for none."""
    sample = np.asarray(values, dtype=float)
    if not len(sample):
        raise ValueError("no replication, no interval")
    mean = math.fsum(sample.tolist()) / len(sample)
    if len(sample) < 2:
        return Interval(mean, None, None, len(sample), "one run", confidence)
    half = t_quantile(confidence, len(sample) - 1) * _spread(sample) / math.sqrt(len(sample))
    return Interval(mean, mean - half, mean + half, len(sample), "replications", confidence)


def paired(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean difference b - a of replications that share their random numbers, one by one.

    A replication without a difference says nothing of the spread of differences, so it gives no degree of freedom: four
    equal differences among six zeros have one sign in one of eight cases by chance, and t with 9 degrees believes them.
    """
    sample = np.asarray(b, dtype=float) - np.asarray(a, dtype=float)
    found, told = t_interval(sample.tolist(), confidence), int(np.count_nonzero(sample))
    if found.low is None or told in (0, len(sample)):
        return found
    half = found.half * t_quantile(confidence, max(told - 1, 1)) / t_quantile(confidence, len(sample) - 1)
    return replace(found, low=found.mean - half, high=found.mean + half)


def unseen(total: int, confidence: float = CONFIDENCE) -> float:
    """The largest share of trials that none of `total` (at least 1) may show: 3.7 / total at 95 %, two-sided."""
    return 1 - ((1 - confidence) / 2) ** (1 / total)


def wilson(hits: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval of a share of independent trials (Wilson 1927). total : at least 1."""
    z = t_quantile(confidence, 10**9)
    share, spread = hits / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return (0.0 if hits == 0 else low), (1.0 if hits == total else high)


def share_interval(hits: Sequence[int], totals: Sequence[int], confidence: float = CONFIDENCE) -> Interval:
    """The share of requests, over replications of unequal size: ratio estimator with a t-interval.

    Widened to Wilson's interval of all requests together where replications agree more closely than independent
    requests could: ten runs without a miss don't prove that there are none. Raises ValueError for no request.
    """
    hit, total = np.asarray(hits, dtype=float), np.asarray(totals, dtype=float)
    if not total.sum():
        raise ValueError("no request, no share")
    share, runs = float(hit.sum() / total.sum()), len(total)
    if runs < 2:
        return Interval(share, None, None, runs, "one run", confidence)
    spread = _spread(hit - share * total) / (total.mean() * math.sqrt(runs))
    half = t_quantile(confidence, runs - 1) * float(spread)
    low, high = wilson(int(hit.sum()), int(total.sum()), confidence)
    return Interval(
        share, max(0.0, min(low, share - half)), min(1.0, max(high, share + half)), runs, "replications", confidence
    )


def batch_means(values: Sequence[float], confidence: float = CONFIDENCE, cut: bool = True) -> Interval | None:
    """The mean of one long run, from a series in order of arrival; None for fewer than two values a batch.

    cut : drop the start-up by MSER-5 first (no interval can be trusted where it finds no end).
    """
    series, settled = np.asarray(values, dtype=float), True
    if cut and len(series):
        dropped = mser5(_scaled(series))
        settled, series = dropped is not None, series[dropped or 0 :]
    if len(series) < 2 * BATCHES:
        return None
    return sectioned(series, confidence, settled)


def quantile_interval(values: Sequence[float], percent: float, confidence: float = CONFIDENCE) -> Interval | None:
    """A percentile of one long run, from how well the share of values below it is known (batch means of an indicator).

    Percentiles of batches would be biased and lopsided in the tail; shares are not. The interval of the share, turned
    round, names two percentiles of the run. None where the upper one lies beyond the largest value, or where less than
    MOST_BATCHES of the batches hold values beyond the percentile: a few bad spells don't tell how often they come.
    """
    series = np.asarray(values, dtype=float)
    if len(series) < 2 * BATCHES:
        return None
    whole = float(np.percentile(series, percent))
    beyond = np.flatnonzero(series > whole) * BATCHES // len(series)
    if len(np.unique(beyond)) < MOST_BATCHES * BATCHES:
        return None
    share = sectioned((series <= whole).astype(float), confidence, skewed=False)
    upper = 2 * share.mean - (share.low or 0.0)
    if upper >= 1:
        return None
    low, high = (float(np.quantile(series, max(0.0, p))) for p in (2 * share.mean - (share.high or 0.0), upper))
    return Interval(whole, min(low, whole), max(high, whole), BATCHES, "batches", confidence, share.settled)


def sectioned(
    series: np.ndarray, confidence: float = CONFIDENCE, settled: bool = True, skewed: bool = True
) -> Interval:
    """The mean of a series in order of arrival, float64[n], with the spread of the means of its BATCHES parts.

    Only a mean may be taken so: the spread of percentiles (or of indices) of parts is not that of the whole's. Lag-1
    correlation between parts widens the interval by (1 + r) / (1 - r) in variance, as in Skart (Tafazzoli, Wilson and
    others 2011); Willink's (2005) term bends it where the parts are skewed, as waits near saturation are (skewed; not
    for shares in a tail, whose skewness 20 parts can't tell).
    """
    whole = float(series.mean())
    edges = np.linspace(0, len(series), BATCHES + 1).astype(int)
    parts = np.array([series[a:b].mean() for a, b in pairwise(edges)])
    error, correlation = part_error(parts)
    if error == 0:
        return Interval(whole, whole, whole, BATCHES, "batches", confidence, settled)
    t = t_quantile(confidence, BATCHES - 1)
    low, high = bent(t, parts) if skewed else (-t, t)
    settled = settled and correlation < SETTLED_CORRELATION
    return Interval(whole, whole - high * error, whole - low * error, BATCHES, "batches", confidence, settled)


def part_error(parts: np.ndarray, memory: float = 1.0) -> tuple[float, float]:
    """The standard error of the mean of BATCHES parts, widened by the correlation between them, and that correlation.

    memory : the variance is widened by this factor at least.
    """
    offset = parts - parts.mean()
    power = float(offset @ offset)
    if power == 0:
        return 0.0, 0.0
    correlation = float(offset[1:] @ offset[:-1]) / power + 1 / BATCHES  # an estimate is short by about 1/n
    return math.sqrt(power / (BATCHES - 1) / BATCHES * inflation(correlation, memory)), correlation


def inflation(correlation: float, memory: float = 1.0) -> float:
    """What the lag-1 correlation between parts multiplies the variance of their mean by, believed up to MOST_CORRELATION.

    memory : the least that it is.
    """
    kept = min(max(correlation, 0.0), MOST_CORRELATION)
    return max((1 + kept) / (1 - kept), memory)


def precise(interval: Interval, half_width: float) -> bool:
    """Is a figure known to within +- half_width?"""
    return interval.half <= half_width


def together(verdicts: Sequence[str]) -> str:
    """One stability verdict over replications: overloaded or stable where three in four say so, else unsettled."""
    for verdict in ("overloaded", "stable"):
        if verdicts and sum(v == verdict for v in verdicts) >= 0.75 * len(verdicts):
            return verdict
    return "unsettled"


def jain(values: np.ndarray) -> float | None:
    """Jain's fairness index (sum x)^2 / (n sum x^2): 1 where all get the same, 1/n where one gets all (Jain 1984)."""
    squares = float((values * values).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None


def _spread(sample: np.ndarray) -> float:
    """Standard deviation, n - 1; exactly 0 where all are equal (rounding of the mean would leave a trace)."""
    return 0.0 if np.all(sample == sample[0]) else float(sample.std(ddof=1))


def bent(t: float, parts: np.ndarray) -> tuple[float, float]:
    """(-t, t) as Willink's transformation bends them: mean - high * error and mean - low * error are the limits."""
    n = len(parts)
    z = (parts - parts.mean()) / parts.std()
    skew = float((z**3).mean()) * math.sqrt(n * (n - 1)) / (n - 2)
    bend = skew / (6 * math.sqrt(n))
    if abs(bend) < 1e-3:
        return -t, t
    low, high = (float(np.cbrt(1 + 6 * bend * (x - bend)) - 1) / (2 * bend) for x in (-t, t))
    return low, high


def _scaled(series: np.ndarray) -> list[int]:
    """The series as whole numbers, which MSER-5 is exact on."""
    highest = float(np.abs(series).max())
    return np.rint(series / highest * 2**30).astype(np.int64).tolist() if highest else [0] * len(series)
