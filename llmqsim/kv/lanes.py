"""KV between pools: links by name, what a block is on the way, and whether one pool's blocks fit the other's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.errors import ScenarioError
from llmqsim.hardware.data import find, read_preset, sourced
from llmqsim.hardware.model import Model
from llmqsim.kv.capacity import bytes_per_block_per_gpu
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.options import EngineOptions

KEY = "handoff.link"
WRITTEN = "written in the scenario"
BYTES_PER_MB = 1_000_000


def kv_link_names() -> tuple[str, ...]:
    """All links that a hand-off can name, sorted."""
    return tuple(sorted(read_preset("kv_links.yaml")["links"]))


def kv_link(given: str | Mapping[str, Any]) -> KvLink:
    """A link by name, or {like, bandwidth: bytes/s, latency: s, per_fragment: s, shared}. Raises ScenarioError."""
    if isinstance(given, str):
        return _preset(given, KEY)
    written = {key: value for key, value in given.items() if value is not None}
    like = written.pop("like", None)
    if like is None and "bandwidth" not in written:
        raise ScenarioError(f"{KEY}.bandwidth: missing; give it, or `like` with one of: {', '.join(kv_link_names())}")
    base = KvLink("own", 0) if like is None else _preset(like, f"{KEY}.like")
    rate = base.bytes_per_us if "bandwidth" not in written else _whole_rate(written["bandwidth"])
    latency_ns = base.latency_ns if "latency" not in written else round(written["latency"] * 1e9)
    fragment_ns = base.per_fragment_ns if "per_fragment" not in written else round(written["per_fragment"] * 1e9)
    source = WRITTEN if like is None else f"{WRITTEN}, else as {base.name}: {base.source}"
    name = "own" if like is None else f"{base.name} (changed)"
    return KvLink(name, rate, latency_ns, fragment_ns, bool(written.get("shared")), source)


def _preset(name: str, key: str) -> KvLink:
    data = read_preset("kv_links.yaml")
    found = find(key, name, data["links"])
    entry = data["links"][found]
    rate, source = sourced(entry, data["sources"], "bandwidth_bytes_per_s")
    times = (round(entry[key] * 1e9) for key in ("latency_s", "per_fragment_s"))
    return KvLink(found, _whole_rate(rate), *times, source=source)


def _whole_rate(bytes_per_s: float) -> int:
    """Bytes per microsecond, which is MB/s."""
    if bytes_per_s < BYTES_PER_MB:
        raise ScenarioError(f"{KEY}.bandwidth: must be at least 1 MB/s (got {bytes_per_s:,.0f} bytes/s)")
    return round(bytes_per_s / BYTES_PER_MB)


def kv_lane(model: Model, ends: tuple[tuple[int, EngineOptions], tuple[int, EngineOptions]], shared: bool) -> KvLane:
    """What a block is on the way between two pools. ends : (TP size, options) of the prefill and the decode pool.

    Every GPU of the decode pool needs its own share; where it has more GPUs than the prefill pool, each of these sends
    several shares. With one `shared` link the shares of all GPUs go over it.
    """
    (from_tp, _), (to_tp, to) = ends
    share = bytes_per_block_per_gpu(model, to_tp, to)
    stages = to.pipeline_parallel_size
    everything = share * to_tp * stages
    each = max(1, to_tp // from_tp)
    layers = model.layers // stages
    fragments = layers * (1 if model.kv_lora_rank else 2) * each
    return KvLane(everything, everything if shared else share * each, fragments, layers)


def faults(model: Model, ends: tuple[tuple[int, EngineOptions], tuple[int, EngineOptions]]) -> dict[str, str]:
    """Why a decode pool can't take a prefill pool's KV, by key of the decode pool; empty where it can."""
    (from_tp, source), (to_tp, taker) = ends
    found = {}
    sizes = [bytes_per_block_per_gpu(model, tp, options) for tp, options in ends]
    if source.block_size != taker.block_size:
        found["engine.block_size"] = (
            f"blocks are handed over whole, so they must be alike (got {taker.block_size} tokens, {sizes[1]:,} bytes a GPU; "
            f"the prefill pool's hold {source.block_size} tokens, {sizes[0]:,} bytes)"
        )
    widths = [model.kv_dtype_bytes(options.kv_cache_dtype) for _, options in ends]
    if widths[0] != widths[1]:
        totals = [model.kv_bytes_per_token(width) for width in widths]
        found["engine.kv_cache_dtype"] = (
            f"the prefill pool's KV has {widths[0]} bytes an element, {totals[0]:,} a token (got {widths[1]} and "
            f"{totals[1]:,}); give both pools the same kv_cache_dtype"
        )
    stages = [options.pipeline_parallel_size for _, options in ends]
    if stages[0] != stages[1]:
        layers = [model.layers // count for count in stages]
        found["pipeline_parallel_size"] = (
            f"a stage of the prefill pool holds {layers[0]} layers of a token, one here {layers[1]}, so no GPU finds its "
            f"layers in one place (got {stages[1]}; the prefill pool has {stages[0]})"
        )
    heads = [model.kv_heads_per_gpu(tp) for tp in (from_tp, to_tp)]
    if not model.kv_lora_rank and heads[1] > heads[0]:
        found["tensor_parallel_size"] = (
            f"a GPU here holds {heads[1]} of {model.kv_heads} KV heads, one of the prefill pool {heads[0]}, so that no "
            f"read fills a block (got {to_tp}; the prefill pool has {from_tp}); give at least {from_tp}"
        )
    return found
