"""One resolved value as text: in its unit, every digit that matters, so that it can be written back."""

from __future__ import annotations

from typing import Any

from llmqsim.units import SECONDS, format_bytes, format_rate, format_seconds, parse_rate, parse_seconds

SECONDS_KEYS = frozenset({"workload.duration", "run.until", "slo.ttft", "slo.tpot", "slo.e2e"})
SECONDS_PARENTS = ("host.", "cost.")
RATE_KEYS = frozenset({"workload.arrivals.rate"})
BYTES_KEYS = frozenset({"kv_cache_memory_bytes", "memory_bytes", "usable_memory_bytes", "l2_bytes"})
UNITS = {
    "memory_bandwidth_bytes_per_s": "B/s",
    "interconnect_bytes_per_s": "B/s",
    "flops_per_s.bfloat16": "FLOP/s",
    "flops_per_s.fp8": "FLOP/s",
}


def shown(key: str, value: Any) -> str:
    """The value of a dotted key as the page shows it."""
    if value is None:
        return "no limit" if key == "max_model_len" else "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return _listed(value)
    if isinstance(value, str):
        return value
    if key in SECONDS_KEYS or key.startswith(SECONDS_PARENTS):
        return exact_seconds(value)
    if key in RATE_KEYS:
        short = format_rate(value)
        return short if parse_rate(short) == value else f"{value:.9g} req/s"
    if key in BYTES_KEYS:
        return format_bytes(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g} {UNITS.get(key, '')}".rstrip()


def _listed(values: list) -> str:
    if len(values) > 6:
        return f"{len(values)} from {values[0]} to {values[-1]}"
    return "[" + ", ".join(str(value) for value in values) + "]" if values else "none"


def exact_seconds(value: float) -> str:
    """A time in the unit that reads best, with up to nine digits where three would round it: "97.65625 us"."""
    short = format_seconds(value)
    if parse_seconds(short) == value:
        return short
    unit = short.split()[1]
    return f"{value / float(SECONDS[unit]):.9g} {unit}"
