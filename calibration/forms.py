"""The free constants of each kernel family, their bounds, and how they predict seconds: the operators themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from llmqsim.cost.operators import AllReduce, DecodeAttention, Gemm, PrefillAttention, Roofline, ring_bytes
from llmqsim.hardware.gpu import Gpu

PLAIN = float("inf")
"""overlap of the textbook roofline: the shorter of compute and memory is hidden"""
HEAD_DIM = 128
ROOF = (("t0_s", "compute_efficiency", "memory_efficiency", "overlap"), (5e-6, 0.7, 0.7, 2.0))
ROOF_LOWER, ROOF_UPPER = (5e-7, 0.05, 0.05, 1.0), (5e-5, 1.2, 1.2, 12.0)


@dataclass(frozen=True)
class Form:
    """A family's free constants and how they predict seconds. `predict` takes the constants by name, and shapes."""

    names: tuple[str, ...]
    start: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    predict: Callable[[dict[str, float], dict[str, np.ndarray]], np.ndarray]


def roofline(c: dict[str, float], card: Gpu) -> Roofline:
    """The Roofline of a constants mapping on this GPU's peaks."""
    return Roofline(
        c["t0_s"],
        card.flops_per_s["bfloat16"] * c["compute_efficiency"],
        card.memory_bandwidth_bytes_per_s * c["memory_efficiency"],
        c.get("overlap", PLAIN),
    )


def gemm_form(card: Gpu) -> Form:
    """Linear layers."""
    return Form(
        *ROOF, ROOF_LOWER, ROOF_UPPER, lambda c, s: Gemm(roofline(c, card)).seconds(s["m"], s["n"], s["k"])
    )


def prefill_form(card: Gpu, kv_bytes: int) -> Form:
    """Prefill attention, with the extra work on the diagonal. The rows have no prefix, so KV reading never decides."""

    def predict(c, s):
        bandwidth = card.memory_bandwidth_bytes_per_s
        kernel = PrefillAttention(roofline(c, card), c["diagonal_tokens"], card.multiprocessors, bandwidth)
        zero = np.zeros_like(s["q_len"])
        return kernel.seconds(s["q_len"], zero, s["num_heads"], s["num_kv_heads"], HEAD_DIM, kv_bytes, s["batch"])

    return Form(
        (*ROOF[0], "diagonal_tokens"), (*ROOF[1], 100.0), (*ROOF_LOWER, 1.0), (*ROOF_UPPER, 2000.0), predict
    )


def decode_form(card: Gpu, kv_bytes: int, splits_groups_only: bool) -> Form:
    """Decode attention: memory and start-up. splits_groups_only : FlashAttention 2, see DecodeAttention."""
    names, start = ("t0_s", "memory_efficiency", "floor_tokens", "per_block_s"), (1e-5, 0.7, 120.0, 5e-9)
    lower, upper = (5e-7, 0.05, 1.0, 1e-10), (5e-5, 1.2, 1000.0, 1e-6)
    if splits_groups_only:
        names, start = (*names, "grouped_t0_s", "unsplit_blocks_per_multiprocessor"), (*start, 5e-6, 0.5)
        lower, upper = (*lower, 1e-7, 0.1), (*upper, 5e-5, 4.0)

    def predict(c, s):
        kernel = DecodeAttention(
            roofline(c | {"compute_efficiency": 1.0}, card),
            c["floor_tokens"],
            c["per_block_s"],
            c.get("grouped_t0_s", 0.0),
            c.get("unsplit_blocks_per_multiprocessor", 0.0) * card.multiprocessors,
        )
        return kernel.seconds(s["batch"], s["kv_history"] + 1, s["num_heads"], s["num_kv_heads"], HEAD_DIM, kv_bytes)

    return Form(names, start, lower, upper, predict)


def direct_form(card: Gpu) -> Form:
    """All-reduce by the engine's own kernel."""

    def predict(c, s):
        link = Roofline(c["t0_s"], 1.0, card.interconnect_bytes_per_s * c["link_efficiency"])
        return AllReduce(link, c["second_stage_s"], link).direct_seconds(s["message_bytes"], s["num_gpus"])

    names = ("t0_s", "link_efficiency", "second_stage_s")
    return Form(names, (5e-6, 0.6, 3e-6), (5e-7, 0.01, 1e-8), (1e-3, 1.5, 1e-4), predict)


def library_form(card: Gpu) -> Form:
    """All-reduce by NCCL."""

    def predict(c, s):
        link = Roofline(c["t0_s"], 1.0, card.interconnect_bytes_per_s * c["link_efficiency"])
        return link.seconds(0.0, ring_bytes(s["message_bytes"], s["num_gpus"]))

    return Form(("t0_s", "link_efficiency"), (2e-5, 0.6), (5e-7, 0.01), (1e-3, 1.5), predict)
