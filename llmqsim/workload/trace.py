"""Request traces: our own CSV columns and the Azure LLM inference CSV, plain or gzipped, a million rows in a second.

A clean file is read by pandas in one pass. When anything is odd (a quote, a value that isn't a number, a short row),
the file is read again by the `csv` module (`trace_faults.py`), which knows line numbers. Files of other formats are
refused by name (`formats.py`), and so are time stamps whose unit is doubtful (`stamps.py`).
"""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from llmqsim.errors import DataError, ScenarioError, or_known
from llmqsim.formats import column_hint, fields, refuse_foreign
from llmqsim.memory import require
from llmqsim.stamps import AUTO, Clock, columns, unit
from llmqsim.workload.files import read_text
from llmqsim.workload.trace_columns import LABELS, MAX_TOKENS, PREFIX_IDS, labels, limits, prefix_ids
from llmqsim.workload.trace_faults import Rows, Times, checked_rows, is_clean, timestamps_s

WHAT = "a trace (CSV with the columns arrival_s, prompt_tokens, output_tokens)"
FORMATS: dict[str, tuple[str, str, str]] = {
    "llmqsim": ("arrival_s", "prompt_tokens", "output_tokens"),
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
}
ARRIVALS = columns("arrival")
"""names that the arrival column of our own format may have, and the unit that each states"""
NOT_USED_YET = ("session_id", "turn", "new_prompt_tokens", "cached_tokens", "reasoning_tokens")
"""Columns that mean something to a server and that this version doesn't act on: the reader is told."""
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
    max_tokens: np.ndarray | None = None
    """column max_tokens: most tokens that each client allowed, int64[n], 0 where a cell is empty; None: no column"""
    doubt: str = ""
    """why arrivals may be in another unit than the one in which they were read"""

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def has_times(self) -> bool:
        """False for a file of lengths only."""
        return bool(len(self)) and not np.isnan(self.arrival_s[0])


def read_trace(
    path: str | Path, format: str = "auto", need_times: bool = True, time_unit: str = AUTO
) -> Trace:
    """Read a trace.

    format : "llmqsim" (numbers, or time stamps with a date), "azure" (time stamps), or "auto", by the header. Time
    stamps and Unix times count from the first row.
    need_times : refuse a file whose arrival column is empty (it can still be used for lengths), or whose unit is
    doubtful (lengths don't depend on it).
    time_unit : of numbers, one of stamps.CHOICES. Raises DataError naming file, line, column and value, at most 20
    faults at once.
    """
    with contextlib.suppress(OSError, ValueError):  # what is wrong with the file itself, read_text says
        size = os.stat(path).st_size
        require(size * BYTES_PER_BYTE, f"workload.trace: {size:,} bytes of trace", "cut the file into parts")
    unit(time_unit, "workload.trace.time_unit")
    text = read_text(path, WHAT)
    ours = [(arrival, *FORMATS["llmqsim"][1:]) for arrival in ARRIVALS]
    refuse_foreign(path, text, WHAT, [*ours, FORMATS["azure"]])
    line = text.partition("\n")[0]
    header = fields(line)
    format = _format(header, format)
    names = _columns(header, format, path)
    times = Times(names[0], format == "azure", Clock(time_unit, names[0], str(path)), need_times)
    if times.dated:
        times.clock.refuse_stated()
    rows = _fast(text, header, names, times) or checked_rows(text, header, names, times, str(path))
    if not len(rows.prompt) or len(line) + 1 >= len(text):
        raise DataError(f"{path}: has a header and no rows; {WHAT} was expected")
    if need_times and np.isnan(rows.arrival_s[0]):
        raise DataError(
            f"{path}: column '{names[0]}' is empty: the file has lengths only. Use it for lengths: "
            f"`llmqsim workload fit {path} -o lengths.yaml`, then `lengths: {{file: lengths.yaml}}` with arrivals"
        )
    source = f"trace {Path(path).name}" + (" (Azure format)" if format == "azure" else "")
    notes, more = tuple(_notes(header, rows)), labels(text, header, len(rows.prompt), path)
    return Trace(
        rows.arrival_s,
        rows.prompt,
        rows.output,
        source,
        notes,
        {name: column for name, column in more.items() if name in LABELS},
        prefix_ids(more.get(PREFIX_IDS), path),
        limits(more.get(MAX_TOKENS), rows.output, path),
        rows.doubt,
    )


def _format(header: list[str], format: str) -> str:
    if format == "auto":
        return "azure" if set(FORMATS["azure"]) & set(header) else "llmqsim"
    if format not in FORMATS:
        hint = or_known(str(format), ("auto", *FORMATS))
        raise ScenarioError(f"workload.trace.format: unknown (got '{format}'){hint}")
    return format


def _columns(header: list[str], format: str, path: str | Path) -> tuple[str, str, str]:
    """The names of arrival, prompt and output in this file. Raises DataError for those that are missing or doubled."""
    arrival, *lengths = FORMATS[format]
    found = [name for name in header if name in ARRIVALS] if format == "llmqsim" else []
    if len(set(found)) > 1:
        raise DataError(f"{path}:1: columns {' and '.join(found)} are both arrivals; keep one")
    names = (*(found[:1] or [arrival]), *lengths)
    shown = ", ".join(header)[:120]
    faults = []
    for column in names:
        if header.count(column) > 1:
            faults.append(f"{path}:1: column '{column}' stands twice in the header (got {shown}); keep one")
        elif column not in header:
            hint = column_hint(column, [h for h in header if h not in names])
            faults.append(f"{path}:1: no column '{column}' (got {shown}){hint}")
    if faults:
        stop = "" if faults[-1].endswith("?") else "."
        ours, azures = (", ".join(FORMATS[name]) for name in ("llmqsim", "azure"))
        faults[-1] += f"{stop} The header must name {ours}, or Azure's {azures}"
        raise DataError(*faults)
    return names


def _fast(text: str, header: list[str], columns: tuple[str, ...], times: Times) -> Rows | None:
    """Read with pandas; None when anything at all is odd, so that the careful reader says what."""
    import pandas as pd

    raw = text.encode()
    if b'"' in raw or not _rectangular(raw, len(header)):
        return None
    position = [header.index(c) for c in columns]
    kinds = {position[0]: str if times.dated else np.float64, position[1]: np.float64, position[2]: np.float64}
    try:
        frame = pd.read_csv(
            io.BytesIO(raw), header=None, skiprows=1, usecols=position, dtype=kinds, na_filter=not times.dated,
            skip_blank_lines=True,
        )  # fmt: skip
    except (ValueError, OverflowError):
        return None
    first = frame[position[0]]
    prompt, output = frame[position[1]].to_numpy(), frame[position[2]].to_numpy()
    arrival_s = timestamps_s(first) if times.dated else times.seconds(first.to_numpy())
    if not is_clean(arrival_s, prompt, output):
        return None
    notes, doubt = ((), "") if times.dated else (times.notes(first.to_numpy()), times.doubt(first.to_numpy()))
    return Rows(arrival_s, prompt.astype(np.int64), output.astype(np.int64), notes, doubt)


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
    notes += rows.notes
    if len(rows.arrival_s) > 1 and not np.isnan(rows.arrival_s[0]):
        equal = float(np.mean(np.diff(rows.arrival_s) == 0))
        if equal > QUANTISED_SHARE:
            notes.append(
                f"{equal:.0%} of the trace's requests carry the time stamp of the one before: stamps are rounded, "
                "and the bursts that this makes may be an artefact (trace.spread_stamps spreads them)"
            )
    return notes
