"""The careful reading of a trace: every row by the `csv` module, every fault with its line, column and value."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass

import numpy as np

from llmqsim.errors import DataError
from llmqsim.stamps import Clock
from llmqsim.units import NS_PER_S
from llmqsim.workload.arrivals import MAX_TIME_S
from llmqsim.workload.lengths import MAX_TOKENS

MAX_FAULTS = 20
SHORTEST_STAMP = len("2023-11-16 18:15:46")
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Rows:
    """Arrival (float64[n], s; NaN throughout where the file has none), prompt and output tokens (int64[n])."""

    arrival_s: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    notes: tuple[str, ...] = ()
    """of how times were read"""
    doubt: str = ""
    """why times may be in another unit"""


@dataclass(frozen=True)
class Times:
    """How a trace's arrivals are read. dated : time stamps with a date, always. needed : False for lengths alone."""

    column: str
    dated: bool
    clock: Clock
    needed: bool = True

    def seconds(self, stamps: np.ndarray) -> np.ndarray:
        """Numbers to seconds, float64[n]. Raises DataError where their unit is doubtful and times are needed."""
        return self.clock.seconds(stamps) if self.needed else self.clock.relative(stamps)

    def notes(self, stamps: np.ndarray) -> tuple[str, ...]:
        """What a reader should know of them."""
        return tuple(self.clock.notes(stamps)) if self.needed else ()

    def doubt(self, stamps: np.ndarray) -> str:
        """Why they may be in another unit than the one in which they were read."""
        return self.clock.doubt(stamps) if self.needed else ""


DATED = "the trace's column {} holds time stamps: they count from its first request"


