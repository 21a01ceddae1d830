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
    pipeline_parallel_size: int = 1
    """stages that the layers of the model are cut into, on as many groups of tensor-parallel GPUs"""
    enable_expert_parallel: bool = False
    """whole experts on the tensor-parallel GPUs, not a slice of each"""
    data_parallel_size: int = 1
    """replicas whose experts are one set, spread over the GPUs of all of them; each keeps its own attention and KV"""
    cudagraph_mode: str = "full_and_piecewise"
    """which steps run captured: 'full_and_piecewise' all, 'full_decode_only' those without a prefill chunk"""
    cold_start: bool = False
    """does the first request meet a server that has just started, with kernels still to be compiled?"""
    sampler: str = "plain"
    """'plain' greedy or temperature; 'top_p' sorts the vocabulary for top-p or top-k"""


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
    per_streamed_token_s: float = 0.0
    """per token made in a step, where detokenising and streaming are in the engine's own loop"""
    eager_per_layer_s: float = 0.0
    """least time of a model layer in a step that no CUDA graph covers: its kernels are launched one by one"""
    sampler_s: float = 0.0
    """added to every step that samples with top-p or top-k"""
    sampler_per_logit_s: float = 0.0
    """the same per row and vocabulary entry, on a GPU with the bandwidth of an H100 SXM; scales with 1 / bandwidth"""
    cold_step_s: float = 0.0
    """added to each of the first `cold_steps` steps with a prefill chunk of a server that has just started"""
    cold_steps: int = 0
    large_step_share: float = 0.0
    """slow-down of the token-dependent part in steps of `large_step_tokens[1]` tokens and more; none up to the first"""
    large_step_tokens: tuple[int, int] = (1, 2)
    source: str = ""


@dataclass(frozen=True)
class MemoryRule:
    """What an engine takes of a GPU's memory beside weights and KV cache (kv/account.py)."""

    rule: str = "vllm"
    """'vllm': share x memory - weights - reserve; 'sglang': share x memory - weights; 'trtllm': share x (memory -
    weights - reserve)"""
    base_bytes: int = 0
    """context, and activations of 2,048 tokens"""
    collectives_bytes: int = 0
    """with tensor parallelism"""
    large_vocabulary_bytes: int = 0
    """for a vocabulary of 128,000 entries or more"""
    graph_bytes_per_layer: int = 0
    """for each layer and captured size, where graphs count against the share"""
    source: str = ""
