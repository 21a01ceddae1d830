"""How many KV blocks fit on a replica's GPUs, item by item.

Rules: docs/engine_presets.md, which compares the result with every measured server (vLLM's rule was derived from the KV
blocks that vLLM 0.15.1 logged on five deployments); what each engine takes is in presets/engines.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmqsim.errors import NoRoom, ScenarioError
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.mixers import Mixer, index_bytes
from llmqsim.hardware.model import Model
from llmqsim.hardware.serving import memory_rule
from llmqsim.hardware.weights import padding_bytes
from llmqsim.kv.measured import MeasuredMemory
from llmqsim.kv.pools import HybridPool, hybrid_pool
from llmqsim.options import EngineOptions

GIB = 1024**3
LARGE_VOCABULARY = 128_000
PROFILED_TOKENS = 2048
"""tokens of the dummy run that the engines' base reserve was read off"""
RULE = "capacity rule of {preset}: {source}"
MOST_GPUS = 64
"""GPUs of one replica that a layout is sought in"""
LARGE_STEP = "activations of a large step"
NOTHING_MEASURED = MeasuredMemory()


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
        items = (Item("KV pool", pool, f"kv_cache_memory_bytes = {_gib(pool)} on each GPU"),)
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


def account(
    model: Model, gpu: Gpu, tp: int, options: EngineOptions, measured: MeasuredMemory = NOTHING_MEASURED
) -> tuple[Item, ...]:
    """What one GPU has for everything, and what is taken from it before the KV pool."""
    rule, share, usable = memory_rule(options.preset), options.gpu_memory_utilization, gpu.usable_memory_bytes
    whole = rule.rule == "trtllm"
    text = f"{_gib(usable)} usable on {gpu.name}" + ("" if whole else f" x {share:g} gpu_memory_utilization")
    items = [Item("memory", usable if whole else int(usable * share), text)]
    if measured.weights is not None:
        items.append(Item("weights", -measured.weights, "engine.memory.weights"))
    else:
        items.append(_weights(model, tp, options))
        if model.vision_bytes:
            items.append(Item("vision", -model.vision_bytes, "vision tower and its part of the start-up profile"))
    items += _stated(measured) if measured.replaces_reserve else _reserve(model, tp, options)
    items += _graphs(model, options, measured)
    if whole:
        left = sum(item.bytes for item in items)
        items.append(Item("left free", -int(max(0, left) * (1 - share)), f"1 - {share:g} of what weights leave"))
    return tuple(items)


def _stated(measured: MeasuredMemory) -> list[Item]:
    """What the log of a server says that it keeps for running."""
    told = (("activations", "activation", measured.activation), ("context and communication", "other", measured.other))
    return [Item(name, -count, f"engine.memory.{key}") for name, key, count in told if count is not None]


def _graphs(model: Model, options: EngineOptions, measured: MeasuredMemory) -> list[Item]:
    """CUDA graphs, where they count against the pool."""
    if measured.graphs is not None:
        return [Item("CUDA graphs", -measured.graphs, "engine.memory.graphs")]
    rule, graphs = memory_rule(options.preset), len(options.cudagraph_capture_sizes)
    if not (rule.graph_bytes_per_layer and graphs):
        return []
    stage = model.layers // options.pipeline_parallel_size
    text = f"{graphs} sizes x {stage} layers x {rule.graph_bytes_per_layer:,} bytes"
    return [Item("CUDA graphs", -graphs * stage * rule.graph_bytes_per_layer, text)]


def _weights(model: Model, tp: int, options: EngineOptions) -> Item:
    pp = options.pipeline_parallel_size
    each = "2 bytes" if model.weight_dtype == "bfloat16" else f"as {model.weight_dtype} where quantised"
    gpus = f"{tp} GPU(s)" + (f" x {pp} stages, the fullest of them" if pp > 1 else "")
    text = f"{model.parameters:,} parameters x {each} over {gpus}"
    if padding := padding_bytes(model, tp):
        text += f"; {_gib(round(padding / tp / pp / options.data_parallel_size))} of it pads {model.weight_dtype} experts"
    return Item("weights", -model.weight_bytes(tp, pp, options.data_parallel_size), text)


