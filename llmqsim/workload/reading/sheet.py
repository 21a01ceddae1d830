"""A file's requests as they were written, before anything is judged, and the judgement: which rows can't be."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from llmqsim.errors import DataError
from llmqsim.stamps import PER_SECOND, Clock
from llmqsim.units import NS_PER_S
from llmqsim.workload.arrivals import MAX_TIME_S
from llmqsim.workload.lengths import MAX_TOKENS

MAX_FAULTS = 20
SHORTEST_STAMP = len("2023-11-16 18:15:46")
NO_DATE = np.iinfo(np.int64).min
DATE = "a time stamp such as 2023-11-16 18:15:46.6805900"
DATED = "the trace's column {} holds time stamps: they count from its first request"


@dataclass
class Sheet:
    """One entry a row in every array. Faults are told with the line (of tables), or the record, that they are in.

    names : what the file calls arrival, prompt and output. stamps : float64[n], NaN where unreadable, or dates in
    int64[n] ns since 1970, NO_DATE where unreadable. absent : has no cell of the arrival column anything in it? odd :
    texts of the three cells of rows that may be faulty. faults : of whole rows, which are in no array. unordered : is
    the order in the file none in time?
    """

    path: str
    names: tuple[str, str, str]
    stamps: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    lines: np.ndarray | None = None
    absent: bool = False
    odd: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    faults: list[tuple[int, str]] = field(default_factory=list)
    more: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unordered: bool = False
    unused: tuple[str, ...] = ()
    """columns that the file has and a run doesn't act on"""

    @property
    def dated(self) -> bool:
        """Dates, and no numbers?"""
        return self.stamps.dtype == np.int64

    def __len__(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True)
class Judged:
    """What is left of a sheet: kept (its rows, int64[n], or all of them), seconds of each, and what to tell."""

    kept: np.ndarray | slice
    arrival_s: np.ndarray
    start_s: float | None
    """Unix time at which arrival_s is 0, where the file says so"""
    notes: tuple[str, ...]
    doubt: str
    left_out: tuple[str, ...]
    """sentences about rows that were left out, the first of them, then how many more"""
    rows_left_out: int = 0


def judge(sheet: Sheet, clock: Clock, need_times: bool, skip_bad: bool) -> Judged:
    """Seconds, and the rows that can be used. Raises DataError with the first faults unless they may be skipped."""
    if sheet.unordered and not sheet.absent:
        _sort(sheet)
    if sheet.dated:
        clock.refuse_stated(f"time stamps such as '{_shown(sheet, 0, 0)}'" if 0 in sheet.odd else "time stamps with a date")
    lengths_ok = [_whole(column) for column in (sheet.prompt, sheet.output)]
    if sheet.absent:
        arrival_s, start_s, ordered = np.full(len(sheet), np.nan), None, np.ones(len(sheet), dtype=bool)
    else:
        arrival_s, start_s, ordered = _times(sheet, clock, need_times, skip_bad)
    good = ordered & lengths_ok[0] & lengths_ok[1]
    left_out: tuple[str, ...] = ()
    rows_left_out = 0
    if sheet.faults or not good.all():
        told = _faults(sheet, arrival_s, ordered, lengths_ok)
        rows_left_out = len(sheet) - int(good.sum()) + len({line for line, _ in sheet.faults})
        if not skip_bad:
            raise DataError(*_first(told, sheet.path, "more faults"))
        left_out = _first(told, sheet.path, "more")
    kept = slice(None) if good.all() else np.flatnonzero(good)
    notes, doubt = list(sheet.notes), ""
    if sheet.dated:
        notes.append(DATED.format(sheet.names[0]))
    elif not sheet.absent and need_times:
        notes += clock.notes(sheet.stamps[kept] if skip_bad else sheet.stamps)
        doubt = clock.doubt(sheet.stamps[kept] if skip_bad else sheet.stamps)
    return Judged(kept, arrival_s[kept], start_s, tuple(notes), doubt, left_out, rows_left_out)


