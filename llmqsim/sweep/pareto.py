"""The Pareto front: points that no other point beats on one figure without losing on another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def front(rows: Sequence[Sequence[float | None]], directions: Sequence[str]) -> list[bool]:
    """Which rows are on the front. rows : figures of each point; directions : "low" or "high" for each figure.

    A row with a figure missing is on no front. Equal rows are all on it.
    """
    flip = np.array([1.0 if way == "low" else -1.0 for way in directions])
    whole = [not any(value is None for value in row) for row in rows]
    values = np.array([[float(v) for v in row] for row, fits in zip(rows, whole, strict=True) if fits])
    best: list[bool] = []
    if len(values):
        costs = values * flip
        for row in costs:
            beaten = np.all(costs <= row, axis=1) & np.any(costs < row, axis=1)
            best.append(not beaten.any())
    kept = iter(best)
    return [next(kept) if fits else False for fits in whole]
