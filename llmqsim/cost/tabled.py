"""Operators whose times come from the residual tables, with the face of cost/operators.py."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from llmqsim.cost.coefficients import Kernels
from llmqsim.cost.measured import Measured, attention_key
from llmqsim.cost.moe import Experts
from llmqsim.cost.operators import AllReduce, DecodeAttention, Gemm, PrefillAttention
from llmqsim.cost.store import Store, device_of, shipped
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import Gpu
from llmqsim.hardware.weights import WEIGHT_BYTES

KERNELS_OF = {"sglang": ("sglang", "0.5.14")}
"""engine preset (up to the dash) to the backend and version whose kernels it takes, where that is not vLLM"""
INSTEAD = {"trtllm": {"moe": ("trtllm", "1.3.0rc20")}}
"""families that an engine takes from elsewhere than the rest. TensorRT-LLM's timings of linear layers and attention hold
launches and a quantisation of 10 to 15 us that its engine fuses or hides: with them, closed loops of Qwen3-32B come out
23 % too slow, with vLLM's 5 %"""
COLD_READ_SHARE = 0.93
"""most of a GPU's memory bandwidth that any kernel reaches on data that was not in its cache: H100's largest decode
batches reach 0.92. Timings repeat a call on the same weights and KV, which stay in a large L2 (L40S: 96 MB) and then come
faster than memory delivers; in a step every layer has its own"""
CONSTANTS_ERROR = "kernel error"
"""how the sentence about the constants' own errors begins; the tables bring theirs"""


@dataclass(frozen=True)
class TabledGemm(Gemm):
    """A linear layer; `weight_dtype` as in Measured.gemm_seconds, `plain` its arithmetic and traffic if not 16 bits."""

    measured: Measured | None = None
    weight_dtype: str = "bfloat16"
    plain: Gemm | None = None

    def work(self, m, n: int, k: int):
        """(FLOPs, bytes moved) of one call."""
        return self.plain.work(m, n, k) if self.plain else super().work(m, n, k)

    def seconds(self, m, n: int, k: int):
        """Seconds of one call for m rows; its weights come from memory."""
        timed = self.measured.gemm_seconds(m, n, k, self.weight_dtype)
        return np.maximum(timed, cold_read_s(WEIGHT_BYTES[self.weight_dtype] * n * k, self.measured.card))

    def formula(self, m: int, n: int, k: int) -> str:
        """The roofline of the constants alone with its numbers filled in, and what the timings make of it."""
        flops, moved = (float(part) for part in self.work(m, n, k))
        timed = float(self.seconds(m, n, k)) / float(self.roofline.seconds(flops, moved))
        return f"{self.roofline.formula(flops, moved)}, timed x {timed:.2f}"

    def with_weights(self, weight_dtype: str, plain: Gemm) -> TabledGemm:
        """The same for weights of another type, from its own timings where there are any."""
        return replace(self, weight_dtype=weight_dtype, plain=plain, roofline=plain.roofline)


@dataclass(frozen=True)
class TabledPrefill(PrefillAttention):
    """Causal attention; a chunk on a prefix costs the plain prefill of equal arithmetic, at least its KV's reading."""

    measured: Measured | None = None

    def busy_s(self, query, prefix, heads: int, kv_heads: int, head_dim: int, kv_bytes: int, batch=1, window=0):
        """Seconds of one layer without the launch. window : keys that a query sees at most, 0 for all."""
        dtype = "fp8" if kv_bytes == 1 else "bfloat16"
        whole = self.measured.prefill_seconds(query, prefix, heads, kv_heads, head_dim, dtype, window, batch)
        seen = np.minimum(prefix, window) if window else prefix
        _, _, kv = self.work(query, seen, heads, kv_heads, head_dim, kv_bytes, batch)
        busy = np.maximum(whole - self.roofline.t0_s, kv / self.kv_bytes_per_s)
        return np.where(np.asarray(query) > 0, busy, 0.0)


