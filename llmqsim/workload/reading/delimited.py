"""Tables as text (CSV, TSV, semicolons, bars), block by block.

A clean block is read by pandas in one pass. When anything is odd (a quote, a value that isn't a number, a short row),
the file is read again by the `csv` module, which knows line numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmqsim.errors import DataError
from llmqsim.workload.reading import sheet as rules
from llmqsim.workload.reading.sheet import NO_DATE, Sheet, dates_ns, is_date, number
from llmqsim.workload.reading.stream import blocks

LATEST = 4e18
"""no stamp of any unit is beyond it (ns of the year 2096)"""
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Plan:
    """Which columns of a table are wanted. names : of arrival ("" where there is none), prompt, output in the header.

    more : our names of further columns to the header's; numeric : those of them that are numbers.
    """

    path: str
    what: str
    header: list[str]
    sign: str
    names: tuple[str, str, str]
    more: Mapping[str, str] = field(default_factory=dict)
    numeric: frozenset[str] = frozenset()
    dated: bool = False
    """dates, whatever the first row looks like"""
    lenient: bool = False

    def position(self, name: str) -> int:
        """Where a column stands."""
        return self.header.index(name)


def read_delimited(plan: Plan) -> Sheet:
    """All rows of a table, unjudged. Raises DataError for what is no table."""
    found = _fast(plan)
    return _careful(plan) if found is None else found


def _bodies(plan: Plan) -> Iterator[tuple[int, bytes]]:
    """Blocks without the header."""
    for line, block in blocks(plan.path, plan.what, plan.lenient):
        if line == 1:
            end = block.find(b"\n") + 1
            yield 2, block[end:] if end else b""
        else:
            yield line, block


def _fast(plan: Plan) -> Sheet | None:
    """Read with pandas; None when anything at all is odd, so that the careful reader says what."""
    stamps, prompts, outputs = [], [], []
    more: dict[str, list[np.ndarray]] = {name: [] for name in plan.more}
    dated, last = plan.dated, -np.inf
    for line, block in _bodies(plan):
        if not block.strip():
            continue
        if line == 2 and not dated and plan.names[0]:
            first = block.partition(b"\n")[0].split(plan.sign.encode())
            place = plan.position(plan.names[0])
            dated = len(first) > place and is_date(first[place].decode("utf-8", "replace").strip().strip('"'))
        parsed = fast_block(block, plan, dated)
        if parsed is None:
            return None
        times, prompt, output, others = parsed
        if not _clean(times, prompt, output, last if plan.names[0] else None):
            return None
        last = times[-1] if len(times) else last
        stamps.append(times)
        prompts.append(prompt.astype(np.int32))  # clean lengths fit, and take half the room
        outputs.append(output.astype(np.int32))
        for name, column in others.items():
            more[name].append(column)
    if not prompts:
        return _empty(plan)
    joined = np.concatenate(stamps)
    absent = joined.dtype != np.int64 and bool(np.isnan(joined[0]))
    if absent and not np.isnan(joined).all():
        return None
    return Sheet(
        plan.path, plan.names, joined, np.concatenate(prompts), np.concatenate(outputs), absent=absent,
        more={name: np.concatenate(parts) for name, parts in more.items()},
    )  # fmt: skip


def _empty(plan: Plan) -> Sheet:
    nothing = np.zeros(0)
    return Sheet(plan.path, plan.names, nothing, nothing, nothing, more={name: nothing for name in plan.more})


def fast_block(raw: bytes, plan: Plan, dated: bool):
    """Stamps, prompts, outputs and further columns of clean lines; None where they are odd."""
    import pandas as pd

    if b'"' in raw or not _rectangular(raw, len(plan.header), plan.sign):
        return None
    places = [plan.position(name) for name in plan.names if name]
    kinds: Any = dict.fromkeys(places, np.float64)
    if dated:
        kinds[places[0]] = str
    try:
        frame = pd.read_csv(
            io.BytesIO(raw), header=None, usecols=places, dtype=kinds, na_filter=not dated, skip_blank_lines=True,
            sep=plan.sign,
        )  # fmt: skip
        others = _further(raw, plan, len(frame))
    except (ValueError, OverflowError):
        return None
    if others is None:
        return None
    columns = [frame[place] for place in places]
    if not plan.names[0]:
        times = np.full(len(frame), np.nan)
    else:
        times = dates_ns(columns[0].tolist()) if dated else columns[0].to_numpy()
        columns = columns[1:]
    return times, columns[0].to_numpy(), columns[1].to_numpy(), others


def _further(raw: bytes, plan: Plan, rows: int) -> dict[str, np.ndarray] | None:
    """The further columns of a block: texts as they stand, or float64 where numbers; None where one has no number."""
    import pandas as pd

    if not plan.more:
        return {}
    places = {name: plan.position(theirs) for name, theirs in plan.more.items()}
    kinds = {place: np.float64 if name in plan.numeric else str for name, place in places.items()}
    texts = sorted(place for name, place in places.items() if name not in plan.numeric)
    numbers = sorted(place for name, place in places.items() if name in plan.numeric)
    found: dict[int, np.ndarray] = {}
    for wanted, filtered in ((texts, False), (numbers, True)):
        if not wanted:
            continue
        frame = pd.read_csv(
            io.BytesIO(raw), header=None, usecols=wanted, dtype={p: kinds[p] for p in wanted}, na_filter=filtered,
            skip_blank_lines=True, sep=plan.sign,
        )  # fmt: skip
        if len(frame) != rows:
            return None
        for place in wanted:
            column = frame[place]
            found[place] = column.to_numpy() if filtered else column.str.strip().to_numpy(dtype=object)
    return {name: found[place] for name, place in places.items()}


def _clean(times: np.ndarray, prompt: np.ndarray, output: np.ndarray, last: float | None) -> bool:
    """Are all rows of a block usable, as far as can be seen without the unit of time?"""
    for column in (prompt, output):
        with np.errstate(invalid="ignore"):
            if not np.all((column >= 1) & (column <= rules.MAX_TOKENS) & (column == np.floor(column))):
                return False
    if last is None or (times.dtype != np.int64 and bool(np.isnan(times).all())):
        return True
    if times.dtype == np.int64 and np.any(times == NO_DATE):
        return False
    with np.errstate(invalid="ignore"):
        ordered = times[0] >= last and np.all(times[1:] >= times[:-1])
        return bool(ordered and (times.dtype == np.int64 or (times[0] >= 0 and times[-1] <= LATEST)))


def _rectangular(raw: bytes, width: int, sign: str) -> bool:
    """Does every line have `width` fields? pandas would silently fill or drop the rest. No quotes in `raw`."""
    data = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not len(ends) or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    commas = np.searchsorted(np.flatnonzero(data == ord(sign)), ends)
    return bool(np.all(np.diff(commas, prepend=0) == width - 1))


@dataclass
class _Cells:
    """Columns of lines that were read one by one."""

    lines: list[int] = field(default_factory=list)
    texts: list[Sequence[str]] = field(default_factory=list)


def _careful(plan: Plan) -> Sheet:
    """Every row by the csv module: what can't be used keeps its line and its text."""
    three = [plan.position(name) if name else -1 for name in plan.names]
    others = [plan.position(name) for name in plan.more.values()]
    parts: list[Sheet] = []
    offset, last, dated, faults = 0, -np.inf, plan.dated or None, []
    for line, block in _bodies(plan):
        cells = _split(block.decode("utf-8"), line, plan, faults)
        if dated is None and plan.names[0] and cells.texts:
            shown = next((row[three[0]].strip() for row in cells.texts if row[three[0]].strip()), "")
            dated = is_date(shown)
        part = _part(plan, cells, three, others, bool(dated), offset, last)
        parts.append(part)
        offset += len(part)
        if len(part):
            last = part.stamps[-1]
    return _join(plan, parts, faults)