def is_clean(arrival_s: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> bool:
    """Are all rows usable? Arrivals finite, not negative and sorted (or all absent), lengths whole and at least 1."""
    with np.errstate(invalid="ignore"):
        lengths = all(np.all((c >= 1) & (c <= MAX_TOKENS) & (c == np.floor(c))) for c in (prompt, output))
        times = np.all((arrival_s >= 0) & (arrival_s <= MAX_TIME_S)) and np.all(np.diff(arrival_s) >= 0)
    return bool(lengths and (times or np.all(np.isnan(arrival_s))))


def timestamps_s(stamps) -> np.ndarray:
    """Seconds since the first of many time stamps ("2023-11-16 18:15:46.6805900"), float64[n]; NaN where unreadable."""
    import pandas as pd

    stamps = pd.Series(stamps, dtype=str)
    times = pd.to_datetime(stamps, format="ISO8601", errors="coerce", utc=True)
    bad = times.isna().to_numpy() | (stamps.str.len() < SHORTEST_STAMP).to_numpy()
    ns = times.to_numpy(dtype="datetime64[ns]").astype(np.int64)
    first = ns[~bad][0] if not bad.all() else 0
    # A time stamp before the first comes out negative; the difference is taken in whole ns before the division.
    return np.where(bad, np.nan, (ns - first) / NS_PER_S)


def checked_rows(text: str, header: list[str], columns: tuple[str, ...], times: Times, name: str) -> Rows:
    """Read all rows and return them, or raise DataError with the first 20 faults and the number of the others."""
    position = [header.index(c) for c in columns]
    lines, values, faults = _split(text, len(header), position, name)
    if not lines and not faults:
        return Rows(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
    arrival_s, dated, notes, doubt = _times(values[0], times)
    lengths = [np.array([_number(v) for v in column], dtype=np.float64) for column in values[1:]]
    absent = not any(values[0])
    if lines and not faults and is_clean(arrival_s, *lengths) and (absent or not np.isnan(arrival_s).any()):
        return Rows(arrival_s, lengths[0].astype(np.int64), lengths[1].astype(np.int64), notes, doubt)
    right = "a time stamp such as 2023-11-16 18:15:46.6805900" if dated else "seconds since the start, at least 0"
    faults += _time_faults(arrival_s, values[0], lines, columns[0], right, dated)
    for column, numbers, texts in zip(columns[1:], lengths, values[1:], strict=True):
        faults += _length_faults(numbers, texts, lines, column)
    faults.sort(key=lambda fault: fault[0])
    shown = [f"{name}:{line}: {sentence}" for line, sentence in faults[:MAX_FAULTS]]
    if len(faults) > MAX_FAULTS:
        shown.append(f"{name}: and {len(faults) - MAX_FAULTS:,} more faults")
    raise DataError(*shown)


def _times(texts: list[str], times: Times) -> tuple[np.ndarray, bool, tuple[str, ...], str]:
    """Seconds (NaN where unreadable), whether they are time stamps with a date, what to tell of them, and doubts."""
    if times.dated:
        return timestamps_s(texts), True, (), ""
    numbers = np.array([_number(v) for v in texts], dtype=np.float64)
    if np.isnan(numbers).any() and any(texts) and not np.isfinite(numbers).any():
        dated = timestamps_s(texts)
        if np.isfinite(dated).any():  # a column of dates: those that can't be read are faults among them
            times.clock.refuse_stated(f"time stamps such as '{_short(texts[0])}'")
            return dated, True, (DATED.format(times.column),), ""
    return times.seconds(numbers), False, times.notes(numbers), times.doubt(numbers)


def _split(text: str, width: int, position: list[int], name: str):
    """Lines (numbers), the three columns as text, and the faults of rows that are too short or too long."""
    reader = csv.reader(io.StringIO(text))
    lines, values, faults = [], ([], [], []), []
    next(reader)
    line = reader.line_num + 1
    try:
        for row in reader:
            if len(row) == width:
                lines.append(line)
                for column, i in zip(values, position, strict=True):
                    column.append(row[i].strip())
            elif row:
                faults.append((line, f"has {len(row)} fields; the header has {width}"))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{name}:{line}: not CSV ({error})") from None
    return lines, values, faults


def _number(text: str) -> float:
    """The number in a field, NaN when there is none. Python's 1_000 is no number in a CSV file."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _time_faults(
    arrival_s: np.ndarray, texts: list[str], lines: list[int], column: str, right: str, dated: bool
) -> list[tuple[int, str]]:
    if lines and not dated and not any(texts):
        return []
    faults, last = [], None
    for i in np.flatnonzero(_suspect_times(arrival_s)):
        time, line = arrival_s[i], lines[i]
        if not math.isfinite(time) or time > MAX_TIME_S or (time < 0 and not dated):
            hint = " (milliseconds?)" if MAX_TIME_S < time < math.inf else ""
            hint += _again(texts[i], column) or ("" if dated else _date_like(texts[i]))
            faults.append((line, f"{column}: must be {right} (got '{_short(texts[i])}'){hint}"))
        elif (last := _last_valid(arrival_s, i)) is not None and time < arrival_s[last]:
            got = f"got '{_short(texts[i])}' after '{_short(texts[last])}' in line {lines[last]}"
            faults.append((line, f"{column}: must not be before the row above ({got}); sort the rows by time"))
    return faults


def _suspect_times(arrival_s: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        after_bad = np.isnan(arrival_s) | (arrival_s < 0) | (arrival_s > MAX_TIME_S)
        step = np.diff(arrival_s, prepend=0.0)
        return after_bad | ~(step >= 0)


def _last_valid(arrival_s: np.ndarray, i: int) -> int | None:
    for j in range(i - 1, -1, -1):
        if math.isfinite(arrival_s[j]) and arrival_s[j] <= MAX_TIME_S:
            return j
    return None


def _length_faults(numbers: np.ndarray, texts: list[str], lines: list[int], column: str):
    with np.errstate(invalid="ignore"):
        bad = ~((numbers >= 1) & (numbers <= MAX_TOKENS) & (numbers == np.floor(numbers)))
    bounds = {False: "a whole number of at least 1", True: f"at most {MAX_TOKENS:,}"}
    faults = []
    for i in np.flatnonzero(bad):
        right = bounds[math.inf > numbers[i] > MAX_TOKENS]
        faults.append((lines[i], f"{column}: must be {right} (got '{_short(texts[i])}'){_again(texts[i], column)}"))
    return faults


def _again(text: str, column: str) -> str:
    return "; the header is repeated here" if text == column else ""


def _date_like(text: str) -> str:
    """What is to be said of a date or a time of day among numbers, or in a spelling that is not read."""
    if not any(c.isdigit() for c in text) or not any(c in text[1:] for c in "-/:") or "e" in text.lower():
        return ""
    return "; dates are read where every row has one, such as 2023-11-16 18:15:46.68"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