def _reserve(model: Model, tp: int, options: EngineOptions) -> list[Item]:
    """What the engine keeps for running: context, activations, communication, sampling, graphs."""
    rule, items = memory_rule(options.preset), []
    if rule.base_bytes:
        items.append(Item("activations, graphs, context", -rule.base_bytes, _gib(rule.base_bytes)))
    if rule.collectives_bytes and tp * options.pipeline_parallel_size > 1:
        text = f"{_gib(rule.collectives_bytes)} with more than one GPU"
        items.append(Item("collectives", -rule.collectives_bytes, text))
    if rule.large_vocabulary_bytes and model.vocab >= LARGE_VOCABULARY:
        text = f"{_gib(rule.large_vocabulary_bytes)} for a vocabulary of {model.vocab:,} (>= {LARGE_VOCABULARY:,})"
        items.append(Item("large vocabulary", -rule.large_vocabulary_bytes, text))
    more = options.max_num_batched_tokens - PROFILED_TOKENS
    if rule.base_bytes and more > 0:
        each = activation_bytes_per_token(model, tp)
        items.append(Item(LARGE_STEP, -more * each, f"{more:,} tokens above 2,048 x {each:,} bytes"))
    for tower in model.towers if rule.base_bytes else ():
        count = tower.profile_bytes(options.max_num_batched_tokens)
        text = f"encodes images of {max(options.max_num_batched_tokens, tower.item_tokens):,} tokens at start-up"
        items.append(Item(f"{tower.name} at start-up", -count, text))
    return items


def activation_bytes_per_token(model: Model, tp: int) -> int:
    """Bytes of one token at the widest place of a layer: residual and input, and an MLP's gate, up and product.

    With experts each chosen one brings its own three and a row of output. Physical, not fitted; it brings the one
    measured server with a large budget (Qwen3-14B, 8,192 tokens) within 2 %.
    """
    width = 3 * model.intermediate // tp
    if model.experts:
        chosen = model.experts_per_token * (3 * model.moe_intermediate // tp + model.hidden)
        width = max(width if model.dense_layers else 0, chosen + 3 * model.shared_intermediate // tp)
    return model.dtype_bytes * (2 * model.hidden + width)


def check_fit(
    model: Model, gpu: Gpu, tp: int, options: EngineOptions, items: tuple[Item, ...], pool: int
) -> None:
    """Raise NoRoom where nothing is left for KV, naming what takes the memory and what would fit."""
    if pool > 0:
        return
    budget, taken = items[0], " + ".join(f"{item.name} {_gib(-item.bytes)}" for item in items[1:])
    pp = options.pipeline_parallel_size
    spread = f"{tp * pp} x {gpu.name}" + (f" in {pp} stages" if pp > 1 else "")
    step = sum(-item.bytes for item in items if item.name == LARGE_STEP)
    if pool + step > 0:
        fits = PROFILED_TOKENS + (pool + step - 1) // activation_bytes_per_token(model, tp)
        raise NoRoom(
            f"engine.max_num_batched_tokens: the activations of such a step leave no memory for KV on "
            f"{spread} (got {options.max_num_batched_tokens:,}): {_gib(step)} of {_gib(pool + step)}; at most {fits:,}, "
            f"and fewer leave room for requests",
            reason="activations_do_not_fit",
        )
    raise NoRoom(
        f"tensor_parallel_size: {model.name} does not fit on {spread} (got {tp}): {taken} "
        f"= {_gib(budget.bytes - pool)} on each GPU, and {budget.formula} = {_gib(budget.bytes)}; "
        f"take more GPUs a replica{_smallest(model, gpu, options)}, a larger GPU or a smaller model",
        reason="weights_do_not_fit",
    )


def smallest_layout(
    model: Model, gpu: Gpu, options: EngineOptions, most: int = MOST_GPUS, above: int = 0
) -> tuple[int, int] | None:
    """(tensor, pipeline) parallel sizes of the fewest GPUs whose memory leaves something for KV; None up to `most`.

    above : only layouts of more GPUs than this.

    Tensor parallelism goes first, in powers of two up to one node; options but for the stages are kept.
    """
    sizes = [2**power for power in range(most.bit_length())]
    layouts = sorted(((tp, pp) for tp in sizes for pp in sizes if above < tp * pp <= most), key=lambda size: (size[0] * size[1], size[1]))
    for tp, pp in layouts:
        staged = replace(options, pipeline_parallel_size=pp)
        faults = model.parallel_faults(tp, pp, options.enable_expert_parallel and model.experts > 0)
        if not faults and sum(item.bytes for item in account(model, gpu, tp, staged)) > 0:
            return tp, pp
    return None


def _smallest(model: Model, gpu: Gpu, options: EngineOptions) -> str:
    found = smallest_layout(model, gpu, options)
    if found is None:
        return f" (no layout of up to {MOST_GPUS} fits)"
    stages = f" with pipeline_parallel_size {found[1]}" if found[1] > 1 else ""
    return f" (the smallest that fits: tensor_parallel_size {found[0]}{stages})"


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


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
