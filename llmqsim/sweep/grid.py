"""A grid file: which scenario, which keys take which values, and how points are chosen among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llmqsim.errors import ScenarioError, UserError, did_you_mean
from llmqsim.scenario.faults import show
from llmqsim.scenario.source import Fault, Node, parse_yaml, read_text
from llmqsim.sweep.axes import Axis, Span, read_axis

METHODS = ("grid", "list", "latin_hypercube", "adaptive", "optuna")
MOST_POINTS = 1_000_000
DIRECTIONS = ("low", "high")
DEFAULT_PARETO = {"gpus": "low", "attainment": "high", "ttft_s.p99": "low"}
DEFAULT_FIGURES = (
    "attainment",
    "goodput_per_s",
    "ttft_s.p99",
    "tpot_s.p99",
    "throughput.output_tokens_per_s",
    "utilisation.busy",
    "stability.verdict",
    "gpus",
)
OWN_KEYS: dict[str, tuple[str, ...]] = {
    "grid": (),
    "list": ("points",),
    "latin_hypercube": ("samples",),
    "adaptive": ("refine",),
    "optuna": ("trials", "batch", "objective"),
}
"""method -> keys that only it takes"""
COMMON_KEYS = ("scenario", "variant", "method", "axes", "seed", "replications", "figures", "pareto")


@dataclass(frozen=True)
class Refine:
    """Adaptive: bisect `axis` where `figure` crosses `target`, until the bracket is at most `tolerance` wide."""

    axis: str
    figure: str
    target: float
    tolerance: float


@dataclass(frozen=True)
class Grid:
    """A checked grid file.

    scenario : path, relative to the working directory. points : settings of method "list". samples, trials, batch :
    numbers of points. objective, pareto : figure -> "low" or "high". places : key -> "file:line".
    """

    path: str
    scenario: str
    variants: tuple[str, ...] = ()
    method: str = "grid"
    axes: tuple[Axis, ...] = ()
    points: tuple[dict[str, Any], ...] = ()
    samples: int = 0
    trials: int = 0
    batch: int = 8
    refine: Refine | None = None
    objective: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    replications: int = 1
    figures: tuple[str, ...] = DEFAULT_FIGURES
    pareto: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_PARETO))
    places: dict[str, str] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """Return "file:line" of a key of the grid file, or the file."""
        return self.places.get(key, self.path)

    def axis(self, key: str) -> Axis:
        """The axis of a scenario key."""
        return next(axis for axis in self.axes if axis.key == key)


def read_grid(path: str | os.PathLike[str]) -> Grid:
    """Read and check a grid file. Raises ScenarioError with every fault found."""
    name = os.fspath(path)
    try:
        text = read_text(name)
    except ScenarioError as error:
        raise ScenarioError(*(fault.replace("the scenario file", "the grid file") for fault in error.faults)) from None
    node, faults = parse_yaml(text, name)
    if not node.is_mapping:
        raise ScenarioError(f"{node.place}: must be a mapping with scenario and axes (got {show(node.plain())})")
    reader = _Reader(node, name, faults)
    grid = reader.grid()
    if reader.faults:
        raise ScenarioError(*map(str, reader.faults))
    return grid


class _Reader:
    """Takes the tree apart and collects what is wrong with it."""

    def __init__(self, root: Node, path: str, faults: list[Fault]):
        self.root, self.path, self.faults = root, path, faults

    def grid(self) -> Grid:
        method = self._one_of("method", METHODS, "grid")
        self._check_keys(method)
        axes = self._axes(method)
        keys = {axis.key for axis in axes}
        return Grid(
            path=self.path,
            scenario=os.path.join(os.path.dirname(self.path), self._text("scenario")),
            variants=self._variants(),
            method=method,
            axes=axes,
            points=self._points(method),
            samples=self._whole("samples", 1, needed=method == "latin_hypercube"),
            trials=self._whole("trials", 1, needed=method == "optuna"),
            batch=self._whole("batch", 1, default=8),
            refine=self._refine(axes) if method == "adaptive" else None,
            objective=self._directions("objective", {}, needed=method == "optuna"),
            seed=self._whole("seed", 0, default=None),
            replications=self._whole("replications", 1, default=1),
            figures=self._figures(),
            pareto=self._directions("pareto", DEFAULT_PARETO),
            places={key: str(node.place) for key, node in self.root.value.items()}
            | {f"axes.{axis.key}": axis.place for axis in axes if axis.key in keys},
        )

    def _fault(self, key: str, sentence: str, node: Node | None = None) -> None:
        place = (node or self.root.value.get(key) or self.root).place
        self.faults.append(Fault(place, key, sentence))

    def _check_keys(self, method: str) -> None:
        own = OWN_KEYS.get(method, ())
        known = [*COMMON_KEYS, *own]
        for key in self.root.value:
            others = [name for name, keys in OWN_KEYS.items() if key in keys]
            if key in known:
                continue
            if others:
                self._fault(key, f"belongs to method {' or '.join(others)}, not to {method}")
            else:
                near = did_you_mean(key, known) or f"; known: {', '.join(known)}"
                hint = "; scenario keys belong under axes" if "." in key else near
                self._fault(key, f"unknown key (got {show(self.root.value[key].plain())}){hint}")

    def _plain(self, key: str) -> Any:
        node = self.root.value.get(key)
        return None if node is None else node.plain()

    def _text(self, key: str) -> str:
        value = self._plain(key)
        if not isinstance(value, str) or not value:
            self._fault(key, f"must name the scenario file (got {show(value)}), relative to this file")
            return ""
        return value

    def _one_of(self, key: str, known: tuple[str, ...], default: str) -> str:
        value = self._plain(key)
        if value is None:
            return default
        if value not in known:
            near = did_you_mean(str(value), known).removeprefix("; ")
            self._fault(
                key, f"unknown method (got {show(value)}); {near} one of: {', '.join(known)}".replace(";  ", "; ")
            )
            return default
        return value

    def _whole(self, key: str, least: int, default: int | None = 0, needed: bool = False) -> int:
        value = self._plain(key)
        if value is None:
            if needed:
                self._fault(key, "missing; give the number of points to draw")
            return default
        if type(value) is not int or value < least:
            self._fault(key, f"must be a whole number of at least {least} (got {show(value)})")
            return default or least
        return value

    def _variants(self) -> tuple[str, ...]:
        value = self._plain("variant")
        if value is None:
            return ()
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self._fault("variant", f"must be the name of a variant, or a list of names (got {show(value)})")
            return ()
        return tuple(names)

    def _axes(self, method: str) -> tuple[Axis, ...]:
        node = self.root.value.get("axes")
        if method == "list":
            if node is not None:
                self._fault("axes", "belongs to other methods; with method list every point is written out in points")
            return ()
        if node is None or not node.is_mapping or not node.value:
            got = show(None if node is None else node.plain())
            self._fault(
                "axes",
                f"must be a mapping of scenario keys to values (got {got}), such as engine.max_num_seqs: [64, 128]",
            )
            return ()
        axes = []
        for key, inner in node.value.items():
            axis = read_axis(
                key, inner, lambda sentence, key=key, inner=inner: self._fault(f"axes.{key}", sentence, inner)
            )
            if axis is not None:
                axes.append(axis)
        return tuple(axes)

    def _points(self, method: str) -> tuple[dict[str, Any], ...]:
        value = self._plain("points")
        if method != "list":
            return ()
        if not isinstance(value, list) or not value:
            self._fault(
                "points", f"must be a list of points (got {show(value)}), each a mapping of scenario keys to values"
            )
            return ()
        wrong = [i for i, point in enumerate(value) if not isinstance(point, dict) or not point]
        for i in wrong:
            self._fault("points", f"point {i + 1} must be a mapping of scenario keys to values (got {show(value[i])})")
        return () if wrong else tuple(value)

    def _refine(self, axes: tuple[Axis, ...]) -> Refine | None:
        node = self.root.value.get("refine")
        if node is None or not node.is_mapping:
            self._fault("refine", "missing; give {axis: KEY, figure: attainment, target: 0.95, tolerance: WIDTH}")
            return None
        given = node.plain()
        known = ("axis", "figure", "target", "tolerance")
        for key in given:
            if key not in known:
                self._fault(f"refine.{key}", f"unknown key (got {show(given[key])}); known: {', '.join(known)}", node)
        spans = [axis.key for axis in axes if isinstance(axis.values, Span)]
        if given.get("axis") not in spans:
            hint = f"one of: {', '.join(spans)}" if spans else "an axis that is written as {from: A, to: B}"
            self._fault("refine.axis", f"must be the axis to bisect (got {show(given.get('axis'))}); {hint}", node)
            return None
        numbers: dict[str, Callable[[float], bool]] = {"target": lambda x: True, "tolerance": lambda x: x > 0}
        for key, right in numbers.items():
            value = given.get(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not right(value):
                self._fault(
                    f"refine.{key}",
                    f"must be a number{' above 0' if key == 'tolerance' else ''} (got {show(value)})",
                    node,
                )
                return None
        if any(isinstance(axis.values, Span) and axis.key != given["axis"] and not axis.values.steps for axis in axes):
            self._fault("axes", "only the axis of refine may leave out steps")
        figure = given.get("figure", "attainment")
        if not isinstance(figure, str):
            self._fault("refine.figure", f"must be the name of a figure (got {show(figure)})", node)
            return None
        return Refine(given["axis"], figure, float(given["target"]), float(given["tolerance"]))

    def _directions(self, key: str, default: dict[str, str], needed: bool = False) -> dict[str, str]:
        value = self._plain(key)
        if value is None:
            if needed:
                self._fault(key, "missing; give what to optimise, such as {attainment: high}")
            return dict(default)
        if not isinstance(value, dict) or not value or not all(way in DIRECTIONS for way in value.values()):
            self._fault(
                key,
                f"must be a mapping of figures to low or high (got {show(value)}), such as {{gpus: low, attainment: high}}",
            )
            return dict(default)
        return value

    def _figures(self) -> tuple[str, ...]:
        value = self._plain("figures")
        if value is None:
            return DEFAULT_FIGURES
        if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
            self._fault(
                "figures", f"must be a list of names of figures (got {show(value)}), such as [attainment, ttft_s.p99]"
            )
            return DEFAULT_FIGURES
        return tuple(value)


def refuse_too_many(grid: Grid, points: int) -> None:
    """Raise UserError for a grid that nobody can have meant."""
    if points * grid.replications > MOST_POINTS:
        raise UserError(
            f"{grid.where('axes')}: axes: {points:,} points of {grid.replications:,} replications are more than "
            f"{MOST_POINTS:,} runs; use method latin_hypercube with samples, or fewer values"
        )
