"""What the layers of a model keep on one GPU, and what an engine version does with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmqsim.hardware.mixers import index_bytes
from llmqsim.hardware.model import Model
from llmqsim.kv.hybrid import CHUNKED, FULL, STATE, WINDOW, Kind, Layout, Manager, in_full, layout

HYBRID_SINCE = (0, 11)
"""vLLM's hybrid manager was on for Gemma-3 in 0.11 (a start-up log); before 0.12 off for some models (from memory)"""
ALIGN_SINCE = (0, 14)
"""states are cached at chunk ends by default: in logs of 2026, not in those of 0.11 and 0.13"""
CONCURRENCY_LINE_SINCE = (0, 21)
"""the token line is concurrency x max_model_len"""
IN_FLIGHT_SINCE = (0, 26)
"""windows are counted with the tokens of all batches in flight (vllm#47728, #49878)"""
_VLLM = re.compile(r"vllm-(\d+)\.(\d+)")
CHUNKED_WINDOWS = frozenset({"llama4", "llama4_text"})


@dataclass(frozen=True)
class Release:
    """The release of an engine: what it is asked by, and its numbers; None where it has none of vLLM's."""

    name: str
    numbers: tuple[int, int] | None

    @classmethod
    def of(cls, preset: str) -> Release:
        """The release that a preset's name or alias states: "vllm-0.26" is (0, 26)."""
        found = _VLLM.fullmatch(preset.lower())
        return cls(preset, (int(found[1]), int(found[2])) if found else None)


def kinds(
    model: Model, tp: int, width: int, *, stages: int = 1, drafted: int = 0, draft_layers: int = 0
) -> tuple[Kind, ...]:
    """What each kind of layers keeps on one GPU of `tp`, of a stage with an equal share of the layers.

    width : bytes of a KV element. drafted : speculative tokens of a step; draft_layers : full layers that draft them.
    """
    index = index_bytes(model.index_width) if model.index_layers else 0
    found = []
    for one in model.mixers:
        if one.shared:
            continue
        state = one.state_bytes(tp, drafted)
        found.append(Kind(one.name, one.kind, one.layers, one.kv_bytes(tp, width), state, one.window, bool(one.latent)))
    if not model.mixers:
        found = _plain(model, tp, width)
    if index:  # beside the latents or keys of these layers
        found.append(Kind("index keys", FULL, model.index_layers, index))
    if draft_layers:
        full = next((one for one in found if one.kind == FULL), found[0])
        found = [_more(one, draft_layers) if one is full else one for one in found]
    return tuple(_stage(one, stages) for one in found)


def _plain(model: Model, tp: int, width: int) -> list[Kind]:
    """Of a model whose layers are all attention with the same heads."""
    if model.kv_lora_rank:
        latent = (model.kv_lora_rank + model.qk_rope_head_dim) * width
        return [Kind("latent attention", FULL, model.layers, latent, latent=True)]
    each = 2 * model.kv_heads_per_gpu(tp) * model.head_dim * width
    windowed = model.windowed_layers
    found = [Kind("attention", FULL, model.layers - windowed, each)]
    if windowed:
        chunked = "attention_chunk_size" in model.sources.get("sliding_window", "")
        kind = CHUNKED if chunked else WINDOW
        found.append(
            Kind(f"{kind}ed attention".replace("eded", "ed"), kind, windowed, each, window=model.sliding_window)
        )
    return found


def _more(kind: Kind, layers: int) -> Kind:
    return Kind(
        kind.name, kind.kind, kind.layers + layers, kind.token_bytes, kind.state_bytes, kind.window, kind.latent
    )


def _stage(kind: Kind, stages: int) -> Kind:
    layers = -(-kind.layers // stages)
    return Kind(kind.name, kind.kind, layers, kind.token_bytes, kind.state_bytes, kind.window, kind.latent)


def manager(
    release: Release, *, batches: int = 1, prefix_caching: bool = True, offloading: bool = False, state_mode: str = ""
) -> Manager:
    """What a release does. batches : in flight at once. offloading : KV goes to the host by the native connector.

    state_mode : what the engine was told; "" for its default.
    """
    numbers = release.numbers
    if numbers is None:
        if release.name.startswith(("trtllm", "tensorrt")):
            return Manager(True, "none", pool_per_window=True, why="a pool for each window, split statically")
        told = "SGLang keeps windowed layers and states in pools of their own; vLLM's arithmetic is taken"
        if release.name.startswith("sglang"):
            return Manager(True, "align" if prefix_caching else "none", why=told)
        return Manager(False, "none", why=f"{release.name} keeps every layer in full")
    default = "align" if prefix_caching and numbers >= ALIGN_SINCE else "none"
    why = ""
    hybrid = numbers >= HYBRID_SINCE and not offloading
    if offloading:
        why = "off under KV offloading: every layer counts in full"
    elif not hybrid:
        why = f"off before vLLM {HYBRID_SINCE[0]}.{HYBRID_SINCE[1]}: every layer counts in full"
    return Manager(
        hybrid,
        state_mode or default,
        in_flight_batches=batches if numbers >= IN_FLIGHT_SINCE else 1,
        tokens_by_concurrency=numbers >= CONCURRENCY_LINE_SINCE,
        why=why,
    )


def model_layout(its: tuple[Kind, ...], rule: Manager, block_size: int, drafted: int = 0) -> Layout:
    """Groups and pages under a manager. Index keys lie in the pages of the layers whose tokens they index."""
    if not rule.hybrid:
        its = in_full(its)
    return layout(its, block_size, drafted=drafted, even=rule.even)


assert STATE, "kinds of mixers are the kinds of pools"
