"""Columns that a trace may have beside times and lengths: class, tenant, priority, prefix blocks, max_tokens."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np

from llmqsim.errors import DataError
from llmqsim.workload.lengths import MAX_TOKENS as LARGEST

LABELS = ("class", "tenant", "priority")
PREFIX_IDS = "prefix_hash_blocks"
MAX_TOKENS = "max_tokens"
MAY_BE_EMPTY = (PREFIX_IDS, MAX_TOKENS)


def labels(text: str, header: list[str], rows: int, path: str | Path) -> dict[str, np.ndarray]:
    """These columns as text, object[rows] each. Raises DataError for a column named twice or an empty label."""
    import pandas as pd

    named = [name for name in (*LABELS, *MAY_BE_EMPTY) if name in header]
    if not named:
        return {}
    twice = [name for name in named if header.count(name) > 1]
    if twice:
        raise DataError(f"{path}:1: column '{twice[0]}' stands twice in the header; keep one")
    position = [header.index(name) for name in named]
    frame = pd.read_csv(
        io.StringIO(text), header=None, skiprows=1, usecols=position, dtype=str, na_filter=False, skip_blank_lines=True
    )
    if len(frame) != rows:
        raise DataError(f"{path}: columns {', '.join(named)} have {len(frame)} rows, the lengths {rows}; check quotes")
    found = {name: frame[header.index(name)].str.strip().to_numpy(dtype=object) for name in named}
    for name, column in found.items():
        if name not in MAY_BE_EMPTY and (column == "").any():
            row = int(np.flatnonzero(column == "")[0]) + 1
            raise DataError(f"{path}: column '{name}', request {row}: is empty; name one, or remove the column")
    return found


def prefix_ids(column: np.ndarray | None, path: str | Path) -> list[list[int]] | None:
    """Space-separated block ids as numbers. Raises DataError for the first that is none."""
    if column is None:
        return None
    ids = []
    for row, text in enumerate(column.tolist()):
        try:
            ids.append([int(part) for part in text.split()])
        except ValueError:
            raise DataError(
                f"{path}: column '{PREFIX_IDS}', request {row + 1}: must be whole numbers with spaces between "
                f"(got '{text[:60]}')"
            ) from None
    return ids


def limits(column: np.ndarray | None, output: np.ndarray, path: str | Path) -> np.ndarray | None:
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
