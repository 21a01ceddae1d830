"""Columns that a trace may have beside times and lengths: class, tenant, priority, prefix blocks, max_tokens, sessions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from llmqsim.errors import DataError
from llmqsim.workload.lengths import MAX_TOKENS as LARGEST
from llmqsim.workload.reading.options import LABELS, MAX_TOKENS, PARENT, PREFIX_IDS

SESSION = "session_id"


def labels(more: Mapping[str, np.ndarray], path: str) -> dict[str, np.ndarray]:
    """Class, tenant and priority as text, object[n] each. Raises DataError for an empty label."""
    found = {name: more[name] for name in LABELS if name in more}
    for name, column in found.items():
        if (column == "").any():
            row = int(np.flatnonzero(column == "")[0]) + 1
            raise DataError(f"{path}: column '{name}', request {row}: is empty; name one, or remove the column")
    return found


def prefix_ids(column: np.ndarray | None, path: str) -> list[list[int]] | None:
    """Block ids as numbers, from lists or from text with spaces between. Raises DataError for the first that is none."""
    if column is None:
        return None
    ids = []
    for row, cell in enumerate(column.tolist()):
        try:
            ids.append([int(part) for part in (cell if isinstance(cell, list) else cell.split())])
        except (ValueError, TypeError):
            raise DataError(
                f"{path}: column '{PREFIX_IDS}', request {row + 1}: must be whole numbers with spaces between "
                f"(got '{str(cell)[:60]}')"
            ) from None
    return ids


def limits(column: np.ndarray | None, output: np.ndarray, path: str) -> np.ndarray | None:
    """Most tokens that each client allowed, int64[n], 0 where a cell is empty. Raises DataError.

    output : int64[n], tokens of the answers, none of which can be longer than its client allowed.
    """
    if column is None:
        return None
    found = np.array([_limit(text) for text in column.tolist()], dtype=np.float64)
    if (bad := np.isnan(found)).any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{path}: column '{MAX_TOKENS}', request {row + 1}: must be a whole number from 1 to {LARGEST:,}, or empty "
            f"where nobody set a limit (got '{column[row][:40]}')"
        )
    if (over := (found > 0) & (output > found)).any():
        row = int(np.flatnonzero(over)[0])
        more = f"; {int(over.sum()) - 1:,} more rows are like it" if over.sum() > 1 else ""
        raise DataError(
            f"{path}: column '{MAX_TOKENS}', request {row + 1}: its answer has {output[row]:,} tokens, more than the "
            f"{found[row]:,.0f} that its client allowed{more}; correct either, or leave max_tokens empty"
        )
    return found.astype(np.int64)


def _limit(text: str) -> float:
    """0 for an empty cell, NaN for what is no limit. Tools write a column with gaps as 256.0."""
    if not text:
        return 0.0
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
    return value if 1 <= value <= LARGEST and value == int(value) else math.nan


def _roots(own: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """The first of each chain of chats; a parent that is not in the file begins a chain. Parents come before children."""
    root: dict[str, str] = {}
    for chat, before in zip(own.tolist(), parent.tolist(), strict=True):
        root[str(chat)] = root.get(str(before), str(chat))
    return np.array([root[str(chat)] for chat in own.tolist()], dtype=object)


def sessions(more: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Sessions as numbers from 0 in order of their first request, int64[n]; -1 where a cell is empty; None: no column."""
    if SESSION not in more:
        return None
    import pandas as pd

    column = more[SESSION]
    if PARENT in more:
        column = _roots(column, more[PARENT])
    codes, _ = pd.factorize(column)
    empty = np.array([cell == "" for cell in column.tolist()]) if column.dtype == object else np.isnan(column)
    if not empty.any():
        return codes.astype(np.int64)
    codes = np.where(empty, -1, codes)
    _, codes[~empty] = np.unique(codes[~empty], return_inverse=True)
    return codes.astype(np.int64)
