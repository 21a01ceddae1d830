"""Answers read back from files: which command's they are, and a run's table of requests beside its figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from llmqsim.errors import DataError, UserError
from llmqsim.files import read_bytes
from llmqsim.metrics.distribution import NS_PER_S
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.requests import COLUMNS, INDEX, UNSET, Outcome, Reason, RequestTable
from llmqsim.result import Result
from llmqsim.scenario.targets import SLO_KEYS
from llmqsim.version import __version__

if TYPE_CHECKING:
    import pandas as pd

SIGNS: dict[str, frozenset[str]] = {
    "run": frozenset(("stability", "utilisation", "waiting_for", "scenario")),
    "compare": frozenset(("differences", "against", "variants")),
    "size": frozenset(("one_less", "candidates", "n_plus_one", "verdict")),
    "capacity": frozenset(("knee_rate_per_s", "points")),
    "advise": frozenset(("levers", "causes", "verdict")),
    "sweep": frozenset(("points", "pareto", "found_in_store")),
    "validate": frozenset(("figures", "groups", "beside")),
    "gate": frozenset(("scenarios", "changed_files", "verdict")),
}
"""command -> keys that its answer has and no other's"""


def read_answer(path: str) -> tuple[str, dict[str, Any]]:
    """The command that wrote a JSON file with `--json`, and what it wrote. Raises DataError for another file."""
    raw = read_bytes(path, "the answer of a command, as --json writes it")
    try:
        told = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise DataError(f"{path}: is no text; give the JSON that a command wrote with --json") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise DataError(
            f"{path}:{line}: is no whole JSON ({getattr(error, 'msg', error)}): it was cut short or changed; "
            "write it again with --json"
        ) from None
    if isinstance(told, dict):
        for kind, signs in SIGNS.items():
            if signs <= told.keys():
                return kind, told
    known = ", ".join(SIGNS)
    raise DataError(
        f"{path}: is not the answer of a command that can be shown; give what --json of one of these wrote: {known}"
    )


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def lacking(path: str, kind: str, told: dict[str, Any], error: Exception) -> DataError:
    """The fault of a file whose answer does not hold what this version shows."""
    own = told.get("version")
    written = f" by llmqsim {own}" if own and own != __version__ else " by another version, or changed"
    what = f"has no {error}" if isinstance(error, KeyError) else f"can't be read as that: {error}"
    return DataError(
        f"{path}: is an answer of `llmqsim {kind}`, but {what}: it was written{written} (this is llmqsim {__version__}); run "
        f"`llmqsim {kind}` again with --json"
    )


def with_requests(summary: dict[str, Any], path: str) -> Result:
    """A run from its figures and the CSV that `run --requests` wrote with them. Raises DataError where they don't fit."""
    from llmqsim.metrics.attribution import read_requests

    frame = read_requests(path)
    table = _table(frame, path)
    scenario, kv = summary["scenario"], summary["kv"]
    classes = (scenario.get("workload") or {}).get("classes") or {}
    result = Result(
        scenario=scenario,
        seed=summary["seed"],
        replication=summary["replication"],
        engine=summary["engine"],
        version=summary["version"],
        table=table,
        gaps=GapHistogram(len(table.classes)),
        usage=tuple(ReplicaUsage() for _ in summary["utilisation"]["per_replica"]),
        end_ns=round(summary["end_s"] * NS_PER_S),
        kv=None if kv["blocks"] is None else kv,
        slo=_slo(scenario.get("slo")),
        class_slo={name: _slo(spec["slo"]) for name, spec in classes.items() if spec.get("slo")},
        warmup=(scenario.get("run") or {}).get("warmup"),
        pools=tuple(summary.get("pools") or ()),
    )
    counted, told = int(result.arrived.sum()), summary["requests"]["arrived"]
    if counted != told:
        raise DataError(
            f"{path}: is of another run: {counted:,} requests arrived in it, {told:,} in the figures; write both with one `llmqsim run`"
        )
    return result


def _slo(given: dict[str, Any] | None) -> dict[str, Any]:
    """As Result has it."""
    if not given:
        return {}
    named = {f"{name}_s": given.get(name) for name in SLO_KEYS}
    others = {name: given.get(name) for name in ("attainment", "counted_from")}
    return {name: value for name, value in (named | others).items() if value is not None}


def _table(frame: pd.DataFrame, path: str) -> RequestTable:
    names = {column.name: _written(column.name) for column in COLUMNS}
    missing = [name for name in names.values() if name not in frame]
    if missing:
        raise DataError(
            f"{path}:1: no column {missing[0]!r}; give the CSV that `llmqsim run --requests` writes with this version"
        )
    classes, tenants = (tuple(dict.fromkeys(frame[name].astype(str))) or ("all",) for name in ("class", "tenant"))
    table = RequestTable(len(frame), classes, tenants)
    words = {
        "class_id": {name: i for i, name in enumerate(classes)},
        "tenant_id": {name: i for i, name in enumerate(tenants)},
        "outcome": {code.name.lower(): int(code) for code in Outcome},
        "reason": {code.name.lower(): int(code) for code in Reason},
    }
    for column in COLUMNS:
        values = frame[names[column.name]]
        if column.name in words:
            coded = [words[column.name].get(str(value)) for value in values]
            if None in coded:
                row = coded.index(None)
                raise DataError(f"{path}:{row + 2}: {names[column.name]}: unknown (got {str(values.iloc[row])!r})")
            table.data[INDEX[column.name]] = np.array(coded, dtype=np.int64)
        elif column.unit == "ns":
            seconds = values.to_numpy(dtype=float)
            table.data[INDEX[column.name]] = np.where(
                np.isnan(seconds), UNSET, np.round(np.nan_to_num(seconds) * NS_PER_S)
            )
        else:
            table.data[INDEX[column.name]] = values.to_numpy(dtype=np.int64)
    return table


def _written(name: str) -> str:
    """A column's name in the CSV."""
    short = {"class_id": "class", "tenant_id": "tenant"}.get(name, name)
    return short.removesuffix("_ns") + "_s" if short.endswith("_ns") else short


def check_pair(path: str, before: str | None) -> None:
    """A table of requests needs the figures of its run before it. Raises UserError."""
    if before != "run":
        raise UserError(
            f"{path}: a table of requests says neither what was promised nor which servers ran; give the run's figures before it: "
            f"llmqsim report run.json {path} -o page.html (`llmqsim run --json run.json --requests {path}` writes both)"
        )
