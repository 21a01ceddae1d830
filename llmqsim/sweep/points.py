"""A point of a sweep: one checked scenario, one seed, one replication, and the key that says what its result rests on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from llmqsim.errors import ScenarioError, UserError
from llmqsim.files import read_bytes
from llmqsim.planner.settle import longer
from llmqsim.scenario.load import Scenario, load
from llmqsim.sweep.axes import VARIANT
from llmqsim.sweep.grid import Grid
from llmqsim.version import __version__


@dataclass(frozen=True)
class Task:
    """What a worker needs, as plain data. A worker elsewhere must see the same files under the same names."""

    key: str
    scenario: dict[str, Any]
    folder: str
    seed: int
    replication: int
    version: str = __version__


@dataclass(frozen=True)
class Point:
    """Settings (key -> value) and the tasks of their replications. times : of the scenario's own length."""

    settings: dict[str, Any]
    tasks: tuple[Task, ...]
    times: int = 1


def make_point(grid: Grid, settings: dict[str, Any], times: int = 1) -> Point:
    """Resolve one combination of settings. Raises ScenarioError, the faults naming the grid's own lines.

    times : as long as the scenario says (planner/settle.py).
    """
    sets = [(key, value, grid.where(_place(grid, key))) for key, value in settings.items() if key != VARIANT]
    scenario = load(grid.scenario, variant=_variants(grid, settings), sets=sets)
    if times > 1:
        scenario = longer(scenario, times)
    seed = scenario.spec.run.seed if grid.seed is None else grid.seed
    plain, folder = scenario.to_dict(), str(scenario.folder)
    base = _digest(plain, scenario)
    tasks = []
    for replication in range(grid.replications):
        whole = hashlib.sha256(f"{base} {seed} {replication}".encode()).hexdigest()
        tasks.append(Task(whole[:32], plain, folder, seed, replication))
    return Point(settings, tuple(tasks), times)


def make_points(grid: Grid, every: Iterable[dict[str, Any]]) -> list[Point]:
    """Resolve all combinations, equal ones once. Raises ScenarioError with the first faults of a wrong one."""
    points: dict[str, Point] = {}
    for settings in every:
        point = make_point(grid, settings)
        points.setdefault(point.tasks[0].key, point)
    return list(points.values())


def _place(grid: Grid, key: str) -> str:
    return "points" if grid.method == "list" else f"axes.{key}"


def _variants(grid: Grid, settings: dict[str, Any]) -> tuple[str, ...]:
    chosen = settings.get(VARIANT)
    if chosen is None:
        return grid.variants
    names = chosen if isinstance(chosen, list) else [chosen]
    if not all(isinstance(name, str) for name in names):
        place = grid.where(_place(grid, VARIANT))
        raise ScenarioError(f"{place}: axes.variant: must hold names of variants (got {chosen!r})")
    return (*grid.variants, *names)


def _digest(plain: dict[str, Any], scenario: Scenario) -> str:
    """A hash of all that a result follows from: the resolved scenario, the data it reads, presets, version."""
    told = {key: value for key, value in plain.items() if key not in ("name", "question")}
    told["run"] = {key: value for key, value in (plain.get("run") or {}).items() if key not in ("seed", "replication")}
    data = [_content(name) for name in scenario.inputs() if name not in scenario.files]
    text = json.dumps([told, data, presets_digest(), __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _content(name: str) -> str:
    try:
        return hashlib.sha256(read_bytes(name, "a file that the scenario names")).hexdigest()
    except UserError as error:
        raise ScenarioError(*error.faults) from None


@cache
def presets_digest() -> str:
    """A hash of every preset and coefficient file of this installation."""
    home = Path(str(files("llmqsim") / "presets"))
    hashed = hashlib.sha256()
    for path in sorted(p for p in home.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        hashed.update(f"{path.relative_to(home).as_posix()} ".encode())
        hashed.update(hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()
