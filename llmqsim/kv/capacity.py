"""How many KV blocks fit on a replica's GPUs.

Rules: docs/engine_presets.md, which compares the result with every measured server (vLLM's rule was derived from the KV
blocks that vLLM 0.15.1 logged on five deployments); what each engine takes is in presets/engines.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.errors import NoRoom, ScenarioError
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.mixers import Mixer, index_bytes
from llmqsim.hardware.model import Model
from llmqsim.hardware.serving import memory_rule
from llmqsim.kv.account import NOTHING_MEASURED, Item, account, check_fit, gib
from llmqsim.kv.measured import MeasuredMemory
from llmqsim.kv.pools import HybridPool, hybrid_pool
from llmqsim.options import EngineOptions

RULE = "capacity rule of {preset}: {source}"


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
    hybrid: HybridPool | None = None
    """the pool as the engine lays it out, where layers are of several kinds; a run counts every layer in full"""

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
        """Requests of `max_model_len` tokens that fit at once in a run, whose pool keeps every layer in full: a floor."""
        return self.tokens / max_model_len

    def hybrid_concurrency(self, max_model_len: int) -> float:
        """The same as the engine's start-up lines count it, windows and states of hybrid models included."""
        return self.guaranteed_concurrency(max_model_len) if self.hybrid is None else self.hybrid.concurrency(max_model_len)


def kv_capacity(
    model: Model | None,
    gpu: Gpu | None,
    tp: int,
    options: EngineOptions,
    *,
    check_max_model_len: bool = True,
    release: str | None = None,
    measured: MeasuredMemory = NOTHING_MEASURED,
) -> KvCapacity:
    """The KV pool of one replica of `tp` x `options.pipeline_parallel_size` GPUs.

    `num_gpu_blocks_override` wins (a server's log is the best source), then `kv_cache_memory_bytes` (of each GPU), then
    the engine's memory rule. check_max_model_len : refuse a pool that can't hold one request of
    `options.max_model_len`, as vLLM does at start-up; pass False when that length was not asked for. release : name or alias
    of the engine preset, which says what it does with layers of several kinds; None: the preset of the options.
    measured : what a log states of the memory.
    Raises ScenarioError when the weights don't fit, the pool is too small, or a needed model or GPU is missing.
    """
    per_token, formula = _bytes_per_token(model, options)
    per_block = bytes_per_block_per_gpu(model, tp, options)
    pool = None
    if options.num_gpu_blocks_override is not None:
        blocks, items, source = options.num_gpu_blocks_override, (), "num_gpu_blocks_override"
    elif model is None or per_block is None:
        raise ScenarioError("engine.num_gpu_blocks_override: missing; without a model the KV pool can't be worked out")
    elif options.kv_cache_memory_bytes is not None:
        pool = options.kv_cache_memory_bytes
        items = (Item("KV pool", pool, f"kv_cache_memory_bytes = {gib(pool)} on each GPU"),)
        blocks, source = pool // per_block, "kv_cache_memory_bytes"
    elif gpu is None:
        raise ScenarioError("gpu: missing; the KV pool needs a GPU, num_gpu_blocks_override or kv_cache_memory_bytes")
    else:
        items = account(model, gpu, tp, options, measured)
        pool = sum(item.bytes for item in items)
        check_fit(model, gpu, tp, options, items, pool)
        items += (Item("KV pool", pool, f"what is left on each GPU; {pool:,} // {per_block:,} bytes a block"),)
        blocks = pool // per_block
        source = RULE.format(preset=options.preset, source=memory_rule(options.preset).source)
    hybrid = hybrid_pool(model, tp, options, release or options.preset, pool, blocks)
    if per_block and hybrid is not None and pool is not None and (aside := hybrid.states_aside(options.max_num_seqs)):
        items += (Item("states in a run", -aside.bytes, aside.formula),)
        blocks = (pool - aside.bytes) // per_block
    capacity = KvCapacity(int(blocks), options.block_size, per_token, per_block, items, source, formula, hybrid)
    _check_pool(capacity, options, check_max_model_len)
    return capacity


def _bytes_per_token(model: Model | None, options: EngineOptions) -> tuple[int | None, str]:
    if model is None:
        return None, ""
    width = model.kv_dtype_bytes(options.kv_cache_dtype)
    per_token = model.kv_bytes_per_token(width)
    index = f" + {model.index_layers} layers x {index_bytes(model.index_width)} bytes of index keys" if model.index_layers else ""
    if model.mixers:
        text = " + ".join(_mixer_bytes(one, width) for one in model.mixers if one.kv_bytes(1, width))
    elif model.kv_lora_rank:
        latent = f"{model.kv_lora_rank} latent + {model.qk_rope_head_dim} rotary"
        text = f"{model.layers} layers x ({latent}) x {width} bytes"
    else:
        text = f"2 x {model.layers} layers x {model.kv_heads} KV heads x {model.head_dim} head size x {width} bytes"
    return per_token, f"{text}{index} = {per_token:,} bytes a token"


def _mixer_bytes(one: Mixer, width: int) -> str:
    """What layers of one kind keep of a token, in words."""
    if one.latent:
        return f"{one.layers} layers x {one.latent} latent x {width} bytes"
    each = f"2 x {one.key_dim}" if one.key_dim == one.value_dim else f"({one.key_dim} + {one.value_dim})"
    return f"{one.layers} layers ({one.name}) x {one.kv_heads} KV heads x {each} x {width} bytes"


def bytes_per_block_per_gpu(model: Model | None, tp: int, options: EngineOptions) -> int | None:
    """Bytes of one block on each GPU: a stage's layers, this GPU's KV heads (or the whole latent)."""
    if model is None:
        return None
    per_token = model.kv_bytes_per_token_per_gpu(tp, model.kv_dtype_bytes(options.kv_cache_dtype))
    return per_token // options.pipeline_parallel_size * options.block_size


def _check_pool(capacity: KvCapacity, options: EngineOptions, check_max_model_len: bool) -> None:
    if capacity.usable_blocks < 1:
        raise NoRoom(
            f"engine: the KV pool holds {capacity.blocks} blocks of {capacity.block_size} tokens ({capacity.source}), "
            f"of which one is reserved; at least 2 are needed",
            reason="kv_pool_too_small",
        )
    longest, hybrid = options.max_model_len, capacity.hybrid
    if check_max_model_len and longest is not None and hybrid is not None:
        if hybrid.concurrency(longest) < 1:
            most = hybrid.longest()
            raise NoRoom(
                f"engine.max_model_len: one request of that length does not fit the KV pool (got {longest:,}): it needs "
                f"{hybrid.need(longest):,} of {hybrid.pages:,} pages ({capacity.source}); at most {most:,}, or 'auto'",
                reason="max_model_len_exceeds_kv_pool",
            )
        return
    if check_max_model_len and longest is not None and longest > capacity.usable_tokens:
        raise NoRoom(
            f"engine.max_model_len: one request of that length does not fit the KV pool (got {longest:,}): "
            f"{capacity.usable_blocks:,} usable blocks x {capacity.block_size} = {capacity.usable_tokens:,} tokens "
            f"({capacity.source}); at most {capacity.usable_tokens:,}, or 'auto'",
            reason="max_model_len_exceeds_kv_pool",
        )
