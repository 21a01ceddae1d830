"""Fitted configurations: kept in the presets, found by what was asked for, or the nearest relative by a stated rule."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from llmqsim.cost.families import FAMILIES, Family
from llmqsim.cost.forms import Machine
from llmqsim.cost.residual import STEP, ResidualTable
from llmqsim.errors import DataError, ScenarioError, did_you_mean
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import Gpu, gpu, gpu_names

SHIPPED = "kernels"
"""folder of the shipped coefficients in the presets"""
INDEX = "index.json"
OTHER_GPU, OTHER_BACKEND, OTHER_DTYPE, OTHER_KERNEL = 400.0, 100.0, 30.0, 0.2
NEWER_VERSION = 40.0
"""distance of a version newer than the wanted one: any older one of the same backend is nearer"""


@dataclass(frozen=True)
class Fitted:
    """One configuration: its constants, and where its residual table lies."""

    family: str
    config: Mapping[str, object]
    constants: Mapping[str, float]
    box: Mapping[str, tuple[float, float]]
    """lowest and highest measured value by shape column"""
    file: str
    """archive of its table"""
    entry: str
    """name inside the archive"""
    facts: Mapping[str, object]
    """rows, errors and provenance"""


def machine(device: str) -> Machine:
    """The datasheet figures of a device label of the kernel tables, or of a GPU preset of that name.

    Raises DataError for an unknown one.
    """
    devices = read_preset("devices.yaml")["devices"]
    if device in devices:
        entry = devices[device]
        names = ("flops_per_s", "memory_bytes_per_s", "link_bytes_per_s", "multiprocessors", "l2_bytes")
        return Machine(device, *(entry[name] for name in names))
    try:
        return machine_of(gpu(device))
    except ScenarioError:
        known = (*sorted(devices), *gpu_names())
        raise DataError(
            f"gpu: no datasheet figures (got '{device}'){did_you_mean(device, known)} Known: {', '.join(known)}; "
            "another GPU needs a preset first"
        ) from None


def machine_of(card: Gpu) -> Machine:
    """The datasheet figures of a GPU preset, as the forms take them."""
    return Machine(
        card.name,
        dict(card.flops_per_s),
        card.memory_bandwidth_bytes_per_s,
        card.interconnect_bytes_per_s,
        card.multiprocessors,
        card.l2_bytes,
    )


def device_of(card: Gpu) -> str | None:
    """The device label of the kernel tables that stands for a GPU preset: its own, or the one it borrows from."""
    devices = read_preset("devices.yaml")["devices"]
    for wanted in (card.name, card.relative, card.coefficients):
        for device, entry in devices.items():
            if wanted in entry["presets"]:
                return device
    return None


def known_device(device: str) -> bool:
    """Whether the datasheet figures of a device label are known."""
    try:
        machine(device)
    except DataError:
        return False
    return True


class Store:
    """All fitted configurations of a folder (None: those that ship with the package)."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        """None: shipped"""
        self._root = files("llmqsim") / "presets" / SHIPPED if folder is None else Path(folder)
        index = self._root / INDEX
        if not index.is_file():
            raise DataError(f"{index}: no such file; `llmqsim calibrate fit --kernels DIR --out DIR` writes it")
        self.index = json.loads(index.read_text(encoding="utf-8"))
        self.fitted = tuple(_read(entry) for entry in self.index["configurations"])
        self._by_family: dict[str, list[Fitted]] = {}
        for fitted in self.fitted:
            self._by_family.setdefault(fitted.family, []).append(fitted)
        self._archives: dict[str, Mapping[str, np.ndarray]] = {}
        self._tables: dict[tuple[str, str], ResidualTable] = {}
        self._found: dict[tuple, Fitted | None] = {}

    def find(self, family: str, wanted: Mapping[str, object], without: tuple[str, ...] = ()) -> Fitted | None:
        """The nearest fitted configuration, or None if the family (or its op) was never fitted.

        without : leave out configurations that agree with the wanted one in all these columns, as if they had never
        been measured (('gpu',), or ('gpu', 'backend', 'backend_version')).
        """
        asked = (family, tuple(wanted.items()), without)
        if asked not in self._found:
            self._found[asked] = self._nearest(family, wanted, without)
        return self._found[asked]

    def _nearest(self, family: str, wanted: Mapping[str, object], without: tuple[str, ...]) -> Fitted | None:
        own = FAMILIES[family]
        best, best_distance = None, 900.0
        for fitted in self._by_family.get(family, ()):
            if without and all(fitted.config[name] == wanted[name] for name in without):
                continue
            distance = _distance(own, fitted.config, wanted)
            if distance < best_distance or (distance == best_distance and _rows(fitted) > _rows(best)):
                best, best_distance = fitted, distance
        return best

    def table(self, fitted: Fitted) -> ResidualTable:
        """The residual table of a configuration, read once."""
        place = (fitted.file, fitted.entry)
        if place not in self._tables:
            if fitted.file not in self._archives:
                content = (self._root / fitted.file).read_bytes()
                with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                    self._archives[fitted.file] = dict(archive)
            self._tables[place] = unpack(self._archives[fitted.file], fitted.entry, FAMILIES[fitted.family])
        return self._tables[place]


@lru_cache(maxsize=1)
def shipped() -> Store:
    """The configurations that ship with the package."""
    return Store()


def pack(table: ResidualTable, entry: str) -> dict[str, np.ndarray]:
    """A table as small arrays: integers of STEP, differences along the last axis so that they compress."""
    steps = np.rint(table.values / STEP).astype(np.int16)
    arrays = {f"{entry}.values": np.diff(steps, axis=-1, prepend=np.int16(0)).astype(np.int16)}
    arrays[f"{entry}.features"] = table.features.astype(np.float32)
    for i, knots in enumerate(table.knots):
        arrays[f"{entry}.knots{i}"] = knots.astype(np.float32)
    return arrays


def unpack(arrays: Mapping[str, np.ndarray], entry: str, family: Family) -> ResidualTable:
    """The inverse of `pack`."""
    values = np.cumsum(arrays[f"{entry}.values"].astype(np.int32), axis=-1).astype(np.float64) * STEP
    knots = tuple(arrays[f"{entry}.knots{i}"].astype(np.float64) for i in range(values.ndim - 1))
    return ResidualTable(arrays[f"{entry}.features"].astype(np.float64), knots, values, family.smoothness)


def _read(entry: Mapping[str, object]) -> Fitted:
    facts = {name: value for name, value in entry.items() if name not in ("family", "config", "constants", "box")}
    box = {axis: tuple(ends) for axis, ends in entry["box"].items()}
    return Fitted(entry["family"], entry["config"], entry["constants"], box, entry["file"], entry["entry"], facts)


def _rows(fitted: Fitted | None) -> int:
    return 0 if fitted is None else int(fitted.facts.get("rows", 0))


@cache
def version_order(version: str) -> tuple[float, ...]:
    """'1.3.0rc20' as numbers that sort: a release candidate comes before its release."""
    found = re.fullmatch(r"v?(\d+(?:\.\d+)*)(?:\.?(rc|post|dev)(\d+))?.*", version)
    if not found:
        return (-1.0,)
    numbers = [float(part) for part in found[1].split(".")]
    last = {"rc": -1e3, "dev": -2e3, "post": 1e-3}.get(found[2] or "", 0.0)
    return (*numbers, *([0.0] * (4 - len(numbers))), last + float(found[3] or 0) * 1e-3)


def _distance(family: Family, have: Mapping[str, object], wanted: Mapping[str, object]) -> float:
    """How far a fitted configuration is from the wanted one; 900 or more: not usable."""
    total = _gpu_distance(str(have["gpu"]), str(wanted["gpu"])) + _backend_distance(have, wanted)
    if have["dtype"] != wanted["dtype"]:
        total += _dtype_distance(str(have["dtype"]), str(wanted["dtype"]))
    if wanted.get("kernel") is not None and have.get("kernel") != wanted["kernel"]:
        total += OTHER_KERNEL
    for name, penalty in family.penalty.items():
        mine, other = have[name], wanted[name]
        if mine == other:
            continue
        if isinstance(mine, (int, float)) and isinstance(other, (int, float)):
            penalty *= abs(np.log2((mine or 65536) / (other or 65536)))
        total += penalty
    return total


def _gpu_distance(have: str, wanted: str) -> float:
    if have == wanted:
        return 0.0
    relatives = _relatives(wanted)
    return OTHER_GPU + (10.0 * relatives.index(have) if have in relatives else 200.0)


@cache
def _relatives(device: str) -> tuple[str, ...]:
    """Measured devices that stand in for one, nearest first."""
    devices = read_preset("devices.yaml")["devices"]
    if device in devices:
        return tuple(devices[device]["relatives"])
    try:
        nearest = device_of(gpu(device))
    except ScenarioError:
        return ()
    return (nearest, *devices[nearest]["relatives"]) if nearest else ()


def _backend_distance(have: Mapping[str, object], wanted: Mapping[str, object]) -> float:
    if have["backend"] != wanted["backend"]:
        return OTHER_BACKEND
    if have["backend_version"] == wanted["backend_version"]:
        return 0.0
    mine, other = version_order(str(have["backend_version"])), version_order(str(wanted["backend_version"]))
    apart = sum(abs(a - b) * w for a, b, w in zip(mine, other, (10.0, 1.0, 0.05, 0.01, 0.001), strict=False))
    # never reaches NEWER_VERSION, and of two that are far away the nearer one stays nearer
    return 1.0 + 38.0 * apart / (38.0 + apart) + (NEWER_VERSION if mine > other else 0.0)


def _dtype_distance(have: str, wanted: str) -> float:
    same = ({"bfloat16", "float16"}, {"fp8", "fp8_block"}, {"int4_wo", "w4a16_mxfp4"})
    if any(have in group and wanted in group for group in same):
        return 1.0 if {have, wanted} <= same[0] else OTHER_DTYPE / 2
    return OTHER_DTYPE
