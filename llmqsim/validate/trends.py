"""Trends along sweeps: does a prediction go up where the measurement does, and by as much?

Where the setup is not fully stated (how many prefill workers, which link), a level can't be expected to fit, but the
shape of the curve over concurrency can. A sweep is the points of one case that differ in concurrency alone; points with
the same one (measured with and without speculative decoding, most likely) count as their geometric mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from llmqsim.validate.errors_table import Row

FEWEST_POINTS = 3
"""of a sweep, at different concurrencies"""
FLAT = 0.05
"""relative; a measured step smaller than this has no direction to speak of"""


@dataclass(frozen=True)
class Trend:
    """Sweeps of one regime and metric together.

    steps : neighbouring points whose measured figures differ by more than FLAT. same_way : of these, those that the
    prediction takes in the same direction. rank : median of Spearman's rank correlations of the sweeps; None where none
    has one. measured, predicted : median growth over a sweep, last over first point.
    """

    regime: str
    metric: str
    stat: str
    sweeps: int
    steps: int
    same_way: int
    rank: float | None
    measured: float
    predicted: float


def trends(rows: Iterable[Row]) -> list[Trend]:
    """One a regime and metric that has sweeps, in the order of their first rows."""
    sweeps: dict[tuple, dict[tuple, dict[float, list[Row]]]] = {}
    for row in rows:
        concurrency = row.point.get("concurrency")
        if concurrency is None or not row.predicted or row.figure.measured <= 0:
            continue
        group = sweeps.setdefault((row.case.regime, row.figure.metric, row.figure.stat), {})
        rest = tuple((key, value) for key, value in row.point.items() if key != "concurrency")
        group.setdefault((row.case.id, rest), {}).setdefault(float(concurrency), []).append(row)
    told = []
    for key, found in sweeps.items():
        curves = [_curve(points) for points in found.values() if len(points) >= FEWEST_POINTS]
        if curves:
            told.append(_trend(key, curves))
    return told


def _curve(points: dict[float, list[Row]]) -> np.ndarray:
    """log(measured, predicted) by concurrency, float64[2, n]."""
    logs = [
        np.mean([np.log((row.figure.measured, row.predicted)) for row in points[concurrency]], axis=0)
        for concurrency in sorted(points)
    ]
    return np.transpose(logs)


def _trend(key: tuple[str, str, str], curves: list[np.ndarray]) -> Trend:
    rises = np.concatenate([np.diff(curve) for curve in curves], axis=1)
    clear = np.abs(rises[0]) > np.log1p(FLAT)
    same = clear & (np.sign(rises[0]) == np.sign(rises[1]))
    ranks = [spearmanr(*curve).statistic for curve in curves if np.ptp(curve, axis=1).all()]
    grown = np.median([np.exp(curve[:, -1] - curve[:, 0]) for curve in curves], axis=0)
    return Trend(
        *key,
        sweeps=len(curves),
        steps=int(clear.sum()),
        same_way=int(same.sum()),
        rank=float(np.median(ranks)) if ranks else None,
        measured=float(grown[0]),
        predicted=float(grown[1]),
    )
