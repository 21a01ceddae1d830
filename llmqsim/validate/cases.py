"""Cases: what was run and what was measured, from files of the schema of measured serving runs.

A case that is missing what a run needs is kept, with its faults: its figures are reported as not predicted, and the
other cases still run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmqsim.errors import DataError
from llmqsim.validate.document import WHAT, Document
from llmqsim.validate.sent import Sent

SCHEMA_VERSIONS = (1,)


@dataclass(frozen=True)
class Case:
    """One measured run or sweep.

    config, workload : as written. entries : what was measured, one mapping a stage, class, shape or concurrency.
    table : per-request table, if there is one. place : file:line of the case. faults : why it can't be run.
    """

    id: str
    family: str
    regime: str
    config: Mapping[str, Any]
    workload: Mapping[str, Any]
    entries: tuple[Mapping[str, Any], ...]
    table: Path | None = None
    place: str = ""
    faults: tuple[str, ...] = ()
    model: str = ""
    gpu: str = ""
    source: str = ""
    sent: Sent | None = None
    """what was sent, where it is known without a table"""
    other_keys: tuple[str, ...] = ()
    """keys that stand beside config, workload and measured"""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stage of each entry, as written."""
        return tuple(str(entry.get("stage", "all")) for entry in self.entries)


def read_cases(path: str | Path, requests: str | Path | None = None) -> list[Case]:
    """All cases and groups of a YAML file. requests : folder of the request tables; default: beside the file.

    Raises DataError where the file as a whole can't be read; a faulty case has its faults in it.
    """
    from llmqsim.validate.groups import closed_loop_case, static_batch_case

    document = Document(path)
    content = document.content
    if not isinstance(content, Mapping) or not any(key in content for key in SECTIONS):
        raise DataError(f"{path}: has none of the keys {', '.join(SECTIONS)}; {WHAT} were expected")
    version = content.get("schema_version", SCHEMA_VERSIONS[-1])
    if version not in SCHEMA_VERSIONS:
        place = document.place("schema_version")
        raise DataError(f"{place}: schema_version: known is {SCHEMA_VERSIONS[-1]} (got {version!r})")
    base = Path(path).parent
    cases: list[Case] = []
    for section, make in (
        ("cases", lambda item, place, number: _case(item, place, number, base, requests)),
        ("closed_loop_groups", closed_loop_case),
        ("static_batch_groups", static_batch_case),
    ):
        items = content.get(section) or []
        if not isinstance(items, list):
            raise DataError(f"{document.place(section)}: {section}: must be a list (got {type(items).__name__})")
        for number, item in enumerate(items):
            place = document.place(section, number)
            if not isinstance(item, Mapping):
                raise DataError(f"{place}: {section}: each must be a mapping (got {item!r:.60})")
            cases.append(make(item, place, number))
    return cases


SECTIONS = ("cases", "closed_loop_groups", "static_batch_groups")


def _case(item: Mapping, place: str, number: int, base: Path, requests: str | Path | None) -> Case:
    identity = str(item.get("id") or f"case-{number + 1}")
    faults = []

    def part(key: str, kind: type, empty: Any) -> Any:
        value = item.get(key)
        if isinstance(value, kind):
            return value
        faults.append(
            f"{place}: {identity}: {key}: missing"
            if value is None
            else f"{place}: {identity}: {key}: must be a {kind.__name__}"
        )
        return empty

    config, workload = part("config", Mapping, {}), part("workload", Mapping, {})
    entries = item.get("measured")
    if isinstance(entries, Mapping):
        entries = [entries]
    if not isinstance(entries, list):
        faults.append(f"{place}: {identity}: measured: missing, or no list of entries")
        entries = []
    return Case(
        id=identity,
        family=str(item.get("family", "unnamed")),
        regime=str(item.get("regime", "")),
        config=config,
        workload=workload,
        entries=tuple(entry for entry in entries if isinstance(entry, Mapping)),
        table=_table(item.get("request_table"), base, requests),
        place=place,
        faults=tuple(faults),
        model=str(config.get("model", "")),
        gpu=str(config.get("gpu", "")),
        source=str(item.get("source", "")),
        other_keys=tuple(map(str, item)),
    )


def _table(named: Any, base: Path, requests: str | Path | None) -> Path | None:
    """The request table, in the folder given or beside the cases; None where there is none."""
    if not named:
        return None
    places = (
        [base / str(named)]
        if requests is None
        else [Path(requests) / Path(str(named)).name, Path(requests) / str(named)]
    )
    return next((place for place in places if place.is_file()), None)
