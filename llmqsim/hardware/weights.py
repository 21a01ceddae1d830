"""Weights of a model, part by part: how many parameters, in which type, and on which GPUs they lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmqsim.hardware.mixers import Mixer
    from llmqsim.hardware.model import Model

WEIGHT_BYTES: dict[str, float] = {
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 128**2,
    "int4": 0.5 + 2.5 / 128,
    "int4_g32": 0.5 + 2 / 32,
    "int8": 1.0,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}
"""bytes of a parameter with its scales: one float32 for 128 x 128 (DeepSeek), a float16 scale and a 4-bit zero point
for 128 (AWQ, GPTQ), a 16-bit scale for 32, one byte for 32 (OCP MX) or for 16 (NVFP4). Per-channel scales of plain fp8 are below 0.1 % and left out."""


PADDED, PADDED_COLUMNS, PADDED_ROWS = ("mxfp4",), 128, 256
"""types of experts that kernels pad, and to multiples of what: each GPU's columns, the hidden width"""


@dataclass(frozen=True)
class Part:
    """Parameters of one kind, all layers together.

    split : "tp" divided over the tensor-parallel GPUs, "experts" divided too (by columns, or whole experts with expert
    parallelism), "whole" on each GPU. inside : in the layers, so divided over pipeline stages; else on one of them.
    """

    name: str
    parameters: int
    dtype: str
    split: str
    inside: bool = True
    matrices: tuple[tuple[int, int, int], ...] = ()
    """(outputs, inputs, layers) of what a step multiplies, where no dimension of the model says so"""

    @property
    def bytes(self) -> float:
        """Bytes of the whole part."""
        return self.parameters * WEIGHT_BYTES[self.dtype]


def parts(m: Model) -> Iterator[Part]:
    """Every weight of the model, once."""
    types = linear_dtypes(m)
    attention, linear = types["attention"], types["MLP"]
    for mixer in m.mixers:
        yield from _mixer(mixer, types)
    if not m.mixers:
        yield Part("attention", m.layers * m.attention_parameters(), attention, "tp")
    if m.kv_lora_rank and not m.mixers:
        yield Part("latent projections", m.layers * latent_projections(m), attention, "whole")
    if m.dense_mlp_layers:
        yield Part("MLP", m.dense_mlp_layers * mlp(m, m.intermediate), linear, "tp")
    if m.wide_layers:
        yield Part("wider MLPs", m.wide_layers * mlp(m, m.intermediate), linear, "tp")
    if m.experts:
        yield Part("experts", m.moe_layers * m.experts * expert(m), m.weight_dtype, "experts")
        yield Part("router", m.moe_layers * (m.hidden + m.router_bias) * m.experts, "bfloat16", "whole")
    if m.shared_intermediate:
        shared = mlp(m, m.shared_intermediate) + (m.hidden if m.shared_gate else 0)
        yield Part("shared experts", m.moe_layers * shared, linear, "tp")
    yield Part("norms", m.norm_parameters(), "bfloat16", "whole")
    yield Part("embedding", m.vocab * m.hidden, "bfloat16", "tp", inside=False)
    if not m.tied_embeddings:
        yield Part("LM head", m.vocab * m.hidden, "bfloat16", "tp", inside=False)
    if m.position_rows:
        yield Part("positions", m.position_rows * m.hidden, "bfloat16", "whole", inside=False)
    yield from m.extra


def _mixer(mixer: Mixer, types: Mapping[str, str]) -> Iterator[Part]:
    """The matrices of layers of one kind, and what in them stays in 16 bits."""
    dtype = types["states" if mixer.kind == "state" else "attention"]
    whole = sum(one.parameters for one in mixer.projections if one.split == "whole")
    yield Part(mixer.name, mixer.layers * (mixer.parameters - mixer.vectors - whole), dtype, "tp")
    if whole:
        yield Part(f"{mixer.name}, not split", mixer.layers * whole, dtype, "whole")
    yield Part(f"{mixer.name}, vectors", mixer.layers * mixer.vectors, "bfloat16", "tp")