def _split(text: str, line: int, plan: Plan, faults: list[tuple[int, str]]) -> _Cells:
    """Rows of a block with their lines; those that are too short or too long become faults."""
    reader, cells, width = csv.reader(io.StringIO(text), delimiter=plan.sign), _Cells(), len(plan.header)
    at = line
    try:
        for row in reader:
            if len(row) == width:
                cells.lines.append(at)
                cells.texts.append(row)
            elif row:
                hint = "; a decimal comma, or a separator in a text?" if len(row) > width else ""
                faults.append((at, f"has {len(row)} fields; the header has {width}{hint}"))
            at = line + reader.line_num
    except csv.Error as error:
        raise DataError(f"{plan.path}:{at}: not CSV ({error})") from None
    return cells


def _part(plan: Plan, cells: _Cells, three: list[int], others: list[int], dated: bool, offset: int, last: float):
    """A block's rows as a sheet of their own."""
    first = [row[three[0]].strip() for row in cells.texts] if three[0] >= 0 else [""] * len(cells.texts)
    pair = [[row[place].strip() for row in cells.texts] for place in three[1:]]
    stamps = dates_ns(first) if dated else np.array([number(text) for text in first], dtype=np.float64)
    prompt, output = (np.array([number(text) for text in column], dtype=np.float64) for column in pair)
    odd = {
        offset + int(i): (first[i], pair[0][i], pair[1][i]) for i in rules.suspects(stamps, prompt, output, last)
    }
    more: dict[str, np.ndarray] = {}
    for name, place in zip(plan.more, others, strict=True):
        texts = [row[place].strip() for row in cells.texts]
        if name in plan.numeric:
            more[name] = np.array([number(text) for text in texts], dtype=np.float64)
        else:
            more[name] = np.array(texts, dtype=object)
    return Sheet(plan.path, plan.names, stamps, prompt, output, np.array(cells.lines, dtype=np.int64),
                 not any(first), odd, more=more)  # fmt: skip


def _join(plan: Plan, parts: list[Sheet], faults: list[tuple[int, str]]) -> Sheet:
    if not parts:
        return _empty(plan)
    parts = [part for part in parts if len(part)] or parts[:1]
    odd: dict[int, tuple[str, str, str]] = {}
    for part in parts:
        odd.update(part.odd)
    return Sheet(
        plan.path,
        plan.names,
        np.concatenate([part.stamps for part in parts]),
        np.concatenate([part.prompt for part in parts]),
        np.concatenate([part.output for part in parts]),
        np.concatenate([part.lines for part in parts if part.lines is not None]),
        all(part.absent for part in parts),
        odd,
        faults,
        {name: np.concatenate([part.more[name] for part in parts]) for name in plan.more},
    )
