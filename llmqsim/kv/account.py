"""What of a GPU's memory is taken before the KV pool, item by item, and the smallest layout that leaves something.

Rules: docs/engine_presets.md, which compares the result with every measured server; what each engine takes is in
presets/engines.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmqsim.errors import NoRoom
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.model import Model
from llmqsim.hardware.serving import memory_rule
from llmqsim.hardware.weights import padding_bytes
from llmqsim.kv.measured import MeasuredMemory
from llmqsim.options import EngineOptions

GIB = 1024**3
LARGE_VOCABULARY = 128_000
PROFILED_TOKENS = 2048
"""tokens of the dummy run that the engines' base reserve was read off"""
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


def account(
    model: Model, gpu: Gpu, tp: int, options: EngineOptions, measured: MeasuredMemory = NOTHING_MEASURED
) -> tuple[Item, ...]:
    """What one GPU has for everything, and what is taken from it before the KV pool."""
    rule, share, usable = memory_rule(options.preset), options.gpu_memory_utilization, gpu.usable_memory_bytes
    whole = rule.rule == "trtllm"
    text = f"{gib(usable)} usable on {gpu.name}" + ("" if whole else f" x {share:g} gpu_memory_utilization")
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
        text += f"; {gib(round(padding / tp / pp / options.data_parallel_size))} of it pads {model.weight_dtype} experts"
    return Item("weights", -model.weight_bytes(tp, pp, options.data_parallel_size), text)


def _reserve(model: Model, tp: int, options: EngineOptions) -> list[Item]:
    """What the engine keeps for running: context, activations, communication, sampling, graphs."""
    rule, items = memory_rule(options.preset), []
    if rule.base_bytes:
        items.append(Item("activations, graphs, context", -rule.base_bytes, gib(rule.base_bytes)))
    if rule.collectives_bytes and tp * options.pipeline_parallel_size > 1:
        text = f"{gib(rule.collectives_bytes)} with more than one GPU"
        items.append(Item("collectives", -rule.collectives_bytes, text))
    if rule.large_vocabulary_bytes and model.vocab >= LARGE_VOCABULARY:
        text = f"{gib(rule.large_vocabulary_bytes)} for a vocabulary of {model.vocab:,} (>= {LARGE_VOCABULARY:,})"
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
    budget, taken = items[0], " + ".join(f"{item.name} {gib(-item.bytes)}" for item in items[1:])
    pp = options.pipeline_parallel_size
    spread = f"{tp * pp} x {gpu.name}" + (f" in {pp} stages" if pp > 1 else "")
    step = sum(-item.bytes for item in items if item.name == LARGE_STEP)
    if pool + step > 0:
        fits = PROFILED_TOKENS + (pool + step - 1) // activation_bytes_per_token(model, tp)
        raise NoRoom(
            f"engine.max_num_batched_tokens: the activations of such a step leave no memory for KV on "
            f"{spread} (got {options.max_num_batched_tokens:,}): {gib(step)} of {gib(pool + step)}; at most {fits:,}, "
            f"and fewer leave room for requests",
            reason="activations_do_not_fit",
        )
    raise NoRoom(
        f"tensor_parallel_size: {model.name} does not fit on {spread} (got {tp}): {taken} "
        f"= {gib(budget.bytes - pool)} on each GPU, and {budget.formula} = {gib(budget.bytes)}; "
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


def gib(count: int) -> str:
    """Bytes as GiB with two digits."""
    return f"{count / GIB:.2f} GiB"
