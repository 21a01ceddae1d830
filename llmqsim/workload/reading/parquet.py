"""Parquet, batch by batch, the wanted columns only; needs pyarrow (pip install 'llmqsim[parquet]')."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from llmqsim.errors import DataError, UserError
from llmqsim.workload.reading.json_files import Builder
from llmqsim.workload.reading.sheet import NO_DATE, Sheet

ROWS = 1 << 20


def _file(path: str, what: str) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: is Parquet, which needs pyarrow: pip install 'llmqsim[parquet]', or write it as CSV"
        ) from None
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # pyarrow raises errors of its own, and of Python
        reason = str(error).splitlines()[0][:100]
        raise DataError(f"{path}: damaged Parquet ({reason}); copy it again. Expected: {what}") from None


def header(path: str, what: str) -> list[str]:
    """The columns of a file. Raises DataError, UserError."""
    return list(_file(path, what).schema_arrow.names)


def read_parquet(path: str, what: str, three: tuple[str, str, str], more: Mapping[str, str], unordered: bool,
                 numeric: Iterable[str]) -> Sheet:  # fmt: skip
    """All rows, unjudged; lines are row numbers. three : their names of arrival ("": none), prompt and output."""
    file = _file(path, what)
    wanted = [name for name in three if name] + list(more.values())
    stamps, prompts, outputs = [], [], []
    others: dict[str, list[np.ndarray]] = {name: [] for name in more}
    for batch in file.iter_batches(ROWS, columns=list(dict.fromkeys(wanted))):
        rows = batch.num_rows
        stamps.append(_stamps(batch.column(three[0])) if three[0] else np.full(rows, np.nan))
        for kept, name in ((prompts, three[1]), (outputs, three[2])):
            kept.append(_numbers(batch.column(name), path, name))
        for ours, theirs in more.items():
            column = batch.column(theirs)
            others[ours].append(_numbers(column, path, theirs) if ours in numeric else _texts(column))
    if not prompts:
        return Builder(path, three, more).sheet()
    if any(isinstance(part, list) for part in stamps):  # stamps as text
        return _by_text(path, three, stamps, prompts, outputs, others, unordered)
    joined = np.concatenate(stamps)
    absent = joined.dtype != np.int64 and bool(np.isnan(joined).all())
    return Sheet(
        path, three, joined, np.concatenate(prompts), np.concatenate(outputs),
        np.arange(1, len(joined) + 1), absent, more={name: np.concatenate(parts) for name, parts in others.items()},
        unordered=unordered,
    )  # fmt: skip


def _by_text(path: str, three: tuple[str, str, str], stamps: list, prompts: list, outputs: list,
             others: Mapping[str, list], unordered: bool) -> Sheet:  # fmt: skip
    builder = Builder(path, three, (), unordered)
    texts = [text for part in stamps for text in (part if isinstance(part, list) else part.tolist())]
    for row, cells in enumerate(zip(texts, np.concatenate(prompts), np.concatenate(outputs), strict=True), 1):
        builder.add(row, *cells)
    made = builder.sheet()
    made.more = {name: np.concatenate(parts) for name, parts in others.items()}
    return made


def _stamps(column: Any) -> np.ndarray | list[str]:
    """Time stamps of any unit to ns, numbers to float64, texts as they are."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        ns = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
        return ns.fill_null(int(NO_DATE)).to_numpy(zero_copy_only=False)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return ["" if text is None else text for text in column.to_pylist()]
    return column.cast(pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False)


def _numbers(column: Any, path: str, name: str) -> np.ndarray:
    import pyarrow as pa

    try:
        return column.cast(pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{path}: column '{name}' holds {column.type}; whole numbers were expected") from None


def _texts(column: Any) -> np.ndarray:
    """Lists of block ids as lists, all else as text, empty where it is missing."""
    cells = np.empty(len(column), dtype=object)
    cells[:] = ["" if one is None else one if isinstance(one, list) else str(one) for one in column.to_pylist()]
    return cells
