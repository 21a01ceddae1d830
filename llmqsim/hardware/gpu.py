"""GPUs as published figures, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmqsim.hardware.data import find, read_preset, sourced

PLAIN = (
    "memory_bytes",
    "usable_memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "l2_bytes",
    "multiprocessors",
    "interconnect_bytes_per_s",
)
"""fields of a GPU that are one number with one source"""


@dataclass(frozen=True)
class Gpu:
    """One GPU. Rates are datasheet peaks; what kernels reach of them is in the coefficient files."""

    name: str
    architecture: str
    memory_bytes: int
    """on the datasheet"""
    usable_memory_bytes: int
    """as the driver reports it to a process: what `gpu_memory_utilization` is a share of"""
    memory_bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float] = field(hash=False)
    """dense FLOP/s of the tensor cores by data type ('bfloat16' stands for float16, too)"""
    l2_bytes: int
    multiprocessors: int
    interconnect_bytes_per_s: float
    """to the other GPUs of the node, one direction"""
    coefficients: str
    """name of the coefficient file; another GPU's name when this one takes its nearest relative's efficiencies"""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """field name to source text"""


def gpu_names() -> tuple[str, ...]:
    """All GPU presets, sorted."""
    return tuple(sorted(read_preset("gpus.yaml")["gpus"]))


def gpu(name: str) -> Gpu:
    """The GPU preset called `name` (an alias or any case will do). Raises ScenarioError for an unknown name."""
    data = read_preset("gpus.yaml")
    key = find("gpu", name, data["gpus"])
    entry = data["gpus"][key]
    values, origins = {}, {}
    for field_name in PLAIN:
        values[field_name], origins[field_name] = sourced(entry[field_name], data["sources"])
    flops = {}
    for dtype, rate in entry["flops_per_s"].items():
        flops[dtype], origins[f"flops_per_s.{dtype}"] = sourced(rate, data["sources"])
    return Gpu(
        name=key,
        architecture=entry["architecture"],
        flops_per_s=flops,
        coefficients=entry["coefficients"],
        sources=origins,
        **values,
    )
