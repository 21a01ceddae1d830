"""`llmqsim fits`: which models fit on which GPUs, in which smallest layout, how many requests, how fast a decode step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.cost.host import step_base_s
from llmqsim.cost.lower import layer_of
from llmqsim.errors import NoRoom
from llmqsim.hardware.gpu import Gpu, gpu
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import Model, model
from llmqsim.hardware.serving import engine_options
from llmqsim.kv.account import smallest_layout
from llmqsim.kv.capacity import KvCapacity, kv_capacity
from llmqsim.options import EngineOptions

MODELS = (
    "llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "qwen3-30b-a3b-2507", "qwen3-next-80b-a3b", "qwen3.5-27b",
    "qwen3.5-397b-a17b", "gpt-oss-20b", "gpt-oss-120b", "gemma-3-27b", "gemma-4-31b", "deepseek-v3.2", "kimi-k2.5",
    "glm-4.5-air", "nemotron-3-nano-30b-a3b",
)  # fmt: skip
GPUS = ("l40s", "a100-sxm-80gb", "h100-sxm", "h200", "b200", "mi300x")
PRESET = "vllm-0.26"
TOKENS, REQUESTS = 8192, 32
MOST_GPUS = 16
"""of one replica; more is said not to fit"""


@dataclass(frozen=True)
class Fit:
    """One model on one card. Where it does not fit, `why` says so and the rest is None."""

    model: str
    gpu: str
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    weights_bytes: int | None = None
    """on each GPU"""
    kv_tokens: int | None = None
    """concurrency x longest request, as the start-up line of newer releases counts it"""
    longest: int | None = None
    """the model's longest request, or the longest that fits"""
    concurrency: float | None = None
    """requests of `tokens` that fit at once"""
    concurrency_longest: float | None = None
    step_s: float | None = None
    """a decode step of `requests` requests of `tokens` tokens, host time included"""
    step_fits: bool = True
    """do so many requests fit at once?"""
    why: str = ""
    notes: tuple[str, ...] = ()
    """what of the model is not modelled, or priced as something else"""


def fits(
    models: Iterable[str],
    gpus: Iterable[str],
    preset: str = PRESET,
    tokens: int = TOKENS,
    requests: int = REQUESTS,
    most_gpus: int = MOST_GPUS,
) -> list[Fit]:
    """A row for each model (a preset, or the path of a config.json) on each GPU. Raises ScenarioError for unknown names."""
    cards = [gpu(name) for name in gpus]
    return [_fit(_model(name), card, preset, tokens, requests, most_gpus) for name in models for card in cards]


def _model(name: str) -> Model:
    return model_from_config(Path(name)) if name.lower().endswith(".json") else model(name)


def _fit(network: Model, card: Gpu, preset: str, tokens: int, requests: int, most: int) -> Fit:
    options, host, _ = engine_options(preset, card, network, 1, {"max_model_len": "auto"})
    start = smallest_layout(network, card, options, most)
    while start is not None:
        tp, pp = start
        options, host, _ = engine_options(
            preset, card, network, tp, {"pipeline_parallel_size": pp, "max_model_len": "auto"}
        )
        try:
            pool = kv_capacity(network, card, tp, options, check_max_model_len=False, release=preset)
        except NoRoom:
            pool = None
        if pool is not None and pool.hybrid_concurrency(min(tokens, network.max_position_embeddings)) >= 1:
            return _row(network, card, (tp, pp), options, host, pool, tokens, requests)
        start = smallest_layout(network, card, replace(options, pipeline_parallel_size=1), most, above=tp * pp)
    return Fit(network.name, card.name, why=f"does not fit on {most} GPUs", notes=_notes(network))


def _notes(network: Model) -> tuple[str, ...]:
    found = [f"{one.key}: {one.effect}" for one in network.unmodelled]
    if states := [f"{one.layers} x {one.name}" for one in network.mixers if one.kind == "state"]:
        told = "priced as attention over a window that moves as many bytes, as no kernel of theirs is timed here"
        found.append(f"{', '.join(states)}: {told}")
    return tuple(found)


def _row(
    network: Model, card: Gpu, layout: tuple[int, int], options: EngineOptions, host: Any, pool: KvCapacity, tokens: int, requests: int
) -> Fit:  # fmt: skip
    tp, pp = layout
    tokens = min(tokens, network.max_position_embeddings)
    holds = pool.hybrid.longest() if pool.hybrid is not None else pool.usable_tokens
    longest = min(network.max_position_embeddings, holds)
    at_longest = pool.hybrid_concurrency(longest)
    layer = layer_of(network, card, tp, options)
    rows = np.array([float(requests)])
    seconds = float(layer.linear_seconds(rows)[0]) + float(np.sum(layer.decode_seconds(rows, float(tokens))))
    seconds += float(np.sum(layer.head_seconds(rows))) + step_base_s(host, tp) + requests * host.per_running_s
    concurrency = pool.hybrid_concurrency(tokens)
    return Fit(
        network.name,
        card.name,
        tp,
        pp,
        network.weight_bytes(tp, pp),
        int(at_longest * longest),
        longest,
        concurrency,
        at_longest,
        seconds,
        concurrency >= requests,
        notes=_notes(network),
    )


def fits_told(found: list[Fit], preset: str, tokens: int, requests: int) -> dict[str, Any]:
    """For JSON."""
    return {"preset": preset, "tokens": tokens, "requests": requests, "rows": [asdict(one) for one in found]}


def fits_text(found: list[Fit], preset: str, tokens: int, requests: int) -> str:
    """A table for the terminal and for Markdown."""
    lines = [
        f"Smallest layout in which the weights and one request of {tokens:,} tokens fit ({preset}, its defaults); requests "
        f"that fit at once; a decode step of {requests} requests of {tokens:,} tokens. No run is made.",
        "",
        f"| model | GPU | layout | weights a GPU | KV tokens | at {tokens:,} | longest | at longest | step |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in found:
        if one.why:
            lines.append(f"| {one.model} | {one.gpu} | {one.why} | | | | | | |")
            continue
        layout = f"TP{one.tensor_parallel_size}" + (
            f" x PP{one.pipeline_parallel_size}" if one.pipeline_parallel_size != 1 else ""
        )
        cells = (
            f"{one.weights_bytes / 2**30:.1f} GiB", f"{one.kv_tokens:,}", f"{one.concurrency:,.1f}", f"{one.longest:,}",
            f"{one.concurrency_longest:,.2f}", f"{1e3 * (one.step_s or 0.0):.1f} ms" + ("" if one.step_fits else " *"),
        )  # fmt: skip
        lines.append(f"| {one.model} | {one.gpu} | {layout} | {' | '.join(cells)} |")
    if not all(one.step_fits for one in found):
        lines += ["", f"* fewer than {requests} such requests fit at once"]
    notes = dict.fromkeys(f"{one.model}, {note}" for one in found for note in one.notes)
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines)