def expert(m: Model) -> int:
    """Parameters of one routed expert."""
    if not m.expert_hidden:
        return mlp(m, m.moe_intermediate)
    return (3 if m.gated else 2) * m.expert_hidden * m.moe_intermediate


def mlp(m: Model, width: int) -> int:
    """Parameters of one MLP or expert of `width` columns."""
    ups = (2 if m.gated else 1) * (m.hidden + m.mlp_bias) * width
    return ups + (width + m.mlp_bias) * m.hidden


def latent_projections(m: Model) -> int:
    """Parameters of the down-projections of one MLA layer, which every GPU holds whole."""
    return m.hidden * (m.kv_lora_rank + m.qk_rope_head_dim) + m.hidden * m.q_lora_rank


def bytes_per_gpu(m: Model, tp: int, pp: int, dp: int = 1) -> int:
    """Bytes of weights on the fullest GPU: an equal share of the layers, and the embedding or the LM head.

    dp : replicas that share one set of experts.
    """
    inside = [part for part in parts(m) if part.inside]
    split = sum(part.bytes / (dp if part.split == "experts" else 1) for part in inside if part.split != "whole")
    split += padding_bytes(m, tp) / dp
    each = WEIGHT_BYTES[linear_dtypes(m)["attention"]]
    copies = m.kv_heads_per_gpu(tp) * tp - m.kv_heads
    if copies and not m.kv_lora_rank and not m.mixers:
        split += 2 * copies * m.head_dim * (m.hidden + m.qkv_bias) * m.layers * each
    for one in m.mixers:
        if one.kind != "state" and not one.latent and not one.shared:
            copies = one.heads_per_gpu(tp) * tp - one.kv_heads
            split += copies * (one.key_dim + one.value_dim) * m.hidden * one.layers * each
    whole = sum(part.bytes for part in inside if part.split == "whole")
    ends = [part for part in parts(m) if not part.inside]
    if pp > 1:  # the first stage holds the embedding and the towers, the last the LM head
        ends = [part for part in ends if part.name != "LM head"] if m.extra else ends[:1]
    split_ends = sum(part.bytes for part in ends if part.split == "tp")
    whole_ends = sum(part.bytes for part in ends if part.split == "whole")
    return math.ceil((split / pp + split_ends) / tp) + math.ceil(whole / pp + whole_ends)


def padding_bytes(m: Model, tp: int) -> float:
    """Bytes, all GPUs together, by which the kernels' padding widens experts in 4-bit floats (gpt-oss: 2,880 columns).

    The hidden width is rounded up to a multiple of 256 and each GPU's columns to one of 128 (vLLM's Marlin kernels, from
    memory). It brings gpt-oss-120b on one H100 to 65.8 GiB (start-up logs: 64.4 to 66.0; the checkpoint has 60.8) and
    gpt-oss-20b on one A100 to 13.66 (13.72).
    """
    if m.weight_dtype not in PADDED or not m.experts:
        return 0.0
    inner, outer = m.moe_intermediate, m.expert_hidden or m.hidden
    wide = -(-inner // (tp * PADDED_COLUMNS)) * PADDED_COLUMNS * tp / inner
    wide *= -(-outer // PADDED_ROWS) * PADDED_ROWS / outer
    return m.moe_layers * m.experts * expert(m) * (wide - 1) * WEIGHT_BYTES[m.weight_dtype]


def linear_dtypes(m: Model) -> dict[str, str]:
    """Types of the attention's and the dense MLPs' matrices: mxfp4 quantises the experts alone (gpt-oss)."""
    linear = "bfloat16" if m.weight_dtype == "mxfp4" else m.weight_dtype
    attention = m.attention_dtype or linear
    return {"attention": attention, "states": m.state_dtype or linear, "MLP": m.linear_dtype or linear}
