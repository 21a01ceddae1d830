"""Errors on shapes that a fit did not see: whole blocks of neighbouring shapes are left out, never random rows."""

from __future__ import annotations

import numpy as np

from llmqsim.calibrate.fit import FEWEST_ROWS, fit_constants, fit_table, log_residuals, predict
from llmqsim.calibrate.rows import Rows
from llmqsim.cost.forms import Machine

FOLDS = 5
GEMM_EDGES = (192, 640, 1280, 2304, 3840, 5632, 9216, 32768)
"""between these lie the groups of two or three neighbouring n (and k) that leave together"""
BY_HEADS = 5
"""first fold of attention in which whole numbers of query heads leave"""
NEVER = 99
"""fold of rows that stay in every fit: the ends of the measured range, which nothing could interpolate to"""


def folds(rows: Rows) -> np.ndarray:
    """The fold in which each row is held out.

    GEMMs: tiles of 2-3 neighbouring n by 2-3 neighbouring k, with all their m. Attention: tiles of two neighbouring
    batches by two neighbouring lengths for all heads, and numbers of query heads (see `_leaves`). Collectives and
    send/recv: whole octaves of message size. Experts: all timings of one layer (hidden, inter, top-k, experts).
    Quantisation: two neighbouring k. Vidur's operators: all timings of one model.
    """
    c, table = rows.columns, rows.family.table
    if table == "gemm":
        return (np.searchsorted(GEMM_EDGES, c["n"]) + 3 * np.searchsorted(GEMM_EDGES, c["k"])) % 8
    if table in ("attention_context", "attention_decode", "mla"):
        return _attention(rows)
    if table in ("collectives", "p2p"):
        return _inner(np.floor(np.log2(c["message_bytes"])), 1)
    if table == "quantize":
        return _inner(c["k"], 2)
    names = ("hidden", "inter", "topk", "num_experts") if table == "moe" else ("hidden", "inter", "n_kv_head")
    values = np.stack([c[name] for name in names], axis=1)
    _, place = np.unique(values, axis=0, return_inverse=True)
    return place.reshape(-1) % 6


def _attention(rows: Rows) -> np.ndarray:
    """Every second tile of batch and length in folds 0-4, a third of the heads in folds 5 and 6 elsewhere."""
    at = [np.unique(values, return_inverse=True)[1].reshape(-1) for values in rows.family.knots(rows.columns)]
    heads = np.unique(rows.columns["num_heads"], return_inverse=True)[1].reshape(-1)
    by_heads = np.where(heads % 3 == 1, BY_HEADS + heads // 3 % 2, NEVER)
    if len(at) == 1:
        return by_heads
    tile = at[0] // 2 * 3 + at[1] // 2
    return np.where(tile % 2 == 0, tile // 2 % 5, by_heads)


def _inner(values: np.ndarray, together: int) -> np.ndarray:
    """Folds of `together` neighbouring values; the first and the last value stay in every fit."""
    measured, place = np.unique(values, return_inverse=True)
    place = place.reshape(-1)
    ends = (place == 0) | (place == len(measured) - 1)
    return np.where(ends, NEVER, (place - 1) // together % FOLDS)


def _leaves(rows: Rows, fold: np.ndarray, one: int) -> np.ndarray:
    """Which rows leave the fit for a fold: its own, and every other timing of its query heads where it holds out heads.

    A row is predicted once, so that half the timings of those heads belong to other folds; none of them is seen here.
    """
    out = fold == one
    if rows.family.table in ("attention_context", "attention_decode", "mla") and one >= BY_HEADS:
        heads = rows.columns["num_heads"]
        return np.isin(heads, np.unique(heads[out]))
    return out


def held_out(rows: Rows, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """(seconds by form and table, by the form alone) of each row, from a fit without its block; NaN: never held out."""
    fold = folds(rows)
    near = fit_constants(rows, machine)
    table, form = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for one in np.unique(fold[fold != NEVER]):
        out = fold == one
        kept = rows.part(~_leaves(rows, fold, one))
        if len(kept) < FEWEST_ROWS:
            continue
        constants = fit_constants(kept, machine, near)
        form[out] = predict(rows.part(out), constants, None, machine)
        fitted = fit_table(kept, log_residuals(kept, constants, machine))
        table[out] = predict(rows.part(out), constants, fitted, machine)
    return table, form


def errors(predicted: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    """Rows, median and P90 of the absolute error, and the median signed error, per cent of the measured time."""
    relative = predicted / seconds - 1.0
    size = np.abs(relative)
    return {
        "rows": len(seconds),
        "median_percent": round(float(np.median(size)) * 100, 2),
        "p90_percent": round(float(np.percentile(size, 90)) * 100, 2),
        "bias_percent": round(float(np.median(relative)) * 100, 2),
    }


def held_out_errors(rows: Rows, machine: Machine) -> dict[str, float] | None:
    """Errors of form and table on held-out blocks; None where there are too few blocks to leave one out."""
    table, _ = held_out(rows, machine)
    seen = np.isfinite(table)
    return errors(table[seen], rows.seconds[seen]) if seen.any() else None
