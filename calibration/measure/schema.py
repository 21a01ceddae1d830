"""The tables that the kit writes: one a kernel family, with the columns of the published kernel timings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TEXT, COUNT, REAL = "text", "int32", "float32"
_HEAD = ("gpu", "op", "backend", "backend_version", "dtype", "kernel")
_TIMES = ("latency_us", "n_rep", "rep_spread")
_HEADS = ("num_heads", "num_kv_heads", "head_dim", "window")
_LINKS = ("mode", "num_gpus", "nodes", "message_bytes", "source", *_TIMES, "lat_min_us")
_MODEL = ("model", "num_tokens", "tp", "n_head", "n_kv_head", "hidden", "inter", "vocab", "gated")
_EXPERTS = ("num_tokens", "hidden", "inter", "topk", "num_experts", "tp", "ep", "distribution")

TABLES: dict[str, tuple[str, ...]] = {
    "gemm": (*_HEAD, "m", "n", "k", *_TIMES, "source", "timing", "flag"),
    "attention_context": (*_HEAD, "kv_dtype", "batch", "q_len", "kv_len", *_HEADS, *_TIMES, "source", "flag"),
    "attention_decode": (*_HEAD, "kv_dtype", "batch", "kv_history", *_HEADS, *_TIMES, "source", "flag"),
    "collectives": (*_HEAD, *_LINKS),
    "p2p": (*_HEAD, *_LINKS),
    "moe": (*_HEAD, *_EXPERTS, *_TIMES, "source"),
    "mla": (*_HEAD, "kv_dtype", "batch", "q_len", "kv_history", "num_heads", *_TIMES, "source"),
    "quantize": (*_HEAD, "m", "k", *_TIMES, "source"),
    "layer_ops": (*_HEAD, *_MODEL, *_TIMES, "source"),
}
"""columns of each table, in order"""

TEXTS = frozenset({*_HEAD, "kv_dtype", "mode", "source", "timing", "flag", "distribution", "model"})
REALS = frozenset({"latency_us", "rep_spread", "lat_min_us"})
MEASURED = frozenset({*_TIMES, "lat_min_us", "source", "flag", "timing", "mode"})
"""columns that only measuring tells; the others name what is measured"""
SOURCE = "llmqsim-measure"
EAGER = "_eager"
"""suffix of a kernel's name for times that hold its launch by the CPU, in tables without a column for it"""


def kind(column: str) -> str:
    """Type of a column: TEXT, COUNT (int32) or REAL (float32)."""
    return TEXT if column in TEXTS else REAL if column in REALS else COUNT


def key(table: str, row: Mapping[str, Any]) -> str:
    """What a row measures, as text: equal for two rows exactly when they are timings of the same thing."""
    named = {column: row[column] for column in TABLES[table] if column not in MEASURED}
    named["kernel"] = str(named["kernel"]).removesuffix(EAGER)
    return table + " " + json.dumps(named, sort_keys=True)


def faults(table: str, row: Mapping[str, Any]) -> list[str]:
    """Why `row` is no row of `table`: sentences, none when all is well."""
    if table not in TABLES:
        return [f"table '{table}' is not known; known: {', '.join(TABLES)}"]
    columns, found = set(TABLES[table]), []
    if missing := sorted(columns - set(row)):
        found.append(f"{table}: no value for {', '.join(missing)}")
    if extra := sorted(set(row) - columns):
        found.append(f"{table}: unknown columns {', '.join(extra)}")
    for column in sorted(columns & set(row)):
        if not _fits(kind(column), row[column]):
            found.append(f"{table}: {column} should be {kind(column)} (got {row[column]!r})")
    if not found and not row["latency_us"] > 0:
        found.append(f"{table}: latency_us should be positive (got {row['latency_us']!r})")
    return found


def _fits(type_: str, value: Any) -> bool:
    if type_ == TEXT:
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if type_ == COUNT:
        return isinstance(value, int) and -(2**31) <= value < 2**31
    return abs(value) < float("inf")
