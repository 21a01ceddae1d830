"""Which shapes may be measured: a grid for each family, either of common model sizes or of the models asked for.

A `Space` says how far apart two shapes are: coordinates in which a distance of 1 is about as far as a timing tells
something about its neighbour. Tokens come in pairs 2^i, 2^i + 1, because tiles end there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmqsim.hardware.model import Model

Shape = dict[str, Any]
EDGE = 0.6
"""how far, in lengths of the space, the two sides of a tile's edge are apart"""
TOKENS = (1, 2, 4, 8, 16, 17, 32, 33, 48, 64, 65, 96, 128, 129, 192, 256, 257, 384, 512, 513, 768, 1024, 1025, 1536,
          2048, 2049, 3072, 4096, 4097, 8192, 16384)  # fmt: skip
SIDES = (512, 1024, 2048, 3072, 4096, 5120, 6144, 8192, 11008, 14336, 28672)
HEADS = ((32, 8), (32, 32), (64, 8), (16, 2), (8, 8), (8, 1), (4, 1), (40, 40))
"""(query heads, KV heads) on one GPU, where no model is named"""
HEAD_DIMS = (128, 64)
QUERIES = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREFIXES = (0, 512, 2048, 8192, 32768)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
HISTORIES = tuple(2**i - 1 for i in range(4, 18))
EXPERTS = ((4096, 14336, 2, 8), (2048, 768, 8, 128), (7168, 2048, 8, 256))
"""(hidden, inter, experts a token, experts) of Mixtral 8x7B, Qwen3 30B-A3B, DeepSeek V3"""
MESSAGES = tuple(2**i for i in range(10, 29))
MOST_KV_TOKENS = 2**20
MOST_PREFILL_TOKENS = 2**16
LAYER_OPS = ("emb", "input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act", "add")
"""the projections of a layer are GEMMs and stand in that table"""


