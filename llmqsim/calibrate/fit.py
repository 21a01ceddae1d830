"""Fitting one configuration: constants of the physical form, then the table of what it leaves over."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from llmqsim.calibrate.rows import Rows, blocks_of
from llmqsim.cost.forms import Machine
from llmqsim.cost.residual import ResidualTable, Smoothness
from llmqsim.errors import DataError

SOFT_L1_SCALE = 0.1
"""log error from which a row counts linearly"""
MOST_ROWS = 1500
"""rows that the constants are fitted on, evenly spread; the table takes all"""
FEWEST_ROWS = 12
"""below this many rows nothing is fitted"""
DIGITS = 5


def fit_constants(rows: Rows, machine: Machine, near: dict[str, float] | None = None) -> dict[str, float]:
    """Constants of the physical form: robust least squares (soft L1) on the logarithm.

    near : where to start (constants of a fit of nearly the same rows), to save time.
    """
    from scipy.optimize import least_squares

    form = rows.family.form(rows.config)
    some = rows.part(np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.int64)))
    names, start, lower, upper = zip(*form.bounds())
    measured = np.log(some.seconds)
    if near:
        start = [min(max(near[name], low * 1.01), high * 0.99) for name, low, high in zip(names, lower, upper)]

    def residuals(logs):
        constants = dict(zip(names, np.exp(logs)))
        return np.log(form.seconds(constants, some.columns, machine, rows.dtype)) - measured

    best = least_squares(
        residuals, np.log(start), bounds=(np.log(lower), np.log(upper)), loss="soft_l1", f_scale=SOFT_L1_SCALE,
        x_scale=0.3, max_nfev=200,
    )
    return {name: float(f"{value:.{DIGITS}g}") for name, value in zip(names, np.exp(best.x))}


def log_residuals(rows: Rows, constants: dict[str, float], machine: Machine) -> np.ndarray:
    """log(measured / form) of each row."""
    form = rows.family.form(rows.config)
    return np.log(rows.seconds) - np.log(form.seconds(constants, rows.columns, machine, rows.dtype))


def fit_table(rows: Rows, residuals: np.ndarray) -> ResidualTable:
    """The residual table: medians on the knots, holes filled from the other knots of the same block."""
    family = rows.family
    features, block = blocks_of(rows)
    at = family.knots(rows.columns)
    knots, places = zip(*(_knots(values, family.most_knots) for values in at))
    shape = (len(features), *(len(axis) for axis in knots))
    cell = np.ravel_multi_index((block, *places), shape)
    values = _medians(cell, residuals, int(np.prod(shape))).reshape(shape)
    return ResidualTable(features, tuple(knots), _filled(values, knots, family.inner), family.smoothness)


def _knots(values: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(knots, knot of each row): the measured values, neighbours merged where there are more than `most`."""
    measured, place = np.unique(values, return_inverse=True)
    place = place.reshape(-1)
    if len(measured) <= most:
        return measured, place
    logs = np.log(measured)
    edges = np.linspace(logs[0], logs[-1], most + 1)[1:-1]
    merged = np.searchsorted(edges, logs, side="right")
    used, group = np.unique(merged, return_inverse=True)
    centres = np.array([np.exp(logs[group == i].mean()) for i in range(len(used))])
    return centres, group.reshape(-1)[place]


def _medians(cell: np.ndarray, values: np.ndarray, cells: int) -> np.ndarray:
    """Median of `values` in each cell, NaN where there is none."""
    order = np.lexsort((values, cell))
    found, start, count = np.unique(cell[order], return_index=True, return_counts=True)
    ordered = values[order]
    out = np.full(cells, np.nan)
    out[found] = (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) / 2
    return out


def _filled(values: np.ndarray, knots: tuple[np.ndarray, ...], inner: Smoothness) -> np.ndarray:
    """Holes of each block, from its own measured knots: linear in the logarithm on one axis, `inner` on two."""
    out = values.copy()
    if len(knots) == 1:
        logs = np.log(knots[0])
        for block in out:
            hole = np.isnan(block)
            block[hole] = np.interp(logs[hole], logs[~hole], block[~hole])
        return out
    at = np.stack([axis.reshape(-1) for axis in np.meshgrid(*map(np.log2, knots), indexing="ij")], axis=1)
    flat = out.reshape(len(out), -1)
    patterns, which = np.unique(np.isnan(flat), axis=0, return_inverse=True)
    for i, hole in enumerate(patterns):
        if hole.any():
            mine = np.flatnonzero(which.reshape(-1) == i)
            flat[np.ix_(mine, hole)] = _regressed(flat[np.ix_(mine, ~hole)], at[~hole], at[hole], inner)
    return out


def _regressed(known: np.ndarray, at: np.ndarray, wanted: np.ndarray, inner: Smoothness) -> np.ndarray:
    """Values of blocks (rows) at the places `wanted` from those `known` at the places `at`."""
    own = inner.matrix(at, at)
    own[np.diag_indices_from(own)] += inner.noise
    mean = known.mean(axis=1, keepdims=True)
    return mean + (known - mean) @ np.linalg.solve(own, inner.matrix(at, wanted))


def predict(
    rows: Rows,
    constants: Mapping[str, float],
    table: ResidualTable | None,
    machine: Machine,
    config: Mapping[str, object] | None = None,
) -> np.ndarray:
    """Seconds of each row: the form times the table (None: the form alone).

    config : what the constants were fitted on, if not the rows' own configuration.
    """
    form = rows.family.form(rows.config if config is None else config)
    seconds = form.seconds(constants, rows.columns, machine, rows.dtype)
    if table is None:
        return seconds
    features, block = blocks_of(rows)
    return seconds * np.exp(table.log_ratio(block, features, rows.family.knots(rows.columns)))


def check_identified(rows: Rows, where: str) -> None:
    """Raises DataError where the rows can't tell the constants apart: too few, or all of one size."""
    what = ", ".join(f"{name} {value}" for name, value in rows.config.items() if value != "")
    if len(rows) < FEWEST_ROWS:
        raise DataError(f"{where}: {what}: {len(rows)} rows; at least {FEWEST_ROWS} are needed for {rows.family.name}")
    at = rows.family.knots(rows.columns)
    spans = [len(np.unique(values)) for values in at]
    if max(spans) < 3:
        raise DataError(
            f"{where}: {what}: launch time and rates can't be told apart: the rows have {max(spans)} sizes only; "
            "measure at least 3, from the smallest to the largest that will be served"
        )
