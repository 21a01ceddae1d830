"""Measured figures of an entry: metric, stat and value, spelled as in the long table of measurements.

`ttft_ms: {mean: 28}` is metric ttft, stat mean; what stands under `throughput` and single numbers have stat value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SINGLE = ("n_ok", "n_failed", "duration_s", "makespan_s", "max_in_flight")
"""numbers of an entry that are measured figures; all others say what was run"""


@dataclass(frozen=True)
class Figure:
    """One measured figure. Latencies in ms."""

    metric: str
    stat: str
    measured: float


def figures(entry: Mapping[str, Any]) -> Iterator[Figure]:
    """All figures of one entry of `measured`, in the order written."""
    for key, value in entry.items():
        if key.endswith("_ms") and isinstance(value, Mapping):
            yield from _each(key.removesuffix("_ms"), value)
        elif key.endswith("_s") and key.removesuffix("_s") in LATENCIES and isinstance(value, Mapping):
            yield from _each(key.removesuffix("_s"), {stat: v * 1e3 for stat, v in value.items() if _number(v)})
        elif key == "throughput" and isinstance(value, Mapping):
            yield from (Figure(name, "value", float(v)) for name, v in value.items() if _number(v))
        elif key in SINGLE and _number(value):
            yield Figure(key, "value", float(value))


LATENCIES = ("ttft", "tpot", "itl", "e2e", "ntpot", "prefill", "decode")


def _each(metric: str, stats: Mapping[str, Any]) -> Iterator[Figure]:
    yield from (Figure(metric, str(stat), float(value)) for stat, value in stats.items() if _number(value))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
