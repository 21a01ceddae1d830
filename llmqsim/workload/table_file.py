"""Length tables as YAML files: `kind: bins`, checked on reading, and the presets that ship with the package."""

from __future__ import annotations

import math
import reprlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.errors import DataError, ScenarioError, did_you_mean, or_known
from llmqsim.formats import refuse_foreign
from llmqsim.workload.files import read_text
from llmqsim.workload.length_table import Histogram, LengthTable
from llmqsim.workload.lengths import MAX_TOKENS

WHAT = "a length table (YAML, `kind: bins`, as `llmqsim workload fit` writes it)"
COLUMNS = ("low", "high", "weight", "mean")
SUFFIX = ".yaml"


def preset_names() -> tuple[str, ...]:
    """Names of the length presets that ship with llmqsim, sorted."""
    return tuple(sorted(p.name.removesuffix(SUFFIX) for p in _folder().iterdir() if p.name.endswith(SUFFIX)))


@cache
def load_preset(name: str) -> LengthTable:
    """Read one preset, once: it is package data, and a table is not changed.

    Raises ScenarioError for an unknown name, listing the known ones.
    """
    known = preset_names()
    if name not in known:
        raise ScenarioError(
            f"workload.lengths: unknown preset (got '{name}'){or_known(str(name), known)}"
        )
    text = _folder().joinpath(name + SUFFIX).read_text(encoding="utf-8")
    return parse_table(text, f"presets/workloads/{name}{SUFFIX}")


def load_table(path: str | Path) -> LengthTable:
    """Read a length table file. Raises DataError with every fault, each `file:line: key: ...`."""
    return parse_table(read_text(path, WHAT), str(path))


def _folder():
    return resources.files("llmqsim") / "presets" / "workloads"


def parse_table(text: str, name: str) -> LengthTable:
    """Make a table from YAML text; `name` stands for the file in messages. Raises DataError with every fault."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(text, Loader=loader)  # a safe loader, the C one where there is one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or error
        raise DataError(f"{place}: not YAML ({problem}); {WHAT} was expected") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{name}: can't be read as YAML ({error}); {WHAT} was expected") from None
    return _Check(text, name).table(content)


def table_of(content: dict, text: str, name: str) -> LengthTable:
    """A table from plain values that were read from `text`. Raises DataError with every fault."""
    return _Check(text, name).table(content)


class _Check:
    """Collects the faults of one file, and finds the line of a key only when there is a fault to report."""

    def __init__(self, text: str, name: str):
        self.text, self.name, self.faults = text, name, []

    def table(self, content: Any) -> LengthTable:
        if not isinstance(content, dict) or content.get("kind") != "bins":
            if not isinstance(content, dict) or self.text.lstrip().startswith("{"):
                refuse_foreign(self.name, self.text, WHAT, ())
            got = content.get("kind") if isinstance(content, dict) else type(content).__name__
            raise DataError(f"{self.name}: kind: must be 'bins' (got {reprlib.repr(got)}); {WHAT} was expected")
        prompt = self.histogram(content.get("prompt"), "prompt")
        outputs = content.get("output")
        if not isinstance(outputs, list) or not outputs:
            self.fault("output", "must be a list of histograms, one for each range of prompts", outputs)
            outputs = []
        histograms = [self.histogram(o, f"output[{i}]") for i, o in enumerate(outputs)]
        prompt_high = self.ranges(outputs)
        if self.faults:
            raise DataError(*self.faults)
        about = {k: v for k, v in content.items() if k not in ("kind", "prompt", "output")}
        return LengthTable(prompt, tuple(histograms), prompt_high, about)

    def ranges(self, outputs: list) -> np.ndarray:
        highs = [o.get("prompt_high") if isinstance(o, dict) else None for o in outputs]
        if len(highs) == 1 and highs[0] is None:
            return np.array([MAX_TOKENS])
        for i, high in enumerate(highs):
            before = highs[i - 1] if i and _is_number(highs[i - 1]) else 0
            if not _is_number(high) or not before < high <= MAX_TOKENS:
                self.fault(f"output[{i}].prompt_high", "must be a number of tokens that grows along the list", high)
        return np.array([0] * len(highs) if self.faults else highs, dtype=np.int64)

    def histogram(self, spec: Any, key: str) -> Histogram | None:
        if not isinstance(spec, dict):
            self.fault(key, f"must be a mapping with the lists {', '.join(COLUMNS)}", spec)
            return None
        before = len(self.faults)
        for unknown in set(spec) - {*COLUMNS, "prompt_high"}:
            self.fault(f"{key}.{unknown}", f"unknown key{did_you_mean(str(unknown), COLUMNS)}", spec[unknown])
        columns = {c: self.column(spec.get(c), f"{key}.{c}") for c in COLUMNS if c in spec or c != "mean"}
        if len(self.faults) > before:
            return None
        if len({len(c) for c in columns.values()}) != 1:
            self.fault(key, "all lists must be equally long", {k: len(v) for k, v in columns.items()})
            return None
        columns.setdefault("mean", (columns["low"] + columns["high"]) / 2)
        self.consistent(columns, key)
        return Histogram(
            columns["low"].astype(np.int64), columns["high"].astype(np.int64), columns["weight"], columns["mean"]
        )

    def column(self, values: Any, key: str) -> np.ndarray:
        if not isinstance(values, list) or not values:
            self.fault(key, "must be a list of numbers, one a bin", values)
            return np.zeros(0)
        for i, value in enumerate(values):
            if not _is_number(value) or not 0 <= value <= MAX_TOKENS:
                self.fault(f"{key}[{i}]", f"must be a number from 0 to {MAX_TOKENS}", value)
                return np.zeros(0)
        return np.array(values, dtype=np.float64)

    def consistent(self, c: dict[str, np.ndarray], key: str) -> None:
        checks = (
            ("low", (c["low"] < 1) | (c["low"] % 1 != 0), "must be a whole number of at least 1"),
            ("high", (c["high"] < c["low"]) | (c["high"] % 1 != 0), "must be a whole number, not below low"),
            ("low", np.append(False, c["low"][1:] <= c["high"][:-1]), "must be above the high of the bin before it"),
            ("mean", (c["mean"] < c["low"]) | (c["mean"] > c["high"]), "must lie between low and high"),
        )
        for column, bad, sentence in checks:
            for i in np.flatnonzero(bad)[:3]:
                self.fault(f"{key}.{column}[{i}]", sentence, c[column][i].item())
        if not c["weight"].sum() > 0:
            self.fault(f"{key}.weight", "must not all be zero", 0)

    def fault(self, key: str, sentence: str, got: Any) -> None:
        # reprlib: aliases can make a value exponentially larger than the file.
        self.faults.append(f"{self.name}{self.line(key)}: {key}: {sentence} (got {reprlib.repr(got)})")

    def line(self, key: str) -> str:
        import yaml

        node = yaml.compose(self.text, Loader=yaml.SafeLoader)
        for step in key.replace("]", "").replace("[", ".").split("."):
            if isinstance(node, yaml.MappingNode):
                below = [v for k, v in node.value if k.value == step]
            elif isinstance(node, yaml.SequenceNode) and step.isdigit():
                below = node.value[int(step) : int(step) + 1]
            else:
                below = []
            if not below:
                break
            node = below[0]
        return f":{node.start_mark.line + 1}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
