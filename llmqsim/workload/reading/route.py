"""Which file is what: its format by content or as the user says, where its columns lie, and who reads it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from llmqsim.errors import DataError, ScenarioError, or_known
from llmqsim.formats import HEAD, column_hint, fields, refuse_foreign, separator
from llmqsim.memory import require
from llmqsim.stamps import AUTO, PER_SECOND, Clock
from llmqsim.workload.reading import catalogue
from llmqsim.workload.reading.catalogue import RECORDS, TraceFormat
from llmqsim.workload.reading.delimited import Plan, read_delimited
from llmqsim.workload.reading.json_files import is_json, read_flat, values
from llmqsim.workload.reading.options import ARRIVALS, LABELS, MAX_TOKENS, NUMBERS, PARENT, PREFIX_IDS, How
from llmqsim.workload.reading.sheet import Sheet
from llmqsim.workload.reading.stream import head

WHAT = "a trace (CSV with the columns arrival_s, prompt_tokens, output_tokens)"
OURS, AZURE = (catalogue.FORMATS[name] for name in ("llmqsim", "azure"))
SIGNS = ("\t", ";", "|")
"""separators of columns that are read beside the comma"""
BYTES_PER_BYTE = 4
"""memory for reading a plain trace, of its size: a row of 20 bytes is held as 24, and once more while it is judged"""
TEXTS = (*LABELS, MAX_TOKENS, PREFIX_IDS, NUMBERS[0], PARENT)


@dataclass(frozen=True)
class _Table:
    """A file whose columns have names: what they are, and which are arrival ("" for none), prompt and output."""

    format: TraceFormat
    header: list[str]
    names: tuple[str, str, str]
    more: dict[str, str]
    arrival: str
    """our name of the arrival column, which states its unit"""


def _check_format(how: How) -> None:
    if how.format != AUTO and how.format not in catalogue.FORMATS:
        hint = or_known(str(how.format), (AUTO, *catalogue.FORMATS))
        raise ScenarioError(f"{how.option.replace('time_unit', 'format').replace('time-unit', 'format')}: "
                            f"unknown (got '{how.format}'){hint}")  # fmt: skip


def route(path: str, how: How, extras: bool) -> tuple[Sheet, TraceFormat, Clock]:
    """The rows of a file, what it is, and how its times are read. Raises DataError, ScenarioError, UserError.

    extras : bring sessions and counts of cached tokens, too.
    """
    _check_format(how)
    if os.path.isdir(path):
        from llmqsim.workload.reading.records import detect, read_records

        first = next((record for _, record, fault in values(path, WHAT) if not fault), {})
        name = detect(first) if how.format == AUTO else how.format
        if name not in catalogue.FORMATS or catalogue.FORMATS[name].kind != RECORDS:
            raise DataError(f"{path}: is a folder of JSON files of no format that is read; {WHAT} was expected")
        sheet = read_records(name, path, WHAT, how)
        return sheet, catalogue.FORMATS[name], _clock(how, "s", path, sheet)
    first = head(path, WHAT)
    with contextlib.suppress(OSError, ValueError):  # what is wrong with the file itself, head said
        size = os.stat(path).st_size
        require(size * BYTES_PER_BYTE, f"workload.trace: {size:,} bytes of trace", "cut the file into parts")
    if first.startswith(b"PAR1"):
        from llmqsim.workload.reading.parquet import header, read_parquet

        table = _table(path, header(path, WHAT), how, extras, "")
        numeric = [name for name in table.more if name not in TEXTS]
        sheet = read_parquet(path, WHAT, table.names, table.more, table.format.unordered, numeric)
        sheet.unused = tuple(name for name in NUMBERS if name in table.header)
        return sheet, table.format, _table_clock(how, table, path, sheet)
    if is_json(first):
        return _json(path, how, extras, first)
    text = first.decode("utf-8", "replace")
    if how.format == "prometheus" or (how.format == AUTO and _is_metrics(text)):
        from llmqsim.workload.reading.prometheus import read_prometheus

        sheet = read_prometheus(path, WHAT, how)
        return sheet, catalogue.FORMATS["prometheus"], _clock(how, "s", path, sheet)
    return _delimited(path, how, extras, text)


def _delimited(path: str, how: How, extras: bool, text: str) -> tuple[Sheet, TraceFormat, Clock]:
    line = text.partition("\n")[0]
    sign = separator(line) or ","
    names = fields(line, sign)
    if how.format == "servegen" or (how.format == AUTO and {"client_id", "rate_rps", "window_start_s"} <= set(names)):
        from llmqsim.workload.reading.servegen import read_servegen

        sheet = read_servegen(path, WHAT, how)
        return sheet, catalogue.FORMATS["servegen"], _clock(how, "s", path, sheet)
    known = catalogue.of_table(names) is not None and sign in (",", *SIGNS)
    if not known and not how.columns and how.format == AUTO:
        ours = [(arrival, *OURS.needed[1:]) for arrival in ARRIVALS]
        refuse_foreign(path, text, WHAT, [*ours, AZURE.needed])
    table = _table(path, names, how, extras, ":1")
    numeric = frozenset(name for name in table.more if name not in TEXTS)
    plan = Plan(path, WHAT, names, sign, table.names, table.more, numeric, table.format.unit == "date", how.skip_bad)
    sheet = read_delimited(plan)
    sheet.unused = tuple(name for name in NUMBERS if name in names)
    sheet.unordered = table.format.unordered
    return sheet, table.format, _table_clock(how, table, path, sheet)


def _json(path: str, how: How, extras: bool, first: bytes) -> tuple[Sheet, TraceFormat, Clock]:
    from llmqsim.workload.reading.records import detect, read_records

    record = next((record for _, record, fault in values(path, WHAT, True) if not fault), {})
    name = how.format
    if name == AUTO:
        flat = catalogue.of_table(record)
        name = "" if flat is not None or how.columns else detect(record) or ""
    if name and catalogue.FORMATS[name].kind == RECORDS:
        sheet = read_records(name, path, WHAT, how)
        return sheet, catalogue.FORMATS[name], _clock(how, "s", path, sheet)
    if not how.columns and how.format == AUTO and catalogue.of_table(record) is None:
        refuse_foreign(path, first.decode("utf-8", "replace"), WHAT, ())
    nested = [theirs for theirs in how.columns.values() if "." in theirs]
    table = _table(path, [*map(str, record), *nested], how, extras, "")
    sheet = read_flat(path, WHAT, table.names, table.more, table.format.unordered, how.skip_bad)
    sheet.unused = tuple(name for name in NUMBERS if name in record)
    return sheet, table.format, _table_clock(how, table, path, sheet)


def _is_metrics(text: str) -> bool:
    line = next((line for line in text.split("\n") if line.strip() and not line.startswith("#")), "")
    begins = text.startswith("# ") or "vllm:" in line or line.startswith(("python_", "process_"))
    return begins and "vllm:" in text and ("vllm:request_prompt_tokens" in text or len(text) >= HEAD)


def _table(path: str, header: list[str], how: How, extras: bool, place: str) -> _Table:
    """Which columns are what. Raises DataError for those that are missing or doubled."""
    found = catalogue.of_table(header) if how.format == AUTO else catalogue.FORMATS[how.format]
    if how.format == AUTO and (found is None or (how.columns and set(how.columns) & {"prompt_tokens", "output_tokens"})):
        found = AZURE if set(AZURE.needed) & set(header) and not how.columns else OURS
    if found is None or found.kind != catalogue.TABLE:
        raise DataError(f"{path}: --format {how.format}: is no format of tables; {WHAT} was expected")
    columns = dict(found.columns)
    if found is OURS:
        if named := _our_arrival(path, header, how, place):
            columns = {**named, "prompt_tokens": "prompt_tokens", "output_tokens": "output_tokens"}
        columns |= {name: name for name in (*TEXTS, *NUMBERS) if name in header}
    if any(name in ARRIVALS for name in how.columns):
        columns = {ours: theirs for ours, theirs in columns.items() if ours not in ARRIVALS}
    columns |= how.columns
    arrival = next((ours for ours in columns if ours in ARRIVALS), "")
    if found is OURS and how.columns and not any(a in how.columns for a in ARRIVALS) and columns[arrival] not in header:
        arrival = ""  # lengths only, by the columns that were named
    names = (columns[arrival] if arrival else "", columns["prompt_tokens"], columns["output_tokens"])
    _refuse_missing(path, header, names, how, found, place)
    more = {ours: theirs for ours, theirs in columns.items() if ours in (*TEXTS, *NUMBERS) and theirs in header}
    for ours, theirs in how.columns.items():
        if theirs not in header:
            raise DataError(f"{path}{place}: no column '{theirs}' for {ours} (got {', '.join(header)[:120]})"
                            f"{column_hint(ours, header)}")  # fmt: skip
    if found.name == "qwen-bailian" and "parent_chat_id" in header:
        more[PARENT] = "parent_chat_id"
    if not extras:
        more = {name: theirs for name, theirs in more.items() if name not in (*NUMBERS, PARENT)}
    twice = [theirs for theirs in more.values() if header.count(theirs) > 1]
    if twice:
        raise DataError(f"{path}{place}: column '{twice[0]}' stands twice in the header; keep one")
    return _Table(found, header, names, more, arrival)


def _our_arrival(path: str, header: list[str], how: How, place: str) -> dict[str, str]:
    """The arrival column of a table of ours, which may state its unit."""
    if any(name in ARRIVALS for name in how.columns):
        return {}
    found = [name for name in header if name in ARRIVALS]
    if len(set(found)) > 1:
        raise DataError(f"{path}{place}: columns {' and '.join(found)} are both arrivals; keep one")
    return {found[0]: found[0]} if found else {}


def _refuse_missing(path, header: list[str], names, how: How, kind: TraceFormat, place: str) -> None:
    shown = ", ".join(header)[:120]
    faults = []
    for column in filter(None, names):
        if header.count(column) > 1:
            faults.append(f"{path}{place}: column '{column}' stands twice in the header (got {shown}); keep one")
        elif column not in header:
            hint = column_hint(column, [h for h in header if h not in names])
            faults.append(f"{path}{place}: no column '{column}' (got {shown}){hint}")
    if not faults:
        return
    stop = "" if faults[-1].endswith("?") else "."
    if kind in (OURS, AZURE) and not how.columns:
        ours, azures = (", ".join(one.needed) for one in (OURS, AZURE))
        faults[-1] += f"{stop} The header must name {ours}, or Azure's {azures}"
    elif how.format != AUTO:
        found = catalogue.of_table(header)
        looks = f"; the file looks like format {found.name}" if found else ""
        faults[-1] += f"{stop} Format {kind.name} has {', '.join(kind.needed)}{looks}"
    raise DataError(*faults)


def _clock(how: How, unit: str, path: str, sheet: Sheet) -> Clock:
    """As the user says, else in the format's unit, which dates don't have."""
    stated = how.time_unit if how.time_unit != AUTO else AUTO if sheet.dated else unit
    return Clock(stated, sheet.names[0], path, how.option, how.settable)


def _table_clock(how: How, table: _Table, path: str, sheet: Sheet) -> Clock:
    """Unit as the user says, else as the format or our name of the column does; of our own, doubted seconds."""
    stated = table.format.unit if table.format.unit in PER_SECOND else AUTO
    if table.arrival in how.columns:
        stated = ARRIVALS[table.arrival] if table.arrival != "arrival_s" else AUTO
    return _clock(how, stated, path, sheet)
