"""GPUs as published figures, each with its source, and how the GPUs of a replica are linked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llmqsim.errors import ScenarioError
from llmqsim.hardware.data import find, read_preset, sourced

PLAIN = (
    "memory_bytes",
    "usable_memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "l2_bytes",
    "multiprocessors",
)
"""fields of a GPU that are one number with one source"""
OWN = {
    "memory": "memory_bytes",
    "usable_memory": "usable_memory_bytes",
    "memory_bandwidth": "memory_bandwidth_bytes_per_s",
    "l2": "l2_bytes",
    "multiprocessors": "multiprocessors",
}
"""how a scenario spells these fields for a GPU of its own"""
WRITTEN = "written in the scenario"


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
    relative: str = ""
    """GPU preset whose kernel timings are the nearest, where that is not the one that lends `coefficients`"""
    interconnect: str = "nvlink"
    """name of the link to the other GPUs of a replica"""
    interconnect_latency_s: float | None = None
    """of one message; None: the latencies that the all-reduce timings were fitted with"""
    interconnect_small: tuple[float, float] | None = None
    """(seconds, bytes/s) of the protocol for small messages, where the link has another one for them"""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """field name to source text"""


def gpu_names() -> tuple[str, ...]:
    """All GPU presets, sorted."""
    return tuple(sorted(read_preset("gpus.yaml")["gpus"]))


def gpu(name: str) -> Gpu:
    """The GPU preset called `name` (an alias or any case will do). Raises ScenarioError for an unknown name."""
    data = read_preset("gpus.yaml")
    key = _known(name, data)
    entry = data["gpus"][key]
    values, origins = {}, {}
    for field_name in PLAIN:
        values[field_name], origins[field_name] = sourced(entry[field_name], data["sources"])
    flops = {}
    for dtype, rate in entry["flops_per_s"].items():
        flops[dtype], origins[f"flops_per_s.{dtype}"] = sourced(rate, data["sources"])
    made = Gpu(
        name=key,
        architecture=entry["architecture"],
        flops_per_s=flops,
        coefficients=entry["coefficients"],
        relative=entry.get("relative", ""),
        interconnect_bytes_per_s=0.0,
        sources=origins,
        **values,
    )
    return linked(made, entry["interconnect"])


def _known(name: str, data: Mapping[str, Any]) -> str:
    """The key of a card. Raises ScenarioError; for a card that is known to have no data with the reason and the nearest."""
    try:
        return find("gpu", name, data["gpus"])
    except ScenarioError:
        lacking = {key: {"aliases": entry["names"]} for key, entry in data["without_data"].items()}
        try:
            key = find("gpu", name, lacking)
        except ScenarioError:
            key = ""
        if not key:
            raise
        entry = data["without_data"][key]
        raise ScenarioError(
            f"gpu: no data for this card: {entry['why']} (got '{name}'); the nearest that has: {entry['nearest']}. "
            f"{{like: {entry['nearest']}, memory: ..., memory_bandwidth: ...}} makes a card of your own"
        ) from None


def interconnect_names() -> tuple[str, ...]:
    """All links that a scenario can name, sorted."""
    return tuple(sorted(read_preset("interconnects.yaml")["interconnects"]))


def linked(card: Gpu, link: str | Mapping[str, Any]) -> Gpu:
    """The same GPU behind another link: a name of interconnect_names(), or {bandwidth: bytes/s, latency: s}.

    Raises ScenarioError for an unknown name, or when the latency or bandwidth is missing.
    """
    if isinstance(link, Mapping):
        missing = [key for key in ("latency", "bandwidth") if link.get(key) is None]
        if missing:
            raise ScenarioError(*(f"interconnect.{key}: missing; a link of your own needs both" for key in missing))
        name, rate, latency, source = "own", link["bandwidth"], link["latency"], WRITTEN
        small = None
    else:
        data = read_preset("interconnects.yaml")
        name = find("interconnect", link, data["interconnects"])
        entry = data["interconnects"][name]
        rate, source = sourced(entry, data["sources"], "bandwidth_bytes_per_s")
        latency = entry.get("latency_s")
        small = (entry["small_latency_s"], entry["small_bandwidth_bytes_per_s"]) if "small_latency_s" in entry else None
    origins = {**card.sources, "interconnect": source, "interconnect_bytes_per_s": source}
    origins |= {} if latency is None else {"interconnect_latency_s": source}
    return replace(
        card,
        interconnect=name,
        interconnect_bytes_per_s=rate,
        interconnect_latency_s=latency,
        interconnect_small=small,
        sources=origins,
    )


def own_gpu(values: Mapping[str, Any]) -> Gpu:
    """A GPU written in a scenario: {name, like, memory, memory_bandwidth, flops: {bfloat16, …}, …}, SI units.

    like : a preset that lends what is not written, and its efficiencies. Without it memory, memory_bandwidth and
    flops.bfloat16 are needed, and the calibrated GPU whose bandwidth and arithmetic are nearest lends the rest.
    Raises ScenarioError for an unknown `like` or missing values, all at once.
    """
    given = {key: value for key, value in values.items() if value is not None}
    flops = {dtype: rate for dtype, rate in (given.get("flops") or {}).items() if rate is not None}
    if "like" in given:
        try:
            base = gpu(given["like"])
        except ScenarioError as error:
            raise ScenarioError(*(f"gpu.like{fault.removeprefix('gpu')}" for fault in error.faults)) from None
    else:
        needed = {"memory": "memory" in given, "memory_bandwidth": "memory_bandwidth" in given}
        needed["flops.bfloat16"] = "bfloat16" in flops
        if absent := [key for key, there in needed.items() if not there]:
            raise ScenarioError(*(f"gpu.{k}: missing; give it, or `like` with the name of a preset" for k in absent))
        base = _nearest(given["memory_bandwidth"], flops["bfloat16"])
    changed = {field_name: given[key] for key, field_name in OWN.items() if key in given}
    if "memory" in given and "usable_memory" not in given:
        changed["usable_memory_bytes"] = int(given["memory"] * base.usable_memory_bytes / base.memory_bytes)
    if flops:
        scale = flops.get("bfloat16", base.flops_per_s["bfloat16"]) / base.flops_per_s["bfloat16"]
        changed["flops_per_s"] = {dtype: rate * scale for dtype, rate in base.flops_per_s.items()} | flops
    origins = {key: f"as {base.name}: {source}" for key, source in base.sources.items()}
    origins |= {field_name: WRITTEN for field_name in changed} | {f"flops_per_s.{dtype}": WRITTEN for dtype in flops}
    origins.pop("flops_per_s", None)
    name = given.get("name") or f"{base.name} as changed in the scenario"
    return replace(base, name=name, relative=base.relative or base.name, sources=origins, **changed)


def _nearest(bandwidth: float, flops: float) -> Gpu:
    """The calibrated GPU whose memory bandwidth and 16-bit rate are the nearest, in ratios."""
    calibrated = [card for name in gpu_names() if (card := gpu(name)).coefficients == name]

    def distance(card: Gpu) -> float:
        ratio = math.log(bandwidth / card.memory_bandwidth_bytes_per_s)
        return math.hypot(ratio, math.log(flops / card.flops_per_s["bfloat16"]))

    return min(calibrated, key=distance)
