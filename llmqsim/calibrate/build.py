"""From a folder of kernel tables to a folder of coefficients: each configuration fitted, with provenance and errors."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from llmqsim.calibrate.fit import check_identified, fit_constants, fit_table, log_residuals
from llmqsim.calibrate.holdout import held_out_errors
from llmqsim.calibrate.rows import Rows, blocks_of, split
from llmqsim.calibrate.tables import LeftOut, Part, Sieve, read_parts
from llmqsim.calibrate.units_check import check_units
from llmqsim.cost.store import INDEX, machine, pack
from llmqsim.errors import DataError

FORMAT = 1
NEVER_FITTED = ("super_peak",)
"""flags of rows that no kernel can have taken"""
SOURCES = {
    "aiconfigurator": "github.com/ai-dynamo/aiconfigurator, aic-core/src/aiconfigurator_core/systems/data, "
    "commit 095f58a5, Apache-2.0",
    "vidur": "github.com/microsoft/vidur, data/profiling, commit 7d475133, MIT",
    "llmservingsim": "github.com/casys-kaist/LLMServingSim, profiler/v0/perf_models/H100, commit 5daddb21, MIT",
    "llmcompass": "github.com/PrincetonUniversity/LLMCompass, ae/figure5/ab/real_hardware, commit 2e015fd2, "
    "BSD-3-Clause",
}
"""what the `source` column of the public tables stands for; any other source is named as it is"""


@dataclass
class Built:
    """Fitted configurations on their way to files: entries of the index, and the arrays of each archive."""

    entries: list[dict] = field(default_factory=list)
    archives: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    too_small: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    """rows and tables that can't be used, where they may be left out"""


def build(
    folder: Path, out: Path, tell: Callable[[str], None] = lambda line: None, leave_out: bool = False
) -> Built:
    """Fit every configuration of the tables under `folder`, write index and archives to `out`, whole or not at all.

    leave_out : go on without rows and tables that can't be used. Raises DataError for these otherwise, and when nothing
    can be fitted at all.
    """
    sieve = Sieve(strict=not leave_out)
    built = Built(left_out=sieve.left_out)
    for part in read_parts(folder, sieve=sieve):
        try:
            check_units(part)
        except DataError as error:
            sieve.drop(part.path, len(part.frame), list(error.faults))
            continue
        name = part.path.relative_to(folder).as_posix()
        built.inputs[name] = _digest(part.path.read_bytes())
        for rows in _fittable(part):
            try:
                check_identified(rows, name)
            except DataError as error:
                built.too_small.extend(error.faults)
                continue
            _add(built, rows, name, part)
        tell(f"{name}: {part.family.name}: {len(part.frame):,} rows")
    if not built.entries:
        reasons = [*built.too_small, *(reason for one in built.left_out for reason in one.reasons)]
        raise DataError(*(reasons or [f"{folder}: no rows to fit"]))
    _write(built, out)
    return built


def _fittable(part: Part):
    frame = part.frame[~part.frame["flag"].isin(NEVER_FITTED)].reset_index(drop=True)
    return split(part.family, frame)


def _add(built: Built, rows: Rows, name: str, part: Part) -> None:
    card = machine(str(rows.config["gpu"]))
    constants = fit_constants(rows, card)
    table = fit_table(rows, log_residuals(rows, constants, card))
    file = _slug(rows.config["gpu"], rows.config["backend"], rows.config["backend_version"]) + ".npz"
    archive = built.archives.setdefault(file, {})
    entry = f"{rows.family.name}.{len(archive):04d}"
    archive.update(pack(table, entry))
    shape = rows.family.shape
    source = str(part.frame["source"].iloc[0]) if "source" in part.frame else name
    built.entries.append(
        {
            "family": rows.family.name,
            "config": rows.config,
            "constants": constants,
            "rows": len(rows),
            "blocks": len(blocks_of(rows)[0]),
            "held_out": held_out_errors(rows, card),
            "box": {axis: [float(rows.columns[axis].min()), float(rows.columns[axis].max())] for axis in shape},
            "input": name,
            "source": source,
            "file": file,
            "entry": entry,
        }
    )


def _slug(*parts: object) -> str:
    return "_".join(re.sub(r"[^a-z0-9.]+", "-", str(part).lower()) for part in parts)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _archive(arrays: dict[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _write(built: Built, out: Path) -> None:
    """Archives first, the index that names them last; each by way of a file beside it."""
    out.mkdir(parents=True, exist_ok=True)
    contents = {file: _archive(arrays) for file, arrays in sorted(built.archives.items())}
    index = {
        "format": FORMAT,
        "sources": {name: SOURCES.get(name, name) for name in sorted({e["source"] for e in built.entries})},
        "inputs": built.inputs,
        "archives": {file: _digest(content) for file, content in contents.items()},
        "not_fitted": built.too_small,
        "configurations": built.entries,
    }
    for stale in sorted(set(out.glob("*.npz")) - {out / file for file in contents}):
        stale.unlink()
    for file, content in contents.items():
        _replace(out / file, content)
    _replace(out / INDEX, _index_text(index).encode())


def _index_text(index: dict) -> str:
    """JSON with one line for each configuration, so that a change shows where it is."""
    head = {name: value for name, value in index.items() if name != "configurations"}
    lines = ",\n".join(json.dumps(entry) for entry in index["configurations"])
    return json.dumps(head, indent=1)[:-2] + ',\n "configurations": [\n' + lines + "\n]}\n"


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)
