"""Closed-loop sweeps and static batches: groups of points, within the YAML file or as rows of a CSV file, to cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmqsim.errors import DataError
from llmqsim.validate.cases import Case
from llmqsim.validate.document import read_table

CLOSED_LOOP, STATIC = "closed-loop", "static-batch"
CLOSED_LOOP_COLUMNS = ("model", "gpu", "engine", "isl", "osl", "concurrency", "ttft_ms", "tpot_ms")
STATIC_COLUMNS = ("model", "gpu", "prompt_tokens", "batch_size", "output_tokens", "prefill_ms", "decode_ms_per_token")
CLOSED_LOOP_POINT = ("concurrency", "ttft_ms", "tpot_ms")
STATIC_POINT = ("prompt_tokens", "batch_size", "output_tokens", "prefill_ms", "decode_ms_per_token")


def closed_loop_case(group: Mapping[str, Any], place: str, number: int) -> Case:
    """A case from {model, gpu, engine, isl, osl, tp, …, points: [concurrency, TTFT ms, TPOT ms]}."""
    config = _config(group)
    disaggregated = str(config.get("mode", "agg")).startswith("disagg")
    points, faults = _points(group, CLOSED_LOOP_POINT, place)
    own = _workload(group, place, faults)
    prompt = _length(config, own, ("isl", "input_tokens", "prompt_tokens"), place, faults)
    output = _length(config, own, ("osl", "output_tokens"), place, faults)
    entries = []
    for point in points:
        concurrency = point["concurrency"]
        name = "unknown" if concurrency is None else f"{concurrency:g}"
        entries.append(
            {
                "stage": f"concurrency:{name}",
                "concurrency": None if concurrency is None else int(concurrency),
                "ttft_ms": {"mean": point["ttft_ms"]},
                "tpot_ms": {"mean": point["tpot_ms"]},
            }
        )
    workload = {
        "tool": config.get("campaign", ""),
        "arrival": {"process": "closed_loop"},
        **own,
        "prompt_tokens": {"exact": prompt} if _plain(prompt) else prompt,
        "output_tokens": {"exact": output, "ignore_eos": True} if _plain(output) else output,
    }
    for key, value in (("isl", prompt), ("osl", output)):
        if value is None:
            faults.append(f"{place}: {key}: missing; a closed loop needs the lengths of prompts and answers")
    regime = str(group.get("regime") or ("closed_loop_disaggregated" if disaggregated else "closed_loop"))
    return _made(group, config, workload, entries, faults, place, f"closed-loop-{number + 1}", CLOSED_LOOP, regime)


def static_batch_case(group: Mapping[str, Any], place: str, number: int) -> Case:
    """A case from {model, gpu, tp, points: [prompt, batch, output tokens, prefill ms, decode ms/token]}."""
    config = {"engine": "static", "precision": "fp16", "in_process": True, **_config(group)}
    points, faults = _points(group, STATIC_POINT, place)
    entries = []
    for point in points:
        prompt, batch, output = (point[key] for key in STATIC_POINT[:3])
        entries.append(
            {
                "stage": f"prompt:{prompt:g},batch:{batch:g},output:{output:g}",
                "isl": int(prompt),
                "batch": int(batch),
                "osl": int(output),
                "prefill_ms": {"value": point["prefill_ms"]},
                "decode_ms": {"value": point["decode_ms_per_token"]},
            }
        )
    workload = {"arrival": {"process": "one static batch"}, **_workload(group, place, faults)}
    return _made(group, config, workload, entries, faults, place, f"static-batch-{number + 1}", STATIC, "static_batch")


def _config(group: Mapping[str, Any]) -> dict[str, Any]:
    """What describes the deployment: the group's own keys, or those under `config`; empty cells left out."""
    nested = group.get("config") if isinstance(group.get("config"), Mapping) else {}
    flat = {**group, **nested}
    beside = ("points", "config", "workload")
    return {key: value for key, value in flat.items() if key not in beside and not _empty(value)}


