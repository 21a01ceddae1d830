"""Request traces of any format that is read (reading/catalogue.py): recognised by content, or as the user says.

`reading/route.py` decides what a file is and where its columns lie; `reading/sheet.py` judges its rows. Files of other formats are refused by name (`formats.py`), and so are time stamps whose unit is doubtful
(`stamps.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from llmqsim.errors import DataError
from llmqsim.stamps import AUTO
from llmqsim.workload.reading.catalogue import TABLE, TraceFormat
from llmqsim.workload.reading.options import MAX_TOKENS, NUMBERS, PREFIX_IDS, How
from llmqsim.workload.reading.route import OURS, WHAT, route
from llmqsim.workload.reading.sheet import Judged, Sheet, judge
from llmqsim.workload.trace_columns import labels, limits, prefix_ids, sessions

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
    hash_tokens: int = 0
    """tokens of a block of prefix_ids, where the format says so; 0: it does not"""
    session: np.ndarray | None = None
    """int64[n], sessions numbered from 0, -1 where a request belongs to none; None when the file has no such column"""
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    """turn, new_prompt_tokens, cached_tokens, reasoning_tokens where the file has them and they were asked for"""
    start_s: float | None = None
    """Unix time at which arrival_s is 0, where the file says so"""
    left_out: tuple[str, ...] = ()
    """what skip_bad left out: the first faults, then how many more"""
    rows_left_out: int = 0

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def has_times(self) -> bool:
        """False for a file of lengths only."""
        return bool(len(self)) and not np.isnan(self.arrival_s[0])


def read_trace(
    path: str | Path,
    format: str = "auto",
    need_times: bool | None = True,
    time_unit: str = AUTO,
    how: How | None = None,
    extras: bool = False,
) -> Trace:
    """Read a trace.

    format : a name of reading.catalogue.FORMATS, or "auto", by content. Time stamps and Unix times count from the first
    row. need_times : refuse a file whose arrival column is empty (it can still be used for lengths), or whose unit is
    doubtful (lengths don't depend on it); None: refuse doubtful units, but not a file without times. time_unit : of numbers, one of stamps.CHOICES. how : all that may be said of
    a file, in place of format and time_unit. extras : read sessions and counts of cached tokens, too, for who uses
    them. Raises DataError naming file, line, column and value, at most 20 faults at once.
    """
    how = how or How(format=format, time_unit=time_unit)
    path = os.fspath(path)
    sheet, kind, clock = route(path, how, extras)
    if not len(sheet) and not sheet.faults:
        _nothing(path, sheet, kind)
    if need_times and sheet.absent and len(sheet):
        raise DataError(_lengths_only(path, sheet, kind))
    failed = _drop_failed(sheet) if kind.failed else ""
    judged = judge(sheet, clock, need_times is not False, how.skip_bad)
    if not len(judged.arrival_s):
        shown = judged.left_out[:1]
        raise DataError(f"{path}: no request is left of {len(sheet):,} rows; the others were left out", *shown)
    made = _trace(path, sheet, kind, judged, extras)
    return replace(made, notes=(*((failed,) if failed else ()), *made.notes))


def _drop_failed(sheet: Sheet) -> str:
    """Rows without tokens, of a format in which those are requests that failed: out, and the sentence that says so."""
    failed = (sheet.output == 0) | (sheet.prompt == 0)
    count = int(failed.sum())
    if not count:
        return ""
    keep = np.flatnonzero(~failed)
    place = {int(row): i for i, row in enumerate(keep.tolist())} if sheet.odd else {}
    sheet.lines = (np.arange(2, len(failed) + 2) if sheet.lines is None else sheet.lines)[keep]
    sheet.odd = {place[row]: texts for row, texts in sheet.odd.items() if row in place}
    sheet.stamps, sheet.prompt, sheet.output = sheet.stamps[keep], sheet.prompt[keep], sheet.output[keep]
    sheet.more = {name: column[keep] for name, column in sheet.more.items()}
    return f"{count:,} of {len(failed):,} rows have 0 tokens: requests that failed, left out"


def _nothing(path: str, sheet: Sheet, kind: TraceFormat) -> None:
    more = f" ({'; '.join(sheet.notes)})" if sheet.notes else ""
    if kind.kind != TABLE:
        raise DataError(f"{path}: format {kind.name}: holds no request with token counts{more}")
    raise DataError(f"{path}: has a header and no rows{more}; {WHAT} was expected")


def _lengths_only(path: str, sheet: Sheet, kind: TraceFormat) -> str:
    why = f"column '{sheet.names[0]}' is empty: the file" if sheet.names[0] and kind is OURS else f"format {kind.name}"
    return (
        f"{path}: {why} has lengths only. Use it for lengths: "
        f"`llmqsim workload fit {path} -o lengths.yaml`, then `lengths: {{file: lengths.yaml}}` with arrivals"
    )


def _trace(path: str, sheet: Sheet, kind: TraceFormat, judged: Judged, extras: bool) -> Trace:
    prompt, output = (column[judged.kept].astype(np.int64) for column in (sheet.prompt, sheet.output))
    more = {name: column[judged.kept] for name, column in sheet.more.items()}
    title = {"llmqsim": "", "azure": " (Azure format)"}.get(kind.name, f" (format {kind.name})")
    return Trace(
        judged.arrival_s,
        prompt,
        output,
        f"trace {Path(path).name}{title}",
        tuple(_notes(sheet, judged, extras)),
        labels(more, path),
        prefix_ids(more.get(PREFIX_IDS), path),
        limits(more.get(MAX_TOKENS), output, path),
        judged.doubt,
        kind.hash_tokens,
        sessions(more) if extras else None,
        {name: more[name] for name in NUMBERS[1:] if name in more},
        judged.start_s,
        judged.left_out,
        judged.rows_left_out,
    )


def _notes(sheet: Sheet, judged: Judged, extras: bool) -> list[str]:
    notes = []
    if sheet.unused and not extras:
        notes.append(f"columns of the trace that are not used yet: {', '.join(sheet.unused)}")
    notes += judged.notes
    if judged.rows_left_out:
        notes.append(
            f"{judged.rows_left_out:,} rows of the trace were left out because they can't be read "
            f"(skip_bad): {'; '.join(judged.left_out)}"
        )
    if len(judged.arrival_s) > 1 and not np.isnan(judged.arrival_s[0]):
        equal = float(np.mean(np.diff(judged.arrival_s) == 0))
        if equal > QUANTISED_SHARE:
            notes.append(
                f"{equal:.0%} of the trace's requests carry the time stamp of the one before: stamps are rounded, "
                "and the bursts that this makes may be an artefact (trace.spread_stamps spreads them)"
            )
    return notes
