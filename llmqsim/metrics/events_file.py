"""Reading measured events: a CSV with the columns request, arrival, time, tokens; plain or .gz.

Times are seconds unless an option or the columns' names (arrival_ms, time_ms) say otherwise. Seconds in which tokens
are minutes apart are refused until somebody states the unit.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np

from llmqsim.errors import DataError, did_you_mean
from llmqsim.files import read_bytes
from llmqsim.formats import binary, refuse_foreign
from llmqsim.stamps import AUTO, PER_SECOND, WORDS, epoch_unit

COLUMNS: tuple[str, ...] = ("request", "arrival", "time", "tokens")
WHAT = f"a CSV of events ({', '.join(COLUMNS)})"
SHOWN_FAULTS = 20
LARGEST_S = Decimal(9_000_000_000)
"""largest time in seconds that int64 nanoseconds hold; Unix time fits until the year 2255"""
LARGEST_TOKENS = 10**9
TIMES = ("arrival", "time")
SLOWEST_S = 2.0
"""median gap between a request's chunks from which seconds are doubted; a server that is used makes tokens faster"""
LONGEST_S = 600.0
"""the same of whole answers, where every request has one chunk"""


@dataclass(frozen=True)
class Events:
    """Chunks grouped by request (requests in order of first appearance), in order of time within a request.

    start : int64[requests + 1], request r holds the chunks start[r]:start[r + 1] (at least one).
    arrival_ns : int64[requests]. time_ns, tokens : int64[chunks], tokens >= 1.
    """

    start: np.ndarray
    arrival_ns: np.ndarray
    time_ns: np.ndarray
    tokens: np.ndarray


def read(path: str | Path, time_unit: str = AUTO) -> Events:
    """Read the events of a file. Raises DataError naming file, line, column, value and what would be right.

    time_unit : of its times, one of stamps.CHOICES.
    """
    text = _text(path)
    ends = ("", *(f"_{unit}" for unit in PER_SECOND))
    ours = [[f"{name}{end}" if name in TIMES else name for name in COLUMNS] for end in ends]
    refuse_foreign(path, text, WHAT, ours, advise=False)
    rows = _rows(path, text)
    order, width, named = _header(path, next(rows, None))
    reader = _Reader(str(path), order, width, time_unit if time_unit != AUTO else named)
    for line, row in rows:
        reader.take(line, row)
    return reader.events()


