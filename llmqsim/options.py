"""EngineOptions: how a serving engine is configured, under vLLM's own names, after presets and the user are merged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """One engine, fully resolved. Field names are vLLM's where vLLM has the option.

    Sources of behaviour and defaults: docs/engine_presets.md and presets/engines.yaml.
    """

    preset: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int | None
    """most tokens (prompt and answer) of a request; None: whatever the KV pool holds"""
    block_size: int
    gpu_memory_utilization: float
    kv_cache_dtype: str
    """'auto' (as the weights), 'bfloat16' or 'fp8'"""
    num_gpu_blocks_override: int | None
    kv_cache_memory_bytes: int | None
    enable_chunked_prefill: bool
    scheduler_reserve_full_isl: bool
    """admit a prompt only when the blocks of the whole of it are free, not just those of its first chunk"""
    in_flight: int
    """steps formed but not finished: 1 synchronous, 2 vLLM's async_scheduling"""
    cudagraph_capture_sizes: tuple[int, ...]
    """token counts a step is padded up to; beyond the largest it runs unpadded; empty: eager"""
    long_prefill_token_threshold: int = 0
    """most tokens that one request gets in a step, 0: no such limit"""
    watermark: float = 0.0
    """share of the KV blocks that an admission must leave free"""
    enable_prefix_caching: bool = False
    unhashed_blocks_first: bool = False
    """reuse free blocks without a hash before cached ones (vLLM 0.24 and later)"""
    swap_space_bytes: int = 0
    """host memory of each GPU for preemption by swap"""
    kv_offloading_bytes: int = 0
    """host memory of each GPU that keeps cached blocks which lost their place on the GPU"""
    host_link_bytes_per_s: float = 25e9
    """between a GPU and its host, for swap and offload"""
    swap_block_s: float = 0.0
    """time of each block that is copied one by one; 0: merged copies at the link's bandwidth"""


@dataclass(frozen=True)
class HostCost:
    """Time that no kernel timing shows, seconds. `step` = per_step + per_running × running + ... (cost/host.py)."""

    per_step_s: float = 0.0
    per_step_tp_s: float = 0.0
    """added when tensor parallel size > 1"""
    per_running_s: float = 0.0
    per_mixed_layer_s: float = 0.0
    """per model layer, in steps that hold a prefill chunk"""
    request_before_s: float = 0.0
    """tokenise and HTTP, before the engine sees the request"""
    request_after_s: float = 0.0
    """detokenise and stream, added to every token's time of delivery"""
    source: str = ""
