"""Figures of a point by name: a path into the summary of `llmqsim run --json`, and means over replications."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from llmqsim.errors import did_you_mean


def at(summary: dict[str, Any], name: str) -> Any:
    """The figure at a dotted name, such as "ttft_s.p99"; None where the run has none. Raises KeyError if unknown."""
    value: Any = summary
    for part in name.split("."):
        if value is None:
            return None
        if not isinstance(value, dict) or part not in value:
            raise KeyError(name)
        value = value[part]
    if isinstance(value, (dict, list)):
        raise KeyError(name)
    return value


def names(summary: dict[str, Any], prefix: str = "") -> Iterable[str]:
    """Every name that `at` knows."""
    for key, value in summary.items():
        if isinstance(value, dict):
            yield from names(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            yield f"{prefix}{key}"


def unknown(summary: dict[str, Any], wanted: Iterable[str]) -> str | None:
    """A sentence about the first name that is no figure; None if all are."""
    for name in wanted:
        try:
            at(summary, name)
        except KeyError:
            near = did_you_mean(name, names(summary)) or "; see docs/metrics.md"
            return f"unknown figure (got {name!r}){near}"
    return None


def mean(values: list[Any]) -> Any:
    """Mean over replications. None if any has none; words stand if all say the same, else "mixed"."""
    if any(value is None for value in values):
        return None
    if any(isinstance(value, str) for value in values):
        return values[0] if len(set(values)) == 1 else "mixed"
    return values[0] if len(set(values)) == 1 else math.fsum(values) / len(values)
