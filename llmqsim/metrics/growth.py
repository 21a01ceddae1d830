"""Does a backlog grow? The evidence for the stability verdict, from how the backlog looks to successive arrivals.

Seen as a random walk with drift, a backlog of a system at load r < 1 exceeds x with probability about
exp(-2 (1 - r) x / d), where d is the dispersion: the variance of (arrivals - departures) per arrival (2 for M/M/1).
At 90 % load the 1 % point is x = 23 d. A walk without drift over n arrivals ends within a few sqrt(d n). Both hurdles
use the same d, estimated from the increments of the backlog itself, so that heavy tails and bursts raise them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.metrics.distribution import median_count, up_to

CHECKPOINTS = 40
"""increments that the dispersion is estimated from"""
LEAST_DISPERSION = 0.25
"""assumed at least (Poisson arrivals alone have 1), so that a quiet stretch isn't taken for certainty"""
MILD = 36.0
"""rise, in dispersions, that 90 % load hardly ever shows (23 is its 1 % point; the margin is for the estimated d)"""
GROWS, FLAT = 1.7, 1.2
"""rise, in units of its noise, from which it counts as growth, and below which it doesn't"""
VISIBLE = 2.0
"""calm is believed only where 20 % overload would have raised the backlog by this many units of noise"""
CALM_SHARE = 0.25
"""share of the last third of arrivals that must find no more than the typical backlog of the time before"""


@dataclass(frozen=True)
class Growth:
    """How one backlog (requests) moved from the first look to the last arrival."""

    arrivals: int
    start: float
    """median over the first third of the arrivals"""
    low: float
    """lowest value over the last third"""
    end: float
    peak: float
    rise: float
    """last value minus first"""
    dispersion: float
    calm: float
    """share of the last third that find at most the median of the first two thirds (or one request)"""

    @property
    def noise(self) -> float:
        """Standard deviation of the rise of a backlog without drift."""
        return float(np.sqrt(self.dispersion * self.arrivals))

    @property
    def signal(self) -> float:
        """Rise in units of its noise."""
        return self.rise / self.noise

    @property
    def grows(self) -> bool:
        """Significant, larger than a busy but stable system shows, and never back where it began."""
        return self.signal > GROWS and self.rise > MILD * self.dispersion and self.low > self.start

    @property
    def flat(self) -> bool:
        """Came back to where it began, again and again, in a run long enough to have shown 20 % overload."""
        back = self.low <= max(self.start, 1.0) and self.calm >= CALM_SHARE
        return back and self.signal < FLAT and self.arrivals / 6 >= VISIBLE * self.noise


def backlog(arrival_ns: np.ndarray, left_ns: np.ndarray) -> np.ndarray:
    """Requests that had arrived before each arrival and not left by then, int64[n]. Arrivals sorted, `left_ns` not."""
    return np.arange(len(arrival_ns)) - up_to(np.sort(left_ns), arrival_ns)


def growth(seen: np.ndarray) -> Growth:
    """Measure the backlog that successive arrivals found, int64[n >= 3]."""
    n = len(seen)
    checks = seen[np.linspace(0, n - 1, min(CHECKPOINTS, n - 1) + 1).astype(np.int64)]
    increments = np.diff(checks).astype(np.float64)
    last = seen[-(n // 3) :]
    usual = max(median_count(seen[: 2 * n // 3]), 1.0)
    return Growth(
        arrivals=n,
        start=median_count(seen[: n // 3]),
        low=float(last.min()),
        end=float(seen[-1]),
        peak=float(seen.max()),
        rise=float(seen[-1] - seen[0]),
        dispersion=max(float(np.var(increments)) * len(increments) / n, LEAST_DISPERSION),
        calm=float((last <= usual).mean()),
    )
