"""JSON lines, JSON documents, and folders of them, one object after the other, and requests from flat objects."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.errors import DataError
from llmqsim.memory import require
from llmqsim.workload.reading import sheet as rules
from llmqsim.workload.reading.sheet import Sheet, dates_ns, is_date, number
from llmqsim.workload.reading.stream import blocks, head, whole

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj")
BYTES_PER_BYTE = 12
"""memory of a document of JSON that is held as objects"""
Found = tuple[int, Any, str]
"""line (or number in a document), value, fault; one of the last two"""


def is_json(first: bytes) -> bool:
    """Does a text begin as JSON does?"""
    return first.lstrip()[:1] in (b"{", b"[")


def is_lines(first: bytes) -> bool:
    """Is each line an object of its own?"""
    line = first.lstrip().partition(b"\n")[0]
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def values(path: str, what: str, lenient: bool = False) -> Iterator[Found]:
    """The objects of a file, or of all JSON files of a folder. Raises DataError for a document that is no JSON."""
    if os.path.isdir(path):
        files = sorted(p for p in Path(path).rglob("*") if p.suffix in SUFFIXES and p.is_file())
        if not files:
            raise DataError(f"{path}: is a folder without JSON files; {what} was expected")
        for place, file in enumerate(files, 1):
            for _, value, fault in values(str(file), what, lenient):
                yield place, value, f"{file.name}: {fault}" if fault else ""
    elif is_lines(head(path, what)):
        yield from _lines(path, what, lenient)
    else:
        yield from _document(path, what, lenient)


def _lines(path: str, what: str, lenient: bool) -> Iterator[Found]:
    for first, block in blocks(path, what, lenient):
        for line, text in enumerate(block.split(b"\n"), first):
            if not text.strip():
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                yield line, None, f"not JSON ({getattr(error, 'msg', None) or 'nested too deeply'})"
                continue
            if isinstance(value, dict):
                yield line, value, ""
            else:
                yield line, None, f"must be a JSON object (got {type(value).__name__})"


def _document(path: str, what: str, lenient: bool) -> Iterator[Found]:
    """Objects one after the other, or in a list; a list under the key `data` counts as such."""
    text = whole(path, what, lenient)
    require(len(text) * BYTES_PER_BYTE, f"workload.trace: {len(text):,} bytes of JSON", "write it as JSON lines")
    decoder, place, count = json.JSONDecoder(), 0, 0
    while text[place:].strip():
        place += len(text[place:]) - len(text[place:].lstrip())
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{error.lineno}: not JSON ({error.msg}); {what} was expected") from None
        except RecursionError:
            raise DataError(f"{path}: nested too deeply; {what} was expected") from None
        listed = value.get("data") if isinstance(value, dict) and isinstance(value.get("data"), list) else value
        for one in listed if isinstance(listed, list) else [value]:
            count += 1
            if isinstance(one, dict):
                yield count, one, ""
            else:
                yield count, None, f"must be a JSON object (got {type(one).__name__})"


@dataclass
class Builder:
    """Collects requests one by one. more : our names of further columns; cells that are missing stay empty."""

    path: str
    names: tuple[str, str, str]
    more: Iterable[str] = ()
    unordered: bool = False
    times: bool = True
    lines: list[int] = field(default_factory=list)
    cells: list[tuple[Any, Any, Any]] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in self.more}

    def add(self, line: int, stamp: Any, prompt: Any, output: Any, more: Mapping[str, Any] | None = None) -> None:
        """One request."""
        self.lines.append(line)
        self.cells.append((stamp, prompt, output))
        for name, column in self.columns.items():
            column.append((more or {}).get(name))

    def sheet(self) -> Sheet:
        """All of them."""
        shown = [cell[0] for cell in self.cells]
        first = next((str(stamp) for stamp in shown if stamp not in (None, "")), "")
        absent = not first
        if self.times and is_date(first):
            stamps = dates_ns([stamp if isinstance(stamp, str) else "" for stamp in shown])
        else:
            stamps = np.array([value_of(stamp) for stamp in shown], dtype=np.float64)
        prompt, output = (np.array([value_of(c[i]) for c in self.cells], dtype=np.float64) for i in (1, 2))
        odd = {int(i): _shown(self.cells[int(i)]) for i in rules.suspects(stamps, prompt, output, -np.inf)}
        more = {name: _column(name, column) for name, column in self.columns.items() if any(c is not None for c in column)}
        return Sheet(self.path, self.names, stamps, prompt, output, np.array(self.lines, dtype=np.int64), absent,
                     odd, self.faults, more, self.notes, self.unordered)  # fmt: skip


def _shown(cells: tuple[Any, Any, Any]) -> tuple[str, str, str]:
    first, second, third = ("" if cell is None else str(cell) for cell in cells)
    return first, second, third


def value_of(cell: Any) -> float:
    """A JSON value as a number, NaN where it is none; true is no 1."""
    if isinstance(cell, bool) or cell is None:
        return math.nan
    if isinstance(cell, (int, float)):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    return number(cell) if isinstance(cell, str) else math.nan


def _column(name: str, cells: list[Any]) -> np.ndarray:
    """Further columns: numbers, lists of block ids as they are, all else as text."""
    if name in ("turn", "new_prompt_tokens", "cached_tokens", "reasoning_tokens"):
        return np.array([value_of(cell) for cell in cells], dtype=np.float64)
    column = np.empty(len(cells), dtype=object)
    column[:] = [cell if isinstance(cell, list) else "" if cell is None else str(cell) for cell in cells]
    return column


def at_path(record: Mapping[str, Any], name: str) -> Any:
    """The value under a key, or under keys with points between, such as usage.prompt_tokens; None: there is none."""
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def read_flat(path: str, what: str, three: tuple[str, str, str], more: Mapping[str, str], unordered: bool,
              lenient: bool) -> Sheet:  # fmt: skip
    """One flat object a request. three : their names of arrival ("": none), prompt and output."""
    builder = Builder(path, three, more, unordered)
    for line, record, fault in values(path, what, lenient):
        if fault:
            builder.faults.append((line, fault))
            continue
        stamp, prompt, output = (at_path(record, name) if name else None for name in three)
        builder.add(line, stamp, prompt, output, {ours: at_path(record, theirs) for ours, theirs in more.items()})
    return builder.sheet()
