"""How many KV blocks fit on a replica's GPUs, item by item.

Rule and constants: ../shared/design/engine_semantics.md section 2, derived there from the KV blocks that vLLM 0.15.1
logged on five deployments (H100, gpu_memory_utilization 0.9, 2,048 batched tokens, 128 sequences).
"""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.errors import ScenarioError
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.model import Model
from llmqsim.options import EngineOptions

GIB = 1024**3
BASE_RESERVE_BYTES = GIB // 2
"""CUDA context, activations and graphs"""
COLLECTIVE_RESERVE_BYTES = 4 * GIB // 10
"""communication buffers, with tensor parallelism"""
LARGE_VOCABULARY = 128_000
LARGE_VOCABULARY_RESERVE_BYTES = GIB
"""logits of the sampler's dummy run, from LARGE_VOCABULARY entries on"""
RULE = "capacity rule of ../shared/design/engine_semantics.md section 2 (within 1 % of five measured servers)"


@dataclass(frozen=True)
class Item:
    """One line of the account: bytes on each GPU (negative where they are taken away) and how they follow."""

    name: str
    bytes: int
    formula: str


@dataclass(frozen=True)
class KvCapacity:
    """The KV pool of one replica. Blocks are counted as vLLM logs them; one of them is reserved and not usable."""

    blocks: int
    block_size: int
    bytes_per_token: int | None
    """of the whole model, all GPUs together; None without a model"""
    bytes_per_block_per_gpu: int | None
    items: tuple[Item, ...]
    source: str
    formula: str
    """the bytes of a token with the model's numbers filled in; empty without a model"""

    @property
    def tokens(self) -> int:
        """Tokens that all blocks hold."""
        return self.blocks * self.block_size

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: one is vLLM's null block."""
        return self.blocks - 1

    @property
    def usable_tokens(self) -> int:
        """Tokens that requests can hold."""
        return self.usable_blocks * self.block_size

    def guaranteed_concurrency(self, max_model_len: int) -> float:
        """Requests of `max_model_len` tokens that fit at once: a floor, not a forecast (vLLM logs it at start-up)."""
        return self.tokens / max_model_len


def kv_capacity(
    model: Model | None, gpu: Gpu | None, tp: int, options: EngineOptions, *, check_max_model_len: bool = True
) -> KvCapacity:
    """The KV pool of one replica of `tp` GPUs.

    `num_gpu_blocks_override` wins (a server's log is the best source), then `kv_cache_memory_bytes` (of each GPU), then
    the memory rule. check_max_model_len : refuse a pool that can't hold one request of `options.max_model_len`, as vLLM
    does at start-up; pass False when that length was not asked for.
    Raises ScenarioError when the weights don't fit, the pool is too small, or a needed model or GPU is missing.
    """
    per_token, formula = _bytes_per_token(model, options)
    per_block = _bytes_per_block_per_gpu(model, tp, options)
    if options.num_gpu_blocks_override is not None:
        blocks, items, source = options.num_gpu_blocks_override, (), "num_gpu_blocks_override"
    elif model is None or per_block is None:
        raise ScenarioError("engine.num_gpu_blocks_override: missing; without a model the KV pool can't be worked out")
    elif options.kv_cache_memory_bytes is not None:
        pool = options.kv_cache_memory_bytes
        items = (Item("KV pool", pool, f"kv_cache_memory_bytes = {_gib(pool)} on each GPU"),)
        blocks, source = pool // per_block, "kv_cache_memory_bytes"
    elif gpu is None:
        raise ScenarioError("gpu: missing; the KV pool needs a GPU, num_gpu_blocks_override or kv_cache_memory_bytes")
    else:
        items = _account(model, gpu, tp, options)
        pool = sum(item.bytes for item in items)
        _check_fit(model, gpu, tp, options, items, pool)
        items += (Item("KV pool", pool, f"what is left on each GPU; {pool:,} // {per_block:,} bytes a block"),)
        blocks, source = pool // per_block, RULE
    capacity = KvCapacity(int(blocks), options.block_size, per_token, per_block, items, source, formula)
    _check_pool(capacity, options, check_max_model_len)
    return capacity


def _bytes_per_token(model: Model | None, options: EngineOptions) -> tuple[int | None, str]:
    if model is None:
        return None, ""
    width = model.kv_dtype_bytes(options.kv_cache_dtype)
    per_token = model.kv_bytes_per_token(width)
    return per_token, (
        f"2 x {model.layers} layers x {model.kv_heads} KV heads x {model.head_dim} head size x {width} bytes "
        f"= {per_token:,} bytes a token"
    )


def _bytes_per_block_per_gpu(model: Model | None, tp: int, options: EngineOptions) -> int | None:
    if model is None:
        return None
    width = model.kv_dtype_bytes(options.kv_cache_dtype)
    return 2 * model.layers * model.kv_heads_per_gpu(tp) * model.head_dim * width * options.block_size


def _account(model: Model, gpu: Gpu, tp: int, options: EngineOptions) -> tuple[Item, ...]:
    """What one GPU has for everything, and what is taken from it before the KV pool."""
    share = options.gpu_memory_utilization
    budget = int(gpu.usable_memory_bytes * share)
    weights, usable = model.weight_bytes(tp), _gib(gpu.usable_memory_bytes)
    items = [
        Item("memory", budget, f"{usable} usable on {gpu.name} x {share:g} gpu_memory_utilization"),
        Item("weights", -weights, f"{model.parameters:,} parameters x {model.dtype_bytes} bytes over {tp} GPU(s)"),
        Item("activations, graphs, context", -BASE_RESERVE_BYTES, "0.5 GiB"),
    ]
    if tp > 1:
        items.append(Item("collectives", -COLLECTIVE_RESERVE_BYTES, "0.4 GiB with tensor parallelism"))
    if model.vocab >= LARGE_VOCABULARY:
        text = f"1 GiB for a vocabulary of {model.vocab:,} (>= {LARGE_VOCABULARY:,})"
        items.append(Item("large vocabulary", -LARGE_VOCABULARY_RESERVE_BYTES, text))
    return tuple(items)


def _check_fit(
    model: Model, gpu: Gpu, tp: int, options: EngineOptions, items: tuple[Item, ...], pool: int
) -> None:
    if pool > 0:
        return
    budget, taken = items[0], " + ".join(f"{item.name} {_gib(-item.bytes)}" for item in items[1:])
    raise ScenarioError(
        f"tensor_parallel_size: {model.name} does not fit on {tp} x {gpu.name} (got {tp}): {taken} "
        f"= {_gib(budget.bytes - pool)} on each GPU, and {budget.formula} = {_gib(budget.bytes)}; "
        f"take more GPUs a replica, a larger GPU or a smaller model"
    )


def _check_pool(capacity: KvCapacity, options: EngineOptions, check_max_model_len: bool) -> None:
    if capacity.usable_blocks < 1:
        raise ScenarioError(
            f"engine: the KV pool holds {capacity.blocks} blocks of {capacity.block_size} tokens ({capacity.source}), "
            f"of which one is reserved; at least 2 are needed"
        )
    longest = options.max_model_len
    if check_max_model_len and longest is not None and longest > capacity.usable_tokens:
        raise ScenarioError(
            f"engine.max_model_len: one request of that length does not fit the KV pool (got {longest:,}): "
            f"{capacity.usable_blocks:,} usable blocks x {capacity.block_size} = {capacity.usable_tokens:,} tokens "
            f"({capacity.source}); at most {capacity.usable_tokens:,}, or 'auto'"
        )


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
