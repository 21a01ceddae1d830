"""The residual table: what a physical form leaves over, on knots of measured shapes, smooth in between.

A table holds the logarithm of measured over form for blocks (one weight matrix, one head configuration, one number of
GPUs, one expert layer) on a grid of knots (tokens; batch and length; bytes). Between knots it is multilinear in the
logarithms. A block that was not measured is a weighted sum of those that were (Gaussian-process regression over the
blocks' features with a Matern-3/2 kernel, the mean profile as prior); outside the measured range the nearest knot's
value goes on, so that the physical form alone extrapolates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

STEP = 0.002
"""log units of one stored integer: 0.2 %, a quarter of what the timings themselves repeat to"""
SAME = 1 / 1024
"""log2 units below which two blocks are the same one"""


@dataclass(frozen=True)
class Smoothness:
    """Kernel over block features: variances of directions (each a weight vector over features) and of all together.

    directions : ((weights, length, variance), …) additive parts along one linear combination of the features.
    lengths : one length for each feature of the product part, whose variance is 1. noise : nugget, same unit.
    """

    lengths: tuple[float, ...]
    directions: tuple[tuple[tuple[float, ...], float, float], ...] = ()
    noise: float = 0.02

    def matrix(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Covariance of blocks with features `a` (rows) and `b`."""
        out = np.ones((len(a), len(b)))
        for i, length in enumerate(self.lengths):
            out *= _matern(np.subtract.outer(a[:, i], b[:, i]), length)
        for weights, length, variance in self.directions:
            vector = np.asarray(weights)
            out += variance * _matern(np.subtract.outer(a @ vector, b @ vector), length)
        return out


def solved(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """x in `matrix @ x = values`, for a symmetric positive definite matrix; by elimination, without pivots.

    A BLAS would be as quick, but what it gives in the last bits hangs on its make and on its number of threads, and a
    result must be the same everywhere.
    """
    rows, x = matrix.copy(), values.astype(float)
    for k in range(len(rows)):
        share = (rows[k + 1 :, k] / rows[k, k])[:, None]
        rows[k + 1 :, k + 1 :] -= share * rows[k, k + 1 :]
        x[k + 1 :] -= share * x[k]
    for k in reversed(range(len(rows))):
        x[k] /= rows[k, k]
        x[:k] -= rows[:k, k, None] * x[k]
    return x


def _matern(distance: np.ndarray, length: float) -> np.ndarray:
    scaled = np.sqrt(3.0) * np.abs(distance) / length
    return (1.0 + scaled) * np.exp(-scaled)


@dataclass(frozen=True)
class ResidualTable:
    """Log residuals of blocks on knots.

    features : (blocks, features) float64, log2 units. knots : measured values of each grid axis, rising. values :
    (blocks, *knots) float64 log residuals.
    """

    features: np.ndarray
    knots: tuple[np.ndarray, ...]
    values: np.ndarray
    smoothness: Smoothness

    @cached_property
    def _weights(self) -> np.ndarray:
        """(blocks, cells): what each block adds to a neighbour, times its distance from the mean profile."""
        own = self.smoothness.matrix(self.features, self.features)
        own[np.diag_indices_from(own)] += self.smoothness.noise
        return solved(own, self._flat - self._mean)

    @cached_property
    def _flat(self) -> np.ndarray:
        return self.values.reshape(len(self.values), -1)

    @cached_property
    def _mean(self) -> np.ndarray:
        return self._flat.mean(axis=0)

    def profile(self, features: np.ndarray) -> np.ndarray:
        """Log residuals on the knots, shape (rows of `features`, *knots); a measured block's are its own."""
        inside = np.clip(features, self._lowest, self._highest)
        own = self._measured(inside)
        if (own >= 0).all():  # the usual case, and it spares the weights, which take a tenth of a second
            return self._flat[own].reshape(-1, *self.values.shape[1:])
        cells = self._mean + self.smoothness.matrix(inside, self.features) @ self._weights
        cells[own >= 0] = self._flat[own[own >= 0]]
        return cells.reshape(-1, *self.values.shape[1:])

    @cached_property
    def _lowest(self) -> np.ndarray:
        return self.features.min(axis=0)

    @cached_property
    def _highest(self) -> np.ndarray:
        return self.features.max(axis=0)

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        """Block by its rounded features."""
        return {tuple(row): i for i, row in enumerate(np.round(self.features / SAME).astype(np.int64).tolist())}

    def _measured(self, features: np.ndarray) -> np.ndarray:
        """Which measured block each row of `features` is, -1 for none."""
        rounded = np.round(features / SAME).astype(np.int64).tolist()
        return np.array([self._places.get(tuple(row), -1) for row in rounded])

    def log_ratio(self, block: np.ndarray, features: np.ndarray, at: tuple[np.ndarray, ...]) -> np.ndarray:
        """Log residual of each row.

        block : which row of `features` each row belongs to. at : coordinate of each row on every knot axis.
        """
        return interpolate(self.profile(features), block, self.knots, at)


def interpolate(profiles: np.ndarray, block: np.ndarray, knots, at) -> np.ndarray:
    """Multilinear value in the logarithm of every coordinate; the end knots' values go on outside."""
    places = [_place(axis, values) for axis, values in zip(knots, at, strict=True)]
    total = np.zeros(len(block))
    for corner in range(2 ** len(places)):
        weight, index = np.ones(len(block)), []
        for axis, (low, share) in enumerate(places):
            upper = corner >> axis & 1
            weight = weight * (share if upper else 1.0 - share)
            index.append(np.minimum(low + upper, len(knots[axis]) - 1))
        total += weight * profiles[(block, *index)]
    return total


def _place(knots: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the knot below each value, and the share of the way to the next, in log units."""
    if len(knots) == 1:
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values))
    logs = np.log(knots)
    at = np.clip(np.log(np.maximum(values, 1e-9)), logs[0], logs[-1])
    low = np.clip(np.searchsorted(logs, at, side="right") - 1, 0, len(knots) - 2)
    return low, (at - logs[low]) / (logs[low + 1] - logs[low])
