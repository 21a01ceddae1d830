"""FLOPs, bytes and rough seconds of a shape: decides what fits the device and how much of the budget it takes.

Rough on purpose, and the same on every device of a kind, so that a plan never depends on what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .timer import Effort

WIDTH = {"bfloat16": 2, "float16": 2, "fp8": 1, "fp8_block": 1, "int8": 1}


@dataclass(frozen=True)
class Speed:
    """What a device is taken to do, and what one measurement may take."""

    flops_per_s: float
    bytes_per_s: float
    link_bytes_per_s: float
    call_s: float
    """of the smallest call"""
    set_up_s: float
    """of a measurement: buffers, capture, warm-up"""
    longest_call_s: float
    """shapes whose one call takes longer are left out"""


@dataclass(frozen=True)
class Peaks:
    """Datasheet peaks: FLOP/s by data type, memory bytes/s."""

    flops_per_s: Mapping[str, float]
    bytes_per_s: float


BEYOND = 1.02
"""of a datasheet peak; faster is no measurement of what the label says"""
BEYOND_CACHE_BYTES = 120e6

GPU = Speed(3e14, 1.5e12, 1e11, 4e-6, 0.2, 0.25)
CPU = Speed(2e10, 5e9, 1e9, 2e-5, 0.1, 0.005)


def flops_and_bytes(table: str, shape: Mapping[str, Any]) -> tuple[float, float, float]:
    """(FLOPs, bytes moved, of these what must come from memory and not from a cache) of one call."""
    return _WORK[table](shape)


def super_peak(table: str, shape: Mapping[str, Any], seconds: float, peaks: Peaks) -> bool:
    """Whether a time is impossible: more FLOP/s, or more bytes/s from beyond any cache, than the datasheet has."""
    flops, moved, _ = flops_and_bytes(table, shape)
    dtype = shape["dtype"].removesuffix("_block")
    peak = peaks.flops_per_s.get("bfloat16" if dtype == "float16" else dtype, float("inf"))
    streamed = moved > BEYOND_CACHE_BYTES and moved / seconds > BEYOND * peaks.bytes_per_s
    return flops / seconds > BEYOND * peak or streamed


def call_seconds(table: str, shape: Mapping[str, Any], speed: Speed) -> float:
    """Rough seconds of one call."""
    flops, moved, _ = flops_and_bytes(table, shape)
    rate = speed.link_bytes_per_s if table in ("collectives", "p2p") else speed.bytes_per_s
    return speed.call_s + max(flops / speed.flops_per_s, moved / rate)


def measuring_seconds(table: str, shape: Mapping[str, Any], speed: Speed, effort: Effort) -> float:
    """Rough seconds that measuring a shape takes in all."""
    one = call_seconds(table, shape, speed)
    window = max(one, min(effort.window_s, effort.most_calls * one))
    return speed.set_up_s + effort.warm_up_s + (effort.repeats + 2) * window


def _gemm(s):
    width = WIDTH[s.get("dtype", "bfloat16")]
    weight = float(width * s["n"] * s["k"])
    return 2.0 * s["m"] * s["n"] * s["k"], weight + 2.0 * s["m"] * (s["n"] + s["k"]), weight


def _context(s):
    pairs = s["batch"] * s["q_len"] * (s["kv_len"] - s["q_len"] / 2)
    kv = 4.0 * s["batch"] * s["kv_len"] * s["num_kv_heads"] * s["head_dim"]
    queries = 4.0 * s["batch"] * s["q_len"] * s["num_heads"] * s["head_dim"]
    return 4.0 * pairs * s["num_heads"] * s["head_dim"], kv + queries, kv


def _decode(s):
    tokens = float(s["batch"] * (s["kv_history"] + 1))
    kv = 2.0 * WIDTH[s.get("kv_dtype", "bfloat16")] * tokens * s["num_kv_heads"] * s["head_dim"]
    return 4.0 * tokens * s["num_heads"] * s["head_dim"], kv, kv


def _moe(s):
    inter, experts = s["inter"] / s["tp"], s["num_experts"] / s["ep"]
    rows = s["num_tokens"] * s["topk"]
    used = min(1.0, rows / s["num_experts"])
    weights = 3.0 * WIDTH[s.get("dtype", "bfloat16")] * experts * s["hidden"] * inter
    return 6.0 * rows / s["ep"] * s["hidden"] * inter, weights * used + 8.0 * rows * s["hidden"], weights


def _mla(s):
    if s["op"] in ("mla_gen_pre", "mla_gen_post"):
        weight = 2.0 * s["num_heads"] * 128 * 512
        return 2.0 * s["batch"] * s["num_heads"] * 128 * 512, weight + 1280.0 * s["batch"] * s["num_heads"], weight
    tokens = float(s["batch"] * (s["kv_history"] + 1))
    return 2.0 * tokens * s["num_heads"] * (576 + 512), 1152.0 * tokens, 1152.0 * tokens


def _quantize(s):
    return 0.0, 3.0 * s["m"] * s["k"], 0.0


def _layer_ops(s):
    rotated = s["hidden"] * (1 + s["n_kv_head"] / s["n_head"])
    wide = {"mlp_act": 3 * s["inter"] / s["tp"], "attn_rope": 2 * rotated / s["tp"]}
    return 0.0, 2.0 * s["num_tokens"] * wide.get(s["op"], 4 * s["hidden"]), 0.0


def _link(s):
    return 0.0, float(s["message_bytes"]), 0.0


_WORK = {
    "gemm": _gemm,
    "attention_context": _context,
    "attention_decode": _decode,
    "moe": _moe,
    "mla": _mla,
    "quantize": _quantize,
    "layer_ops": _layer_ops,
    "collectives": _link,
    "p2p": _link,
}
