"""C07: chunked prefills against prefill-first: the load within a limit on the gap between tokens, and what TTFT pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from llmqsim.claims.figure import Figure, Setting
from llmqsim.claims.loads import RATE, REQUESTS, saturated_per_s
from llmqsim.simulation import simulate

DELAY_S = 2.0
"""median wait before the first step that still counts as carried"""
HALVINGS = 8
LOADS = (0.7, 0.8, 0.9)
"""of what prefill-first carries at most"""
SMALL = "chunks_512"
SLOWER = (
    "prefill-first stops all decodes for a prompt; a chunk shares its step with them, and the smaller the chunk, the more steps a "
    "prompt takes and the less load fills the server: the gap between tokens is bought with the first one"
)


@dataclass(frozen=True)
class Model:
    """A model of the claim. limits_s : P99 of the gap between tokens that each chunk size has to keep (strict, relaxed)."""

    name: str
    variants: tuple[str, ...]
    limits_s: dict[str, float]
    published: float


MODELS = (
    Model("7B", (), {SMALL: 0.1, "chunks_2048": 0.5}, 2.6),
    Model("34B on two", ("yi_34b",), {SMALL: 0.2, "chunks_2048": 1.0}, 3.7),
)


def measure(setting: Setting) -> list[Figure]:
    """Ratios of rates, gaps and TTFT, chunked over prefill-first, one a seed."""
    return [figure for model in MODELS for figure in (*_capacity(setting, model), *_latencies(setting, model))]


def _capacity(setting: Setting, model: Model) -> list[Figure]:
    """Rates within each limit."""
    figures = []
    for chunks, limit_s in model.limits_s.items():
        values = []
        for seed in _seeds(setting):
            chunked, whole = (_most(setting, [*model.variants, *more], limit_s, seed) for more in ([chunks], []))
            values.append(chunked / whole)
        check = f"{model.name}: load within a P99 gap of {limit_s:g} s, {chunks.replace('_', ' of ')} over prefill-first"
        rests = f"P99 over all gaps, and a median wait of at most {DELAY_S:g} s; the same kernels and host times in both"
        figures.append(Figure(check, tuple(values), model.published if chunks == SMALL else None, rests))
    return figures


def _latencies(setting: Setting, model: Model) -> list[Figure]:
    """P99 of the gap and mean TTFT at equal rates."""
    carried = saturated_per_s(setting, "c07", model.variants, _size(setting))
    rests = f"at {', '.join(f'{load:.0%}' for load in LOADS)} of {carried:.2f} req/s, what prefill-first carries at most"
    runs = [(load * carried, seed) for load in LOADS for seed in _seeds(setting)]
    whole = np.array([_seen(setting, [*model.variants], rate, seed)[:2] for rate, seed in runs])
    figures = []
    for chunks in model.limits_s:
        chunked = np.array([_seen(setting, [*model.variants, chunks], rate, seed)[:2] for rate, seed in runs])
        gap, ttft = (chunked / whole).T
        by_seed = ttft.reshape(len(LOADS), -1).mean(axis=0)
        name = f"{chunks.replace('_', ' of ')} over prefill-first"
        figures.append(Figure(f"{model.name}: P99 of the gap, {name}", tuple(gap), None, rests))
        figures.append(Figure(f"{model.name}: mean TTFT, {name}", tuple(by_seed), None, f"{rests}; mean over the three", SLOWER))
    return figures


def _most(setting: Setting, variants: list[str], limit_s: float, seed: int) -> float:
    """The highest rate that keeps the limit, requests per second, to 2 %: by halving the gap between a kept and a broken one."""
    high = 1.2 * saturated_per_s(setting, "c07", variants, _size(setting))
    low = 0.0
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        gap_s, _, delay_s = _seen(setting, variants, rate, seed)
        low, high = (rate, high) if gap_s <= limit_s and delay_s <= DELAY_S else (low, rate)
    return low


def _seen(setting: Setting, variants: list[str], rate: float, seed: int) -> tuple[float, float, float]:
    """P99 of the gap between tokens, mean TTFT, median wait: seconds."""
    result = simulate(setting.load("c07", variants, {**_size(setting), RATE: rate}), seed=seed)
    told = result.summary()
    return told["itl_s"]["p99"], told["ttft_s"]["mean"], told["wait_s"]["p50"]


def _size(setting: Setting) -> dict[str, Any]:
    return {REQUESTS: setting.size(1000, 400)}


def _seeds(setting: Setting) -> range:
    return setting.seeds(setting.size(3, 1))
