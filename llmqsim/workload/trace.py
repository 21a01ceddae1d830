"""Request traces: our own CSV columns and the Azure LLM inference CSV, plain or gzipped, a million rows in a second.

A clean file is read by pandas in one pass. When anything is odd (a quote, a value that isn't a number, a short row),
the file is read again by the `csv` module (`trace_faults.py`), which knows line numbers.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from llmqsim.errors import DataError, ScenarioError, did_you_mean, or_known
from llmqsim.memory import require
from llmqsim.workload.files import read_text
from llmqsim.workload.trace_faults import Rows, checked_rows, is_clean, timestamps_s

WHAT = "a trace (CSV with the columns arrival_s, prompt_tokens, output_tokens)"
FORMATS: dict[str, tuple[str, str, str]] = {
    "llmqsim": ("arrival_s", "prompt_tokens", "output_tokens"),
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
}
NOT_USED_YET = ("session_id", "turn", "new_prompt_tokens", "cached_tokens", "reasoning_tokens")
"""Columns that mean something to a server and that this version doesn't act on: the reader is told."""
LABELS = ("class", "tenant", "priority")
"""Columns that a trace may have beside times and lengths."""
PREFIX_IDS = "prefix_hash_blocks"
BYTES_PER_BYTE = 4
"""memory for reading a plain trace: its bytes, its text, its bytes once more, its numbers"""
QUANTISED_SHARE = 0.5


@dataclass(frozen=True)
class Trace:
    """One row a request, in order of arrival: float64[n] s (all NaN in a file of lengths only), int64[n]."""

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    source: str
    notes: tuple[str, ...] = ()
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    """columns of LABELS that the file has, text, object[n]"""
    prefix_ids: list[list[int]] | None = None
    """column prefix_hash_blocks: ids of a prompt's blocks, in order; None when the file has no such column"""

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def has_times(self) -> bool:
        """False for a file of lengths only."""
        return bool(len(self)) and not np.isnan(self.arrival_s[0])


def read_trace(path: str | Path, format: str = "auto", need_times: bool = True) -> Trace:
    """Read a trace.

    format : "llmqsim" (seconds as written), "azure" (times relative to the first row), or "auto", by the header.
    need_times : refuse a file whose arrival column is empty (it can still be used for lengths).
    Raises DataError naming file, line, column and value, at most 20 faults at once.
    """
    with contextlib.suppress(OSError, ValueError):  # what is wrong with the file itself, read_text says
        size = os.stat(path).st_size
        require(size * BYTES_PER_BYTE, f"workload.trace: {size:,} bytes of trace", "cut the file into parts")
    text = read_text(path, WHAT)
    header, body_start = _header(text, path)
    format = _format(header, format, path)
    columns = FORMATS[format]
    _check_header(header, columns, path)
    rows = _fast(text, header, columns, format) or checked_rows(text, header, columns, format == "azure", str(path))
    if not len(rows.prompt) or body_start >= len(text):
        raise DataError(f"{path}: has a header and no rows; {WHAT} was expected")
    if need_times and np.isnan(rows.arrival_s[0]):
        raise DataError(
            f"{path}: column '{columns[0]}' is empty: the file has lengths only. Use it for lengths: "
            f"`llmqsim workload fit {path} -o lengths.yaml`, then `lengths: {{file: lengths.yaml}}` with arrivals"
        )
    source = f"trace {Path(path).name}" + (" (Azure format)" if format == "azure" else "")
    notes, labels = tuple(_notes(header, rows)), _labels(text, header, len(rows.prompt), path)
    prefix_ids = _prefix_ids(labels.pop(PREFIX_IDS, None), path)
    return Trace(rows.arrival_s, rows.prompt, rows.output, source, notes, labels, prefix_ids)


def _header(text: str, path: str | Path) -> tuple[list[str], int]:
    end = text.find("\n")
    line = text if end < 0 else text[:end]
    return [name.strip() for name in next(csv.reader([line]), [])], len(line) + 1


