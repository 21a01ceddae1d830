"""From a coefficient file to the kernel families of one GPU, with the envelope they were measured in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmqsim.cost.measured import Measured
from llmqsim.cost.operators import AllReduce, DecodeAttention, Elementwise, Gemm, PrefillAttention, Roofline
from llmqsim.errors import ScenarioError
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import Gpu


@dataclass(frozen=True)
class Derate:
    """Slow-down of the linear operators under sustained load: none up to `start`, `share` from `full` tokens on."""

    share: float
    start_tokens: int
    full_tokens: int


@dataclass(frozen=True)
class Kernels:
    """All kernel families of one GPU and KV data type."""

    gemm: Gemm
    prefill: PrefillAttention
    decode: DecodeAttention
    elementwise: Elementwise
    all_reduce: AllReduce
    derate: Derate
    kv_bytes: int
    eight_bit_speedup: float
    """the GPU's 8-bit over its 16-bit arithmetic; 1 without 8-bit units"""
    provenance: tuple[str, ...]
    """sentences: what was measured where, how well it fits, and what was borrowed"""
    box: Mapping[str, float]
    """highest measured value by axis name"""
    measured: Measured | None = None
    """the fitted configurations behind the families, once cost/tabled.py has put residual tables on them"""


def load_kernels(gpu: Gpu, kv_bytes: int) -> Kernels:
    """The kernel families fitted for `gpu`, or for the relative whose efficiencies it takes.

    kv_bytes : bytes of one KV element. Efficiencies are shares of the GPU's own peaks, so a relative's bandwidth and
    FLOP/s never enter. Raises ScenarioError for a GPU without coefficients.
    """
    try:
        data = read_preset(f"coefficients/{gpu.coefficients}.yaml")
    except FileNotFoundError:
        raise ScenarioError(f"gpu: no coefficients for {gpu.name} (looked for '{gpu.coefficients}')") from None
    families = data["families"]
    suffix = "_fp8_kv" if kv_bytes == 1 else ""
    prefill = families.get("prefill_attention" + suffix, families["prefill_attention"])["constants"]
    decode = families.get("decode_attention" + suffix, families["decode_attention"])["constants"]
    notes = list(_provenance(data, gpu))
    if suffix and "decode_attention" + suffix not in families:
        notes.append("no 8-bit KV timings for this GPU: the 16-bit efficiencies are used with half the KV bytes")
    return Kernels(
        gemm=Gemm(_roofline(families["gemm"]["constants"], gpu)),
        prefill=PrefillAttention(
            _roofline(prefill, gpu), prefill["diagonal_tokens"], gpu.multiprocessors, _roofline(decode, gpu).bytes_per_s
        ),
        decode=DecodeAttention(
            _roofline(decode, gpu),
            decode["floor_tokens"],
            decode["per_block_s"],
            decode["grouped_t0_s"],
            decode["unsplit_blocks_per_multiprocessor"] * gpu.multiprocessors,
        ),
        elementwise=Elementwise(_roofline(families["elementwise"]["constants"], gpu)),
        all_reduce=_all_reduce(families["all_reduce"]["constants"], gpu),
        derate=Derate(**{key: data["derate"][key] for key in ("share", "start_tokens", "full_tokens")}),
        kv_bytes=kv_bytes,
        eight_bit_speedup=gpu.flops_per_s.get("fp8", 0.0) / gpu.flops_per_s["bfloat16"] or 1.0,
        provenance=tuple(notes),
        box={axis: float(value) for axis, value in data["box"].items()},
    )


def _roofline(constants: Mapping[str, Any], gpu: Gpu) -> Roofline:
    return Roofline(
        t0_s=constants["t0_s"],
        flops_per_s=gpu.flops_per_s["bfloat16"] * constants["compute_efficiency"],
        bytes_per_s=gpu.memory_bandwidth_bytes_per_s * constants["memory_efficiency"],
        overlap=constants["overlap"],
    )


def _all_reduce(constants: Mapping[str, Any], gpu: Gpu) -> AllReduce:
    """As fitted over NVLink; over a link with a latency of its own a ring at that latency and its full bandwidth."""
    if gpu.interconnect_latency_s is not None:
        link = Roofline(gpu.interconnect_latency_s, 1.0, gpu.interconnect_bytes_per_s)
        small = None if gpu.interconnect_small is None else Roofline(gpu.interconnect_small[0], 1.0, gpu.interconnect_small[1])
        return AllReduce(link, 0.0, link, direct_bytes=0, small=small)
    direct, library = constants["direct"], constants["library"]
    return AllReduce(_link(direct, gpu), direct["second_stage_s"], _link(library, gpu))


def _link(constants: Mapping[str, Any], gpu: Gpu) -> Roofline:
    rate = gpu.interconnect_bytes_per_s * constants["link_efficiency"]
    return Roofline(t0_s=constants["t0_s"], flops_per_s=1.0, bytes_per_s=rate)


def error_sentence(held_out: Mapping[str, Mapping[str, float]]) -> str:
    """How far the fit is off, in one phrase, with the figures of each kernel family in brackets."""
    medians, worst = ([e[key] for e in held_out.values()] for key in ("median_percent", "p90_percent"))
    each = ", ".join(f"{name} {e['median_percent']:g}/{e['p90_percent']:g} %" for name, e in held_out.items())
    return (
        f"kernel error on unseen shapes: median {min(medians):.0f} to {max(medians):.0f} %, "
        f"P90 {min(worst):.0f} to {max(worst):.0f} % ({each})"
    )


def _provenance(data: Mapping[str, Any], gpu: Gpu) -> tuple[str, ...]:
    own = f"kernel timings of {data['measured_on']}, {data['backend']}, {data['dtype']}"
    if gpu.name != data["gpu"]:
        own = f"{gpu.name} is not measured: efficiencies of {data['gpu']} on its own bandwidth and FLOP/s ({own})"
    notes = [own, error_sentence({name: f["held_out"] for name, f in data["families"].items() if "held_out" in f})]
    notes += [
        f"{name}: not fitted, constants of {data['sources']['elementwise constants, derate']}"
        for name, family in data["families"].items()
        if "held_out" not in family
    ]
    return tuple(notes)
