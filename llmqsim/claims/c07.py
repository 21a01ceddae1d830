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
"""of what each variant carries at most by itself"""
SMALL = "chunks_512"
SEEDS = 10, 1
"""at full size, and reduced"""
SLOWER = (
    "prefill-first stops all decodes for a prompt; a chunk shares its step with them, and the smaller the chunk, the more steps a "
    "prompt takes: the gap between tokens is bought with the first one"
)


@dataclass(frozen=True)
class Model:
    """A model of the claim. limits_s : P99 of the gap between tokens that each chunk size has to keep (strict, relaxed)."""

    name: str
    variants: tuple[str, ...]
    limits_s: dict[str, float]
    published: float


@dataclass(frozen=True)
class Server:
    """Prefill-first, or one chunk size, with one seed. carried_per_s : requests per second, at most."""

    variants: tuple[str, ...]
    seed: int
    carried_per_s: float


MODELS = (
    Model("7B", (), {SMALL: 0.1, "chunks_2048": 0.5}, 2.6),
    Model("34B on two", ("yi_34b",), {SMALL: 0.2, "chunks_2048": 1.0}, 3.7),
)


def measure(setting: Setting) -> list[Figure]:
    """Ratios of rates, gaps and TTFT, chunked over prefill-first, one a seed."""
    figures = []
    for model in MODELS:
        setting.announce(f"C07: {model.name}")
        whole = _servers(setting, model.variants)
        chunked = {chunks: _servers(setting, (*model.variants, chunks)) for chunks in model.limits_s}
        for chunks, limit_s in model.limits_s.items():
            figures.append(_within(setting, model, chunks, limit_s, chunked[chunks], whole))
        for chunks in model.limits_s:
            figures += _latencies(setting, f"{model.name}: ", chunks, chunked[chunks], whole)
    return figures


def _servers(setting: Setting, variants: tuple[str, ...]) -> list[Server]:
    """One a seed."""
    seeds = setting.seeds(setting.size(*SEEDS))
    carried = (saturated_per_s(setting, "c07", list(variants), _size(setting), seed) for seed in seeds)
    return [Server(variants, seed, rate) for seed, rate in zip(seeds, carried, strict=True)]


def _within(
    setting: Setting, model: Model, chunks: str, limit_s: float, chunked: list[Server], whole: list[Server]
) -> Figure:
    """Rates within a limit."""
    ratios = [_most(setting, a, limit_s) / _most(setting, b, limit_s) for a, b in zip(chunked, whole, strict=True)]
    check = f"{model.name}: load within a P99 gap of {limit_s:g} s, {chunks.replace('_', ' of ')} over prefill-first"
    rests = f"P99 over all gaps, and a median wait of at most {DELAY_S:g} s; the same kernels and host times in both"
    return Figure.over_seeds(check, ratios, model.published if chunks == SMALL else None, rests)


def _latencies(setting: Setting, before: str, chunks: str, chunked: list[Server], whole: list[Server]) -> list[Figure]:
    """P99 of the gap and mean TTFT, each server at the same shares of what it carries by itself."""
    name = f"{chunks.replace('_', ' of ')} over prefill-first"
    gap, ttft = (_loaded(setting, chunked) / _loaded(setting, whole)).transpose(2, 1, 0)
    most = [float(np.mean([server.carried_per_s for server in servers])) for servers in (whole, chunked)]
    shares = ", ".join(f"{load:.0%}" for load in LOADS)
    rests = f"at {shares} of what each carries at most: prefill-first {most[0]:.2f} req/s, {chunks.replace('_', ' of ')} {most[1]:.2f}"
    carried = [a.carried_per_s / b.carried_per_s for a, b in zip(chunked, whole, strict=True)]
    return [
        Figure.over_seeds(f"{before}most that is carried, {name}", carried, None, "all requests there at once"),
        Figure.over_seeds(
            f"{before}P99 of the gap, {name}", gap.max(axis=1), None, f"{rests}; the largest of the three"
        ),
        Figure.over_seeds(
            f"{before}mean TTFT, {name}", ttft.mean(axis=1), None, f"{rests}; mean over the three", SLOWER
        ),
    ]


def _loaded(setting: Setting, servers: list[Server]) -> np.ndarray:
    """P99 of the gap and mean TTFT at each load, float64[loads, seeds, 2], seconds."""
    return np.array([[_seen(setting, server, load * server.carried_per_s)[:2] for server in servers] for load in LOADS])


def _most(setting: Setting, server: Server, limit_s: float) -> float:
    """The highest rate that keeps the limit, requests per second, to 2 %: by halving the gap between a kept and a broken one."""
    low, high = 0.0, 1.2 * server.carried_per_s
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        gap_s, _, delay_s = _seen(setting, server, rate)
        low, high = (rate, high) if gap_s <= limit_s and delay_s <= DELAY_S else (low, rate)
    return low


def _seen(setting: Setting, server: Server, rate: float) -> tuple[float, float, float]:
    """P99 of the gap between tokens, mean TTFT, median wait: seconds."""
    scenario = setting.load("c07", list(server.variants), {**_size(setting), RATE: rate})
    told = simulate(scenario, seed=server.seed, keep="summary").summary()
    return told["itl_s"]["p99"], told["ttft_s"]["mean"], told["wait_s"]["p50"]


def _size(setting: Setting) -> dict[str, Any]:
    return {REQUESTS: setting.size(1000, 400)}
