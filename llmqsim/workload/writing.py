"""Traces written in our own columns: CSV, TSV, JSON lines or Parquet by the name of the file, packed by gzip if it says so."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import IO, Any

import numpy as np

from llmqsim.errors import UserError
from llmqsim.files import StrPath, write
from llmqsim.workload.reading.options import LABELS, MAX_TOKENS, NUMBERS, PREFIX_IDS
from llmqsim.workload.trace import Trace

KINDS = (".csv", ".tsv", ".jsonl", ".parquet")
ROWS = 1 << 18
"""rows that are turned into text at once"""
DIGITS = 9
"""of seconds, after the point: the clock of a run counts ns"""


def kind_of(path: StrPath) -> tuple[str, bool]:
    """".csv", ".tsv", ".jsonl" or ".parquet", and whether it is to be packed. Raises UserError for any other name."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = bool(suffixes) and suffixes[-1] == ".gz"
    kind = (suffixes[:-1] if packed else suffixes)[-1:]
    if not kind or kind[0] not in KINDS or (packed and kind[0] == ".parquet"):
        raise UserError(f"{path}: name the trace {', '.join(KINDS)}, with .gz behind it to pack it (not .parquet)")
    return kind[0], packed


def columns(trace: Trace) -> dict[str, np.ndarray]:
    """Every column of a trace in the order in which it is written; texts are object arrays."""
    found: dict[str, np.ndarray] = {
        "arrival_s": np.round(trace.arrival_s, DIGITS),
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
    }
    found |= {name: trace.labels[name] for name in LABELS if name in trace.labels}
    if trace.max_tokens is not None:
        found[MAX_TOKENS] = np.where(trace.max_tokens > 0, trace.max_tokens, np.nan)
    if trace.session is not None:
        found[NUMBERS[0]] = np.where(trace.session >= 0, trace.session, np.nan)
    found |= {name: trace.numbers[name] for name in NUMBERS[1:] if name in trace.numbers}
    if trace.prefix_ids is not None:
        cells = np.empty(len(trace), dtype=object)
        cells[:] = trace.prefix_ids
        found[PREFIX_IDS] = cells
    return found


def write_trace(trace: Trace, path: StrPath) -> None:
    """Write a whole file or none. Raises UserError for a name of no known kind, DataError."""
    kind, packed = kind_of(path)
    table = columns(trace)
    fill = {".csv": _delimited(","), ".tsv": _delimited("\t"), ".jsonl": _lines, ".parquet": _parquet}[kind]
    if kind == ".parquet":
        write(path, lambda file: fill(table, _bytes(file)))
        return

    def text(file: IO[str]) -> None:
        if not packed:
            fill(table, file)
            return
        # no time in the header: the same trace is the same file
        with gzip.GzipFile("", "wb", fileobj=_bytes(file), mtime=0) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as out:
            fill(table, out)

    write(path, text)


def _bytes(file: Any) -> IO[bytes]:
    return file.buffer


def _delimited(sign: str):
    def fill(table: dict[str, np.ndarray], file: IO[str]) -> None:
        import pandas as pd

        rows = len(table["prompt_tokens"])
        for start in range(0, max(rows, 1), ROWS):
            part = {name: _cells(name, column[start : start + ROWS]) for name, column in table.items()}
            pd.DataFrame(part).to_csv(file, sep=sign, index=False, header=start == 0, lineterminator="\n")

    return fill


def _cells(name: str, column: np.ndarray) -> Any:
    """What pandas writes as we do: whole numbers without a point, empty where there is none, ids with spaces."""
    if name == PREFIX_IDS:
        return [" ".join(map(str, ids)) for ids in column]
    if column.dtype == np.float64 and name != "arrival_s":
        import pandas as pd

        return pd.array(column, dtype="Float64").astype("Int64")
    return column


def _lines(table: dict[str, np.ndarray], file: IO[str]) -> None:
    names = list(table)
    whole = {name for name in names if name != "arrival_s"}
    for start in range(0, len(table["prompt_tokens"]), ROWS):
        parts = [table[name][start : start + ROWS].tolist() for name in names]
        lines = []
        for row in zip(*parts, strict=True):
            cells = {name: int(c) if name in whole and isinstance(c, float) and c == c else c
                     for name, c in zip(names, row, strict=True)}  # fmt: skip
            lines.append(json.dumps({name: c for name, c in cells.items() if c == c}, ensure_ascii=False))
        file.write("\n".join(lines) + "\n")


def _parquet(table: dict[str, np.ndarray], file: IO[bytes]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install 'llmqsim[parquet]', or name the file .csv") from None
    arrays = {}
    for name, column in table.items():
        if name == PREFIX_IDS:
            arrays[name] = pa.array(column.tolist(), pa.list_(pa.int64()))
        elif column.dtype == np.float64:
            arrays[name] = pa.array(column, from_pandas=True)
        else:
            arrays[name] = pa.array(column.tolist() if column.dtype == object else column)
    parquet.write_table(pa.table(arrays), file)