def _times(sheet: Sheet, clock: Clock, need_times: bool, skip_bad: bool):
    """float64[n] seconds (NaN: unreadable), Unix time of zero or None, and which rows are readable and in order."""
    if sheet.dated:
        readable = sheet.stamps != NO_DATE
        ordered = longest_ordered(sheet.stamps, readable)
        first = sheet.stamps[(ordered if skip_bad else readable).argmax()] if readable.any() else 0
        seconds = np.where(readable, (sheet.stamps - first) / NS_PER_S, np.nan)
        return seconds, first / NS_PER_S, ordered
    known = np.isfinite(sheet.stamps)
    start_s = None
    if skip_bad:
        known &= longest_ordered(sheet.stamps, known & (sheet.stamps >= 0))
        seconds = np.full(len(sheet), np.nan)
        read = clock.seconds if need_times else clock.relative
        seconds[known] = read(sheet.stamps[known])
        origin = clock.origin(sheet.stamps[known]) if need_times else None
    else:
        seconds = clock.seconds(sheet.stamps) if need_times else clock.relative(sheet.stamps)
        origin = clock.origin(sheet.stamps) if need_times else None
    if origin:
        start_s = origin
    with np.errstate(invalid="ignore"):
        readable = (seconds >= 0) & (seconds <= MAX_TIME_S)
        if not skip_bad and known.any() and origin:
            readable |= known & (seconds < 0)  # Unix times before the first are out of order, not negative
    return seconds, start_s, longest_ordered(seconds, readable)


def longest_ordered(stamps: np.ndarray, readable: np.ndarray) -> np.ndarray:
    """Which readable rows make the longest sequence that never goes back, bool[n]; of two that clash, the first."""
    places = np.flatnonzero(readable)
    values = stamps[places]
    if not len(values) or not np.any(values[1:] < values[:-1]):
        return readable.copy()
    # From the end: the longest sequence that never grows. Of two candidates for one place the earlier row wins.
    tails: list = []
    ends: list[int] = []
    before = np.full(len(values), -1)
    for i in range(len(values) - 1, -1, -1):
        place = bisect_right(tails, -values[i])
        if place == len(tails):
            tails.append(-values[i])
            ends.append(i)
        else:
            tails[place], ends[place] = -values[i], i
        before[i] = ends[place - 1] if place else -1
    keep = np.zeros(len(stamps), dtype=bool)
    i = ends[-1]
    while i >= 0:
        keep[places[i]] = True
        i = before[i]
    return keep


def _sort(sheet: Sheet) -> None:
    """Rows in order of time, those without one last."""
    key = sheet.stamps
    if not np.any(key[1:] < key[:-1]):
        return
    order = np.argsort(key, kind="stable")
    sheet.stamps, sheet.prompt, sheet.output = key[order], sheet.prompt[order], sheet.output[order]
    sheet.more = {name: column[order] for name, column in sheet.more.items()}
    sheet.lines = (np.arange(1, len(order) + 1) if sheet.lines is None else sheet.lines)[order]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    sheet.odd = {int(place[row]): texts for row, texts in sheet.odd.items()}
    sheet.notes.append("the file is not in order of arrival: its requests were sorted by time")