@dataclass(frozen=True)
class TabledDecode(DecodeAttention):
    """Decode attention."""

    measured: Measured | None = None

    def seconds(self, batch, context, heads: int, kv_heads: int, head_dim: int, kv_bytes: int, window=0):
        """Seconds of one layer, one call. window : keys that the token sees at most, 0 for all."""
        dtype = "fp8" if kv_bytes == 1 else "bfloat16"
        timed = self.measured.decode_seconds(batch, context, heads, kv_heads, head_dim, dtype, window)
        seen = np.minimum(context, window) if window else np.asarray(context, dtype=np.float64)
        read = 2.0 * kv_bytes * kv_heads * head_dim * np.asarray(batch, dtype=np.float64) * seen
        return np.maximum(timed, cold_read_s(read, self.measured.card))


@dataclass(frozen=True)
class TabledExperts(Experts):
    """Routed experts from timings, corrected to the experts that random routing touches."""

    measured: Measured | None = None
    weight_dtype: str = "bfloat16"

    def seconds(self, tokens):
        """Seconds of one layer."""
        tp, ep = (1, self.gpus) if self.whole else (self.gpus, 1)
        shape = (self.hidden, self.intermediate, self.per_token, self.experts, tp, ep)
        return self.measured.moe_seconds(tokens, *shape, self.weight_dtype)


@dataclass(frozen=True)
class TabledReduce(AllReduce):
    """All-reduce within a node, as the engine calls it inside a CUDA graph."""

    measured: Measured | None = None

    def seconds(self, message_bytes, gpus):
        """Seconds of one call; 0 for one GPU."""
        if np.all(np.equal(gpus, 1)):
            return np.zeros(np.shape(message_bytes))
        return self.measured.all_reduce_seconds(message_bytes, gpus)


def cold_read_s(read_bytes, card: Gpu):
    """Seconds that memory takes at least to deliver what no cache holds."""
    return read_bytes / (COLD_READ_SHARE * card.memory_bandwidth_bytes_per_s)


def tabled(kernels: Kernels, card: Gpu, preset: str = "vllm", store: Store | None = None) -> Kernels:
    """The same kernel families as physical forms with residual tables, the GPU's own or those of its nearest relative.

    preset : name of the engine preset, whose kernels are wanted: SGLang's, TensorRT-LLM's, or else vLLM's in the version
    of the GPU's coefficient file. store : where the fits are, None for those that ship; what is nearest to the wanted
    version there is taken.
    """
    data = read_preset(f"coefficients/{card.coefficients}.yaml")
    engine = preset.split("-")[0]
    own = tuple(data["backend"].split())
    backend, version = KERNELS_OF.get(engine, own)
    measured = Measured(card, backend, version, store or shipped(), INSTEAD.get(engine, {}))
    kv_dtype = "fp8" if kernels.kv_bytes == 1 else "bfloat16"
    launch_s = measured.launch_s("prefill_attention", attention_key(kv_dtype, 128, 0))
    prefill = replace(kernels.prefill, roofline=replace(kernels.prefill.roofline, t0_s=launch_s))
    own_link = getattr(card, "interconnect_latency_s", None) is None
    return replace(
        kernels,
        gemm=_as(TabledGemm, kernels.gemm, measured),
        prefill=_as(TabledPrefill, prefill, measured),
        decode=_as(TabledDecode, kernels.decode, measured),
        all_reduce=_as(TabledReduce, kernels.all_reduce, measured) if own_link else kernels.all_reduce,
        provenance=_notes(kernels.provenance, card),
        measured=measured,
    )


def _notes(provenance: tuple[str, ...], card: Gpu) -> tuple[str, ...]:
    """What remains true of the constants' provenance once tables are on top; the tables say their own."""
    device, borrowed = device_of(card), device_of(replace(card, name=""))
    kept = tuple(note for note in provenance if not note.startswith(CONSTANTS_ERROR))
    if card.relative not in ("", card.coefficients):
        return (f"{card.name} is not measured: kernel timings of {device} on its own bandwidth and FLOP/s", *kept[1:])
    return kept if device == borrowed else (f"kernel timings of {device}, bfloat16", *kept[1:])


def _as(kind: type, plain, measured: Measured):
    """`plain` as an operator of a richer kind, its own fields kept."""
    own = {field.name: getattr(plain, field.name) for field in fields(plain)}
    return kind(**own, measured=measured)