def _rows(path: str | Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each row that isn't blank."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in lines:
            if row:
                yield lines.line_num, row
    except csv.Error as problem:
        raise DataError(f"{path}:{lines.line_num}: not a row of CSV ({problem})") from None


def _text(path: str | Path) -> str:
    """The file as text, unpacked. Raises DataError when it is missing, a folder, truncated, empty or not text."""
    data = read_bytes(path, WHAT)
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{path}: the gzip file is damaged or cut off; copy it again") from None
    if not data.strip():
        raise DataError(f"{path}: is empty; it needs a header ({','.join(COLUMNS)}) and a row for each chunk")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        told = "is not a text file" + (f" but {kind}" if (kind := binary(data)) else "")
        raise DataError(f"{path}: {told}; give a CSV with the columns {', '.join(COLUMNS)}")
    return text


def _header(path: str | Path, first: tuple[int, list[str]] | None) -> tuple[list[int], int, str]:
    """Position of each of COLUMNS, how many columns there are, and the unit of their times. Others are not read."""
    line, header = first or (1, [])
    names = [name.strip() for name in header]
    unit = next((unit for unit in PER_SECOND if all(f"{name}_{unit}" in names for name in TIMES)), AUTO)
    if unit != AUTO and not set(TIMES) & set(names):
        names = [name.removesuffix(f"_{unit}") if name.removesuffix(f"_{unit}") in TIMES else name for name in names]
    faults = []
    for column in COLUMNS:
        if names.count(column) > 1:
            faults.append(f"{path}:{line}: {column}: this column is there {names.count(column)} times; keep one")
        elif column not in names:
            hint = did_you_mean(column, [n for n in names if n not in COLUMNS])
            found = ", ".join(names)
            faults.append(f"{path}:{line}: {column}: no such column (got: {found}){hint}; needed: {', '.join(COLUMNS)}")
    if faults:
        raise DataError(*faults)
    return [names.index(column) for column in COLUMNS], len(names), unit


def _number(text: str) -> Decimal | None:
    """A finite decimal number, or None. Digits grouped by underscores are not a number here."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() and "_" not in text else None


class _Reader:
    """Takes rows one by one, keeps the good ones by request and notes the faults of the others."""

    def __init__(self, path: str, order: list[int], width: int, unit: str):
        self.path, self.order, self.width, self.unit = path, order, width, unit
        self.ns = 10**9 // PER_SECOND.get(unit, 1)
        self.request_of: dict[str, int] = {}
        self.arrival: list[int] = []
        self.latest: list[int] = []
        self.line_of: list[int] = []
        self.chunks: list[tuple[int, int, int]] = []
        self.faults: list[str] = []
        self.bad = 0

    def fault(self, line: int, column: str, why: str) -> None:
        self.bad += 1
        if len(self.faults) < SHOWN_FAULTS:
            self.faults.append(f"{self.path}:{line}: {column}: {why}")

    def take(self, line: int, row: list[str]) -> None:
        if len(row) != self.width:
            self.fault(line, "row", f"has {len(row)} fields; the header has {self.width}")
            return
        name, arrival_text, time_text, tokens_text = (row[i].strip() for i in self.order)
        if not name:
            self.fault(line, "request", "is empty; name the request that the chunk belongs to")
        arrival = self._nanoseconds(line, "arrival", arrival_text)
        time = self._nanoseconds(line, "time", time_text)
        tokens = self._tokens(line, tokens_text)
        if name and arrival is not None and time is not None and tokens is not None:
            self._add(line, name, arrival, time, tokens)

    def _nanoseconds(self, line: int, column: str, text: str) -> int | None:
        value = _number(text)
        if value is not None and 0 <= value * self.ns <= LARGEST_S * 10**9:
            return int((value * self.ns).to_integral_value())
        if self.unit == AUTO and value is not None and (likely := epoch_unit(float(value))) is not None:
            raise DataError(
                f"{self.path}:{line}: {column}: {text} looks like Unix time in {WORDS[likely]}, not in seconds: "
                f"state the unit, --time-unit {likely}"
            )
        word = WORDS.get(self.unit, "seconds")
        self.fault(line, column, f"not a time in {word} (got '{text}'); a number from 0 on, such as 0.125")
        return None

    def _doubt(self, events: Events) -> Events:
        """Raises DataError where the times can hardly be the seconds that nobody stated."""
        first, last = events.start[:-1], events.start[1:] - 1
        follows = np.ones(len(events.time_ns), dtype=bool)
        follows[first] = False
        gaps = np.diff(events.time_ns, prepend=events.time_ns[:1])[follows]
        whole = events.time_ns[last] - events.arrival_ns
        sample, bound, what = (gaps, SLOWEST_S, "chunks") if len(gaps) else (whole, LONGEST_S, "arrival and answer")
        middle_s = float(np.median(sample)) / 1e9
        if middle_s < bound:
            return events
        likely = next((name for name, per in PER_SECOND.items() if middle_s / per < bound), "ns")
        raise DataError(
            f"{self.path}: time: as seconds, {what} are {middle_s:,.4g} s apart (median); as {WORDS[likely]}, "
            f"{middle_s / PER_SECOND[likely]:.4g} s: state the unit, --time-unit {likely}, or s if they are seconds"
        )

    def _tokens(self, line: int, text: str) -> int | None:
        value = _number(text)
        if value is not None and 1 <= value <= LARGEST_TOKENS and value == value.to_integral_value():
            return int(value)
        self.fault(line, "tokens", f"not a number of tokens (got '{text}'); whole, from 1 to {LARGEST_TOKENS:,}")
        return None

    def _add(self, line: int, name: str, arrival: int, time: int, tokens: int) -> None:
        request = self.request_of.setdefault(name, len(self.arrival))
        if request == len(self.arrival):
            self.arrival.append(arrival)
            self.latest.append(arrival)
            self.line_of.append(line)
        elif arrival != self.arrival[request]:
            where = f"line {self.line_of[request]} has {_s(self.arrival[request])}"
            self.fault(line, "arrival", f"request '{name}' arrives once (got '{_s(arrival)}'); {where}")
            return
        if time < arrival:
            self.fault(line, "time", f"before the request's arrival at {_s(arrival)} (got '{_s(time)}')")
        elif time < self.latest[request]:
            before = f"the chunk before it came at {_s(self.latest[request])} (line {self.line_of[request]})"
            self.fault(line, "time", f"chunks of a request must be in order (got '{_s(time)}'); {before}")
        else:
            self.latest[request], self.line_of[request] = time, line
            self.chunks.append((request, time, tokens))

    def events(self) -> Events:
        """All chunks, grouped by request. Raises DataError with the first faults and the number of the rest."""
        if self.bad > len(self.faults):
            self.faults.append(f"{self.path}: and {self.bad - len(self.faults)} more faults like these")
        if self.faults:
            raise DataError(*self.faults)
        if not self.chunks:
            raise DataError(f"{self.path}: holds a header and no rows; it needs a row for each chunk")
        table = np.array(self.chunks, dtype=np.int64)
        table = table[np.argsort(table[:, 0], kind="stable")]
        sizes = np.bincount(table[:, 0], minlength=len(self.arrival))
        start = np.concatenate([[0], np.cumsum(sizes)])
        events = Events(start, np.array(self.arrival, dtype=np.int64), table[:, 1].copy(), table[:, 2].copy())
        return self._doubt(events) if self.unit == AUTO else events


def _s(ns: int) -> str:
    """Nanoseconds as seconds without rounding."""
    text = f"{Decimal(ns).scaleb(-9):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