def _whole(column: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return (column >= 1) & (column <= MAX_TOKENS) & (column == np.floor(column))


def suspects(stamps: np.ndarray, prompt: np.ndarray, output: np.ndarray, last: float) -> np.ndarray:
    """Rows of a block whose cells should be remembered, and the rows before them, int64[k]. last : the stamp before."""
    before = np.concatenate([[last], stamps[:-1]]) if len(stamps) else stamps
    with np.errstate(invalid="ignore"):
        good = _whole(prompt) & _whole(output) & (stamps >= before)
        if stamps.dtype != np.int64:
            good &= (stamps >= 0) & (stamps <= MAX_TIME_S)
    bad = np.flatnonzero(~good)
    return np.unique(np.concatenate([bad, bad[bad > 0] - 1, bad[bad < len(stamps) - 1] + 1]))


def _faults(sheet: Sheet, arrival_s: np.ndarray, ordered: np.ndarray, lengths_ok: list) -> list[tuple[int, str]]:
    """(line, sentence) of everything that is wrong, in order of lines."""
    faults = list(sheet.faults)
    kept = np.flatnonzero(ordered)
    for i in np.flatnonzero(~ordered):
        faults.append((_line(sheet, i), _time_fault(sheet, arrival_s, kept, int(i))))
    for place, (good, column) in enumerate(zip(lengths_ok, (sheet.prompt, sheet.output), strict=True), 1):
        for i in np.flatnonzero(~good):
            text = _shown(sheet, int(i), place)
            right = f"at most {MAX_TOKENS:,}" if math.inf > column[i] > MAX_TOKENS else "a whole number of at least 1"
            name = sheet.names[place]
            faults.append((_line(sheet, i), f"{name}: must be {right} (got '{_short(text)}'){_hint(text, name)}"))
    return sorted(faults, key=lambda fault: fault[0])


def _time_fault(sheet: Sheet, arrival_s: np.ndarray, kept: np.ndarray, i: int) -> str:
    name, text, time = sheet.names[0], _shown(sheet, i, 0), arrival_s[i]
    at = int(np.searchsorted(kept, i))
    last = int(kept[at - 1]) if at else None
    unreadable = math.isnan(time) if sheet.dated else not 0 <= time <= MAX_TIME_S
    if not unreadable or (not sheet.dated and time < 0 and last is not None and not text.startswith("-")):
        if last is None:
            after = int(kept[at])
            got = f"got '{_short(text)}' before '{_short(_shown(sheet, after, 0))}' in line {_line(sheet, after)}"
            return f"{name}: must not be after the row below ({got}); sort the rows by time"
        got = f"got '{_short(text)}' after '{_short(_shown(sheet, last, 0))}' in line {_line(sheet, last)}"
        return f"{name}: must not be before the row above ({got}); sort the rows by time{_other_unit(sheet, kept, at, i)}"
    right = DATE if sheet.dated else "seconds since the start, at least 0"
    hint = " (milliseconds?)" if MAX_TIME_S < time < math.inf else ""
    hint += _hint(text, name) or ("" if sheet.dated else _date_like(text))
    return f"{name}: must be {right} (got '{_short(text)}'){hint}{_other_unit(sheet, kept, at, i)}"


def _other_unit(sheet: Sheet, kept: np.ndarray, at: int, i: int) -> str:
    """Would the stamp fit between its neighbours in another unit?"""
    if sheet.dated or not at or at >= len(kept) or not np.isfinite(sheet.stamps[i]):
        return ""
    low, high, value = (float(sheet.stamps[k]) for k in (kept[at - 1], kept[at], i))
    for per in list(PER_SECOND.values())[1:]:
        for fitting, how in ((value / per, "divided"), (value * per, "multiplied")):
            if low <= fitting <= high and fitting != 0:
                return f"; {how} by {per:,} it fits between its neighbours: another unit?"
    return ""


def _line(sheet: Sheet, i: int | np.integer) -> int:
    return int(sheet.lines[i]) if sheet.lines is not None else int(i) + 2


def _shown(sheet: Sheet, i: int, place: int) -> str:
    """The text of a cell, or its number."""
    if i in sheet.odd:
        return sheet.odd[i][place]
    value = (sheet.stamps, sheet.prompt, sheet.output)[place][i]
    if place == 0 and sheet.dated:
        return str(np.datetime64(int(value), "ns"))
    return f"{value:.0f}" if place and value == np.floor(value) else repr(float(value))


def _first(faults: list[tuple[int, str]], path: str, word: str) -> tuple[str, ...]:
    shown = [f"{path}:{line}: {sentence}" for line, sentence in faults[:MAX_FAULTS]]
    if len(faults) > MAX_FAULTS:
        shown.append(f"{path}: and {len(faults) - MAX_FAULTS:,} {word}")
    return tuple(shown)


def _hint(text: str, column: str) -> str:
    if text == column:
        return "; the header is repeated here"
    body = text.strip().replace(",", "", 1)
    return "; a decimal comma? Write 0.5, not 0,5" if "," in text and body.isdigit() else ""


def _date_like(text: str) -> str:
    """What is to be said of a date or a time of day among numbers, or in a spelling that is not read."""
    if not any(c.isdigit() for c in text) or not any(c in text[1:] for c in "-/:") or "e" in text.lower():
        return ""
    return "; dates are read where every row has one, such as 2023-11-16 18:15:46.68"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def number(text: str) -> float:
    """The number in a field, NaN when there is none. Python's 1_000 is no number in a file."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def dates_ns(stamps: Sequence[str]) -> np.ndarray:
    """Time stamps ("2023-11-16 18:15:46.6805900", with a zone or without: UTC) to int64[n] ns; NO_DATE: unreadable."""
    import pandas as pd

    texts = pd.Series(stamps, dtype=str)
    times = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True)
    bad = times.isna().to_numpy() | (texts.str.len() < SHORTEST_STAMP).to_numpy()
    ns = times.to_numpy(dtype="datetime64[ns]").astype(np.int64)
    return np.where(bad, NO_DATE, ns)


def is_date(text: str) -> bool:
    """Is this a time stamp with a date?"""
    return len(text) >= SHORTEST_STAMP and bool(dates_ns([text])[0] != NO_DATE)