def _workload(group: Mapping[str, Any], place: str, faults: list[str]) -> dict[str, Any]:
    """What a group says under `workload`; a fault where that is no mapping."""
    given = group.get("workload")
    if given is not None and not isinstance(given, Mapping):
        faults.append(f"{place}: workload: must be a mapping (got {given!r:.60})")
    return dict(given) if isinstance(given, Mapping) else {}


def _length(config: Mapping, own: dict[str, Any], names: tuple[str, ...], place: str, faults: list[str]) -> Any:
    """A length, wherever and by whatever name it stands; taken out of `own`. A fault where two of them differ."""
    stated = {name: config[name] for name in names if not _empty(config.get(name))}
    stated |= {f"workload.{name}": own.pop(name) for name in names if not _empty(own.get(name))}
    values = list(stated.values())
    if any(value != values[0] for value in values[1:]):
        said = " and ".join(f"{key} {value}" for key, value in stated.items())
        faults.append(f"{place}: {said} contradict each other; state one")
    return values[0] if values else None


def _plain(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _made(group, config, workload, entries, faults, place, name, family, regime) -> Case:
    if not config.get("model") and config.get("model_path"):
        config["model"] = config["model_path"]
    return Case(
        id=str(group.get("id") or group.get("group_id") or name),
        family=str(group.get("family") or family),
        regime=str(regime),
        config=config,
        workload=workload,
        entries=tuple(entries),
        place=place,
        faults=tuple(faults),
        model=str(config.get("model", "")),
        gpu=str(config.get("gpu", "")),
    )


def _points(group: Mapping[str, Any], names: tuple[str, ...], place: str) -> tuple[list[dict], list[str]]:
    """Points as mappings by name; a point is a list in that order or a mapping. Faulty ones are left out and named."""
    points, faults = [], []
    for i, point in enumerate(group.get("points") or []):
        if isinstance(point, Mapping):
            values = [point.get(name) for name in names]
        elif isinstance(point, (list, tuple)) and len(point) >= len(names):
            values = list(point[: len(names)])
        else:
            faults.append(f"{place}: points[{i}]: must be [{', '.join(names)}] (got {point!r:.60})")
            continue
        points.append(
            {name: None if _empty(value) else float(value) for name, value in zip(names, values, strict=True)}
        )
    if not points and not faults:
        faults.append(f"{place}: points: missing; each is [{', '.join(names)}]")
    return points, faults


def _empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def read_closed_loop(path: str | Path) -> list[Case]:
    """The groups of a CSV file of closed-loop points, in the order of their first rows. Raises DataError."""
    return _read(path, CLOSED_LOOP_COLUMNS, CLOSED_LOOP_POINT, "closed-loop points", closed_loop_case)


def read_static_batches(path: str | Path) -> list[Case]:
    """The groups of a CSV file of static batches: one a model, GPU and TP. Raises DataError."""
    return _read(path, STATIC_COLUMNS, STATIC_POINT, "static batches", static_batch_case)


def _read(path: str | Path, needed: tuple[str, ...], point: tuple[str, ...], what: str, make) -> list[Case]:
    frame = read_table(Path(path), f"a table of {what}", needed)
    if not len(frame):
        raise DataError(f"{path}: has a header and no rows; a table of {what} was expected")
    measured = {"ttft_ms", "tpot_ms", "concurrency", *STATIC_POINT, "repeats", "prefill_spread_pct", "measured_on"}
    keys = [column for column in frame.columns if column not in measured]
    by = ["group_id"] if "group_id" in frame.columns else keys
    groups: dict[Any, dict] = {}
    lines: dict[Any, int] = {}
    for line, row in enumerate(frame.to_dict("records"), 2):
        identity = tuple(None if _empty(row[key]) else row[key] for key in by)
        group = groups.setdefault(
            identity, {**{k: v for k, v in row.items() if k not in measured - {"measured_on"}}, "points": []}
        )
        lines.setdefault(identity, line)
        group["points"].append({name: row[name] for name in point})
    return [make(group, f"{path}:{lines[key]}", number) for number, (key, group) in enumerate(groups.items())]