def _format(header: list[str], format: str, path: str | Path) -> str:
    if format == "auto":
        return "azure" if set(FORMATS["azure"]) & set(header) else "llmqsim"
    if format not in FORMATS:
        hint = or_known(str(format), ("auto", *FORMATS))
        raise ScenarioError(f"workload.trace.format: unknown (got '{format}'){hint}")
    return format


def _check_header(header: list[str], columns: tuple[str, ...], path: str | Path) -> None:
    shown = ", ".join(header)[:120]
    faults = []
    for column in columns:
        if header.count(column) > 1:
            faults.append(f"{path}:1: column '{column}' stands twice in the header (got {shown}); keep one")
        elif column not in header:
            hint = did_you_mean(column, [h for h in header if h not in columns])
            faults.append(f"{path}:1: no column '{column}' (got {shown}){hint}")
    if faults:
        stop = "" if faults[-1].endswith("?") else "."
        ours, azures = (", ".join(FORMATS[name]) for name in ("llmqsim", "azure"))
        faults[-1] += f"{stop} The header must name {ours}, or Azure's {azures}"
        if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
            faults[-1] += "; separate columns by commas"
        raise DataError(*faults)


def _fast(text: str, header: list[str], columns: tuple[str, ...], format: str) -> Rows | None:
    """Read with pandas; None when anything at all is odd, so that the careful reader says what."""
    import pandas as pd

    raw = text.encode()
    if b'"' in raw or not _rectangular(raw, len(header)):
        return None
    position = [header.index(c) for c in columns]
    kinds = {position[0]: str if format == "azure" else np.float64, position[1]: np.float64, position[2]: np.float64}
    try:
        frame = pd.read_csv(
            io.BytesIO(raw), header=None, skiprows=1, usecols=position, dtype=kinds, na_filter=format != "azure",
            skip_blank_lines=True,
        )  # fmt: skip
    except (ValueError, OverflowError):
        return None
    first = frame[position[0]]
    arrival_s = timestamps_s(first) if format == "azure" else first.to_numpy()
    prompt, output = frame[position[1]].to_numpy(), frame[position[2]].to_numpy()
    if not is_clean(arrival_s, prompt, output):
        return None
    return Rows(arrival_s, prompt.astype(np.int64), output.astype(np.int64))


def _labels(text: str, header: list[str], rows: int, path: str | Path) -> dict[str, np.ndarray]:
    """Columns of LABELS as text, object[rows] each. Raises DataError for a column named twice or an empty label."""
    import pandas as pd

    named = [name for name in (*LABELS, PREFIX_IDS) if name in header]
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
    labels = {name: frame[header.index(name)].str.strip().to_numpy(dtype=object) for name in named}
    for name, column in labels.items():
        if name != PREFIX_IDS and (column == "").any():
            row = int(np.flatnonzero(column == "")[0]) + 1
            raise DataError(f"{path}: column '{name}', request {row}: is empty; name one, or remove the column")
    return labels


def _prefix_ids(column: np.ndarray | None, path: str | Path) -> list[list[int]] | None:
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


def _rectangular(raw: bytes, width: int) -> bool:
    """Does every line have `width` fields? pandas would silently fill or drop the rest. No quotes in `raw`."""
    data = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not len(ends) or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    commas = np.searchsorted(np.flatnonzero(data == ord(",")), ends)
    return bool(np.all(np.diff(commas, prepend=0) == width - 1))


def _notes(header: list[str], rows: Rows) -> list[str]:
    notes = []
    unused = [name for name in NOT_USED_YET if name in header]
    if unused:
        notes.append(f"columns of the trace that are not used yet: {', '.join(unused)}")
    if len(rows.arrival_s) > 1 and not np.isnan(rows.arrival_s[0]):
        equal = float(np.mean(np.diff(rows.arrival_s) == 0))
        if equal > QUANTISED_SHARE:
            notes.append(
                f"{equal:.0%} of the trace's requests carry the time stamp of the one before: stamps are rounded, "
                "and the bursts that this makes may be an artefact (trace.spread_stamps spreads them)"
            )
    return notes
