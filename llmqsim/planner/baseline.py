"""Baselines of `llmqsim gate`: figures of each scenario, replication by replication, and what they rest on. A YAML file
that is made to be read in review: one line a figure, one hash a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from llmqsim.errors import DataError, UserError, did_you_mean
from llmqsim.files import read_bytes
from llmqsim.requests import RequestTable
from llmqsim.scenario.load import Scenario
from llmqsim.version import __version__

FORMAT = 1
TRAFFIC = ("arrival_ns", "intended_ns", "prompt_tokens", "output_tokens", "class_id", "tenant_id", "think_ns")
"""what makes two requests the same; the longest answer allowed follows the server and may be what a change changes"""
DIGITS = 9
"""figures are kept to so many significant digits: the same run gives the same text on every machine"""
TOLERANCES: dict[str, float] = {
    "ttft_s.p99": 0.10,
    "tpot_s.p99": 0.10,
    "e2e_s.p99": 0.10,
    "goodput_per_s": 0.05,
    "throughput.output_tokens_per_s": 0.05,
}
"""floors: by how much a figure may be worse than the baseline, as a share of it"""
HEAD = "# Baseline of `llmqsim gate`; made by `llmqsim gate ... --baseline THIS --update`. Edit only `tolerance`.\n"


@dataclass(frozen=True)
class Entry:
    """One scenario of a baseline. figures : metric -> one value a replication, None where a run had none."""

    seed: int
    replications: int
    traffic: str
    figures: dict[str, list[float | None]]


@dataclass(frozen=True)
class Baseline:
    """tolerance : metric -> share. hashes : file -> digest of what costs and presets were then."""

    tolerance: dict[str, float]
    hashes: dict[str, str]
    scenarios: dict[str, Entry]


def rounded(value: float | None) -> float | None:
    """To DIGITS significant digits, so that equal runs compare equal through a file."""
    return None if value is None else float(f"{value:.{DIGITS}g}")


def traffic_digest(table: RequestTable) -> str:
    """Of who comes when, with what lengths: the same digest means the same requests."""
    digest = hashlib.sha256()
    for name in TRAFFIC:
        digest.update(np.ascontiguousarray(getattr(table, name)).tobytes())
    return digest.hexdigest()[:16]


def hashes(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """Digests of the presets and cost files that ship, and of the files that the scenarios name (traces, tables)."""
    found: dict[str, str] = {}
    root = package_files("llmqsim") / "presets"
    whole = hashlib.sha256()
    for path in sorted(Path(str(root)).rglob("*")):
        if not path.is_file() or path.name.startswith("prices"):
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.parent.name == "kernels":
            whole.update(digest.encode())
        else:
            found[f"presets/{path.relative_to(Path(str(root))).as_posix()}"] = digest[:16]
    found["presets/kernels"] = whole.hexdigest()[:16]
    for scenario in scenarios:
        for name in scenario.inputs()[len(scenario.files) :]:
            if Path(name).is_dir():
                found[name] = _folder(Path(name))
            else:
                found[name] = hashlib.sha256(read_bytes(name, "a file of the scenario")).hexdigest()[:16]
    return dict(sorted(found.items()))


def _folder(path: Path) -> str:
    digest = hashlib.sha256()
    for inner in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(hashlib.sha256(inner.read_bytes()).digest())
    return digest.hexdigest()[:16]


def to_text(baseline: Baseline) -> str:
    """The file: stable order, one figure a line."""
    lines = [HEAD.rstrip("\n"), f"format: {FORMAT}", f"llmqsim: {__version__}"]
    lines += ["tolerance:", *(f"  {key}: {value:g}" for key, value in baseline.tolerance.items())]
    lines += ["hashes:", *(f"  {_key(name)}: {digest!r}" for name, digest in baseline.hashes.items())]
    lines.append("scenarios:")
    for name, entry in baseline.scenarios.items():
        lines += [f"  {_key(name)}:", f"    seed: {entry.seed}", f"    replications: {entry.replications}"]
        lines += [f"    traffic: {entry.traffic!r}", "    figures:"]
        for key, values in entry.figures.items():
            shown = ", ".join("null" if v is None else _number(v) for v in values)
            lines.append(f"      {key}: [{shown}]")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    text = f"{value:.{DIGITS}g}"
    return text if any(c in text for c in ".en") else f"{text}.0"


def _key(name: str) -> str:
    return name if all(c.isalnum() or c in "._/-" for c in name) else yaml.safe_dump(name, default_style="'").strip()


def read(path: str) -> Baseline:
    """Read a baseline. Raises DataError for what is none, or one of another version."""
    text = read_bytes(path, "a baseline").decode("utf-8", "replace")
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise DataError(f"{path}:{mark.line + 1 if mark else 1}: is no YAML; make it with --update") from None
    if not isinstance(content, dict) or "format" not in content or "scenarios" not in content:
        raise DataError(f"{path}: is no baseline of llmqsim gate; make one with --update")
    if content["format"] != FORMAT:
        raise DataError(f"{path}: format: is that of another version (got {content['format']!r}, this one reads {FORMAT}); make it again with --update")  # fmt: skip
    if content.get("llmqsim") != __version__:
        raise DataError(
            f"{path}: llmqsim: the baseline was made by version {content.get('llmqsim')}, this is {__version__}: figures may differ "
            f"for reasons that are not your change; look at both, then make it again with --update"
        )
    return Baseline(_tolerance(path, content), dict(content.get("hashes") or {}), _entries(path, content))


def _tolerance(path: str, content: dict[str, Any]) -> dict[str, float]:
    given = content.get("tolerance") or {}
    if not isinstance(given, dict):
        raise DataError(f"{path}: tolerance: must be a mapping of figures to shares; such as ttft_s.p99: 0.1")
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 10:
            raise DataError(f"{path}: tolerance.{key}: must be a share from 0 (got {value!r}); such as 0.1")
    return {str(key): float(value) for key, value in given.items()}


def _entries(path: str, content: dict[str, Any]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    if not isinstance(content["scenarios"], dict):
        raise DataError(f"{path}: scenarios: must be a mapping; make it again with --update")
    for name, entry in content["scenarios"].items():
        try:
            figures = {str(k): [None if v is None else float(v) for v in values] for k, values in entry["figures"].items()}
            found[name] = Entry(int(entry["seed"]), int(entry["replications"]), str(entry["traffic"]), figures)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError(f"{path}: scenarios.{name}: is damaged; make it again with --update") from None
        if wrong := [k for k, values in figures.items() if len(values) != found[name].replications]:
            raise DataError(f"{path}: scenarios.{name}.figures.{wrong[0]}: needs {found[name].replications} values, one a replication")
    return found


def entry_for(path: str, baseline: Baseline, name: str) -> Entry:
    """The entry of a scenario. Raises UserError where the baseline is of others."""
    if name in baseline.scenarios:
        return baseline.scenarios[name]
    known = ", ".join(baseline.scenarios) or "none"
    hint = did_you_mean(name, baseline.scenarios) or ";"
    raise UserError(f"{path}: has no scenario '{name}'{hint} it is a baseline of: {known}; add it with --update")
