"""DistServe's example: what one A100 serves that prefills, decodes or does both, and what two and one serve together."""

from __future__ import annotations

import math

from llmqsim.claims.figure import Figure, Setting
from llmqsim.planner.goodput import Pair, goodput, grid
from llmqsim.simulation import prepare

TTFT: Pair = (0.4, math.inf)
TPOT: Pair = (math.inf, 0.04)
PUBLISHED = {"prefill only": 5.6, "decode only": 10.0, "both": 1.6, "2P1D, per GPU": 3.3}
DEPLOYMENTS: dict[str, tuple[list[str], list[Pair], int]] = {
    "prefill only": (["prefill_only"], [TTFT], 1),
    # ten prefill GPUs keep one decode GPU busy, whose answers then depend on nothing else
    "decode only": (["decode_only"], [TPOT], 1),
    "both": (["colocated"], [TTFT, TPOT], 1),
    "2P1D, per GPU": ([], [TTFT, TPOT], 3),
}
"""variants, targets that must hold, each by itself, and GPUs that the rate is divided by"""
ENGINES = {
    "vLLM 0.14": ([], "measured kernels and host times of vLLM 0.14 (chunked prefill)"),
    "vLLM 0.6": (["v0"], "measured kernels, host times of vLLM 0.6 (V0: whole prompts first)"),
    "2023 engine": (
        ["engine_of_2023"],
        "measured kernels, launched one by one with host times of 2023 (preset orca-2023)",
    ),
}
"""name to variants, and what they assume"""
RATES = (0.5, 60)
WHY = (
    "launched one by one, a decode step of 15 requests takes 34 ms, so that the one decode GPU is full at the target of 40 ms, "
    "while each GPU that does both decodes, too; the paper's engine decoded faster than that (10 req/s alone)"
)


def measure(setting: Setting) -> list[Figure]:
    """Requests per second of each deployment, told; and the pair's gain per GPU."""
    figures = []
    for engine, (variants, told) in ENGINES.items():
        setting.announce(f"DistServe: {engine}")
        found = {name: _rate(setting, variants, name) for name in DEPLOYMENTS}
        figures += [Figure(f"{engine}: {name}, req/s", rate, PUBLISHED[name], told) for name, rate in found.items()]
        gain, published = (rates["2P1D, per GPU"] / rates["both"] for rates in (found, PUBLISHED))
        reason = WHY if engine == "2023 engine" else None
        figures.append(Figure(f"{engine}: 2P1D per GPU over one that does both", gain, published, told, reason))
    return figures


def _rate(setting: Setting, variants: list[str], name: str) -> float:
    """The highest rate at which each target holds for 90 %, requests per second and GPU."""
    more, targets, gpus = DEPLOYMENTS[name]
    prepared = prepare(setting.load("distserve", [*more, *variants]))
    rates = grid(*RATES, setting.size(1.15, 1.5))
    return min(goodput(prepared, targets, rates, seed=setting.seed).values()) / gpus