@dataclass(frozen=True)
class Deployments:
    """What to focus on: models and tensor parallel sizes. No models: the common sizes above."""

    models: tuple[Model, ...] = ()
    tensor_parallel_sizes: tuple[int, ...] = (1,)

    def pairs(self) -> Iterator[tuple[Model, int]]:
        """Every model with every size."""
        return product(self.models, self.tensor_parallel_sizes)

    def sides(self) -> list[tuple[int, int]]:
        """(n, k) of the weight matrices on one GPU, LM head included."""
        if not self.models:
            return list(product(SIDES, SIDES))
        found = []
        for model, tp in self.pairs():
            width, kv_width = model.query_width // tp, model.kv_heads_per_gpu(tp) * model.head_dim
            inter = model.intermediate // tp
            ups = (2 if model.gated else 1) * inter
            found += [(width + 2 * kv_width, model.hidden), (model.hidden, width), (ups, model.hidden)]
            found += [(model.hidden, inter), (-(-model.vocab // tp), model.hidden)]
        return _unique(found)

    def heads(self) -> list[tuple[int, int, int]]:
        """(query heads, KV heads, head size) on one GPU."""
        if not self.models:
            return [(heads, kv, size) for size in HEAD_DIMS for heads, kv in HEADS]
        return _unique([(m.heads // tp, m.kv_heads_per_gpu(tp), m.head_dim) for m, tp in self.pairs()])

    def named_models(self) -> tuple[Model, ...]:
        """Models for the operators that are listed by model."""
        if self.models:
            return self.models
        from llmqsim.hardware.model import model

        return (model("llama-3.1-8b"), model("llama-2-70b"))


@dataclass(frozen=True)
class Space:
    """Shapes of one table with their coordinates."""

    candidates: Callable[[Deployments, int], list[Shape]]
    """of a deployment on so many devices"""
    coordinates: Callable[[Shape], tuple[float, ...]]
    share: float
    """of the budget, against the other tables'"""


def octaves(count: float, length: float) -> float:
    """log2 of `count` in units of `length` octaves."""
    return math.log2(count) / length


def past_edge(tokens: int) -> float:
    """Coordinate that tells 2^i + 1 from 2^i, from 16 on."""
    return EDGE if tokens > 16 and (tokens - 1) & (tokens - 2) == 0 else 0.0


def _unique(items: list) -> list:
    return list(dict.fromkeys(items))


def _gemm(what: Deployments, _: int) -> list[Shape]:
    return [{"op": "gemm", "m": m, "n": n, "k": k} for (n, k), m in product(what.sides(), TOKENS)]


def _attention(op: str, heads: tuple[int, int, int], **own: int) -> Shape:
    query, kv, size = heads
    return {"op": op, **own, "num_heads": query, "num_kv_heads": kv, "head_dim": size, "window": 0}


def _context(what: Deployments, _: int) -> list[Shape]:
    found = []
    for heads, batch, q, prefix in product(what.heads(), BATCHES[:5], QUERIES, PREFIXES):
        if batch * (q + prefix) <= MOST_PREFILL_TOKENS:
            found.append(_attention("attention_context", heads, batch=batch, q_len=q, kv_len=q + prefix))
    return found


def _decode(what: Deployments, _: int) -> list[Shape]:
    found = []
    for heads, batch, history in product(what.heads(), BATCHES, HISTORIES):
        if batch * (history + 1) <= MOST_KV_TOKENS:
            found.append(_attention("attention_decode", heads, batch=batch, kv_history=history))
    return found


def _moe(_: Deployments, __: int) -> list[Shape]:
    found = []
    for (hidden, inter, topk, experts), tokens, tp in product(EXPERTS, TOKENS, (1, 4)):
        shape = {"op": "moe", "num_tokens": tokens, "hidden": hidden, "inter": inter, "topk": topk}
        found.append(shape | {"num_experts": experts, "tp": tp, "ep": 1, "distribution": "balanced"})
    return found


def _mla(_: Deployments, __: int) -> list[Shape]:
    found = []
    for op, heads, tokens in product(("mla_gen_pre", "mla_gen_post"), (16, 32, 128), TOKENS):
        found.append({"op": op, "batch": tokens, "q_len": 1, "kv_history": 0, "num_heads": heads})
    for heads, batch, history in product((16, 32, 128), BATCHES, HISTORIES):
        if batch * (history + 1) <= MOST_KV_TOKENS:
            found.append({"op": "mla_decode", "batch": batch, "q_len": 1, "kv_history": history, "num_heads": heads})
    return found


def _quantize(what: Deployments, _: int) -> list[Shape]:
    widths = _unique([k for _, k in what.sides()])
    return [{"op": "fp8_scale_apply", "m": m, "k": k} for k, m in product(widths, TOKENS)]


def _layer_ops(what: Deployments, _: int) -> list[Shape]:
    found = []
    for model, tp, op, tokens in product(what.named_models(), what.tensor_parallel_sizes, LAYER_OPS, TOKENS):
        shape = {"op": op, "model": model.name, "num_tokens": tokens, "tp": tp, "n_head": model.heads}
        shape |= {"n_kv_head": model.kv_heads, "hidden": model.hidden, "inter": model.intermediate}
        found.append(shape | {"vocab": model.vocab, "gated": int(model.gated)})
    return found


def _collectives(_: Deployments, devices: int) -> list[Shape]:
    counts = [count for count in (2, 4, 8) if count <= devices]
    ops = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
    return [_link(op, count, size) for op, count, size in product(ops, counts, MESSAGES)]


def _p2p(_: Deployments, devices: int) -> list[Shape]:
    return [_link("send_recv", 2, size) for size in MESSAGES] if devices >= 2 else []


def _link(op: str, count: int, size: int) -> Shape:
    return {"op": op, "num_gpus": count, "nodes": 1, "message_bytes": size}


def _heads_at(s: Shape) -> tuple[float, ...]:
    return octaves(s["num_heads"], 2), octaves(s["num_kv_heads"], 2), octaves(s["head_dim"], 1)


def _op_at(s: Shape, names: tuple[str, ...]) -> tuple[float, ...]:
    """Operators of one table tell nothing about each other: far apart, each on an axis of its own."""
    return tuple(4.0 * (s["op"] == name) for name in names)


SPACES: dict[str, Space] = {
    "gemm": Space(
        _gemm, lambda s: (octaves(s["m"], 1), past_edge(s["m"]), octaves(s["n"], 1.5), octaves(s["k"], 2)), 30
    ),
    "attention_decode": Space(
        _decode, lambda s: (octaves(s["batch"], 1.5), octaves(s["kv_history"] + 1, 1.5), *_heads_at(s)), 20
    ),
    "attention_context": Space(
        _context,
        lambda s: (octaves(s["batch"], 2), octaves(s["q_len"], 1), octaves(s["kv_len"] / s["q_len"], 1), *_heads_at(s)),
        20,
    ),
    "layer_ops": Space(
        _layer_ops,
        lambda s: (octaves(s["num_tokens"], 2), octaves(s["hidden"], 1), octaves(s["tp"], 1), *_op_at(s, LAYER_OPS)),
        8,
    ),
    "moe": Space(
        _moe, lambda s: (octaves(s["num_tokens"], 1), octaves(s["num_experts"], 1), octaves(s["tp"], 1)), 8
    ),
    "collectives": Space(
        _collectives,
        lambda s: (
            octaves(s["message_bytes"], 1),
            octaves(s["num_gpus"], 0.5),
            *_op_at(s, ("all_gather", "reduce_scatter", "alltoall")),
        ),
        8,
    ),
    "quantize": Space(_quantize, lambda s: (octaves(s["m"], 2), past_edge(s["m"]), octaves(s["k"], 2)), 3),
    "p2p": Space(_p2p, lambda s: (octaves(s["message_bytes"], 1),), 2),
    "mla": Space(
        _mla,
        lambda s: (
            octaves(s["batch"], 1.5),
            octaves(s["kv_history"] + 1, 1.5),
            octaves(s["num_heads"], 1),
            *_op_at(s, ("mla_gen_pre", "mla_gen_post")),
        ),
        3,
    ),
}
"""spaces by table"""
