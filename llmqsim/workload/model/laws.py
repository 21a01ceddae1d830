"""Gaps between arrivals at unit rate, and regimes: what the rate and the mix of lengths do together over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.workload.gaps import unit_gaps

LEVELS = np.unique(np.concatenate([np.linspace(0, 1, 101), 1 - np.geomspace(1e-2, 1e-6, 41)]))
"""cumulative probabilities at which a table of gaps is told: hundredths, and the tail ever finer"""


@dataclass(frozen=True, eq=False)
class Gaps:
    """Independent gaps of mean 1. law : "poisson", "gamma" (of this cv) or "table".

    levels, values : of a table, float64[k]: gap values[i] is not exceeded with probability levels[i], linear between.
    """

    law: str
    cv: float = 1.0
    levels: np.ndarray | None = None
    values: np.ndarray | None = None

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Inverse CDF: float64[n] uniforms in [0, 1) to float64[n] gaps."""
        if self.law == "table":
            assert self.levels is not None and self.values is not None
            return np.interp(u, self.levels, self.values)
        return unit_gaps(self.law, 1 / self.cv**2 if self.law == "gamma" else 1.0)(u)

    @property
    def size(self) -> int:
        """Numbers that it is told by."""
        return {"poisson": 0, "gamma": 1}.get(self.law, 0 if self.values is None else len(self.values))


def gap_table(gaps: np.ndarray) -> Gaps:
    """The law of observed gaps (float64[n], any unit), scaled to mean 1; tails only as fine as the rows allow."""
    levels = LEVELS[(1 - 1 / len(gaps) >= LEVELS) | (LEVELS == 1)]
    values = np.quantile(gaps, levels)
    mean = float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(levels)))
    return Gaps("table", float(gaps.std() / gaps.mean()), levels, values / mean)


@dataclass(frozen=True, eq=False)
class Regimes:
    """A Markov chain over windows. rate : float64[k], of the mean rate; next : float64[k, k], rows add up to 1.

    lengths : which mix of lengths each regime has, int64[k].
    """

    window_s: float
    rate: np.ndarray
    next: np.ndarray
    lengths: np.ndarray

    @property
    def size(self) -> int:
        """Numbers that it is told by."""
        k = len(self.rate)
        return k + k * (k - 1) + 1

    def stationary(self) -> np.ndarray:
        """Share of the windows that each regime has, float64[k]."""
        values, vectors = np.linalg.eig(self.next.T)
        share = np.abs(np.real(vectors[:, int(np.argmin(np.abs(values - 1)))]))
        return share / share.sum()

    def path(self, windows: int, draw: np.random.Generator) -> np.ndarray:
        """Regime of each window, int64[windows], begun in the stationary law."""
        upper = np.cumsum(self.next, axis=1)
        u = draw.random(windows)
        state = int(np.searchsorted(np.cumsum(self.stationary()), u[0], side="right").clip(max=len(self.rate) - 1))
        found = np.empty(windows, dtype=np.int64)
        for i in range(windows):
            if i:
                state = min(int(np.searchsorted(upper[state], u[i], side="right")), len(self.rate) - 1)
            found[i] = state
        return found
