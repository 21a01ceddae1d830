"""sweep: ask the method for points, run what the store does not have, tell the method, until it has enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from llmqsim.errors import InvariantError, ScenarioError
from llmqsim.planner.demand import beyond
from llmqsim.planner.settle import Length, Tell, quiet
from llmqsim.scenario.load import from_mapping
from llmqsim.simulation import prepare
from llmqsim.sweep import choose, figures
from llmqsim.sweep.grid import Grid, read_grid
from llmqsim.sweep.local import LocalWorkers
from llmqsim.sweep.points import Point, Task, make_point, make_points
from llmqsim.sweep.store import Store
from llmqsim.sweep.work import Outcome

UNDECIDED = ("unsettled", "mixed")
"""verdicts of a point that longer runs may settle"""


class Workers(Protocol):
    """Who runs the tasks."""

    def run(self, tasks: list[Task]) -> Iterator[Outcome]: ...


@dataclass(frozen=True)
class Row:
    """One point: its settings, the key of each replication, the summary of each, or why it could not be run."""

    settings: dict[str, Any]
    keys: tuple[str, ...]
    seeds: tuple[tuple[int, int], ...]
    """(seed, replication)"""
    summaries: tuple[dict[str, Any], ...]
    refused: str | None
    times: int = 1
    """of the scenario's own length"""
    decided: bool = True
    """in a bisection: False where its figures say how long the run was: it overloads, did not settle, or arithmetic says that
    it can't be (planner/demand.py)"""

    @property
    def verdict(self) -> str | None:
        """Of stability, over the replications: "mixed" where they differ."""
        return self.mean("stability.verdict")

    def mean(self, name: str) -> Any:
        """Mean of a figure over the replications; None where it was refused or has none."""
        return None if self.refused else figures.mean([figures.at(summary, name) for summary in self.summaries])


@dataclass(frozen=True)
class Swept:
    """A finished sweep. ran : runs computed now. found : runs that the store had."""

    grid: Grid
    rows: tuple[Row, ...]
    ran: int
    found: int


def sweep(
    grid: Grid | str | os.PathLike[str],
    store: str | os.PathLike[str],
    workers: Workers | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    tell: Tell = quiet,
) -> Swept:
    """Run every point of a grid that the store does not have yet, and return all of them.

    workers : LocalWorkers (default: one process) or DaskWorkers. progress : called with (runs done, runs known of).
    tell : takes lines for the status line.
    Raises UserError for a faulty grid or store; finished runs stay in the store.
    """
    grid = grid if isinstance(grid, Grid) else read_grid(grid)
    asked = choose.rounds(grid, grid.seed or 0)
    points: list[Point] = make_points(grid, next(asked))  # a faulty grid is refused before a store is made
    with Store(store) as kept:
        return _Sweep(grid, kept, workers or LocalWorkers(), progress, tell).all(points, asked)


class _Sweep:
    """One sweep under way."""

    def __init__(
        self, grid: Grid, store: Store, workers: Workers, progress: Callable[[int, int], None], tell: Tell
    ):
        self._grid, self._store, self._workers, self._progress, self._tell = grid, store, workers, progress, tell
        self._rows: dict[str, Row] = {}
        self._ran = self._found = 0
        self._broken: list[str] = []

    def all(self, points: list[Point], asked: choose.Rounds) -> Swept:
        """Round after round, until the method asks for nothing more."""
        while True:
            self._run(points)
            self._settle(points)
            told = [self._told(self._rows[point.tasks[0].key]) for point in points]
            try:
                settings = asked.send(told)
            except StopIteration:
                break
            points = [make_points(self._grid, [one])[0] for one in settings]
        return Swept(self._grid, tuple(self._rows.values()), self._ran, self._found)

    def _settle(self, points: list[Point]) -> None:
        """Run points of a bisection longer that did not settle, as far as planner/settle.py allows.

        A row keeps the key of the point as it was asked for, and the figures of its longest runs.
        """
        if self._grid.refine is None:
            return
        lengths = {point.tasks[0].key: self._length(point) for point in points if not self._row(point).refused}
        while open_ := [point for point in points if self._undecided(point, lengths)]:
            for point in open_:
                length = lengths[point.tasks[0].key]
                length.lengthen(_words(point.settings))
                again = make_point(self._grid, point.settings, length.times)
                self._run([again])
                row = self._rows.pop(again.tasks[0].key)
                self._rows[point.tasks[0].key] = row
        for point in points:
            key = point.tasks[0].key
            if key in lengths:
                self._rows[key] = replace(self._rows[key], decided=_decided(point.tasks[0], self._rows[key], lengths[key]))

    def _row(self, point: Point) -> Row:
        return self._rows[point.tasks[0].key]

    def _length(self, point: Point) -> Length:
        task, row = point.tasks[0], self._row(point)
        length = Length(from_mapping(task.scenario, folder=task.folder), row.mean("requests.arrived") or 1, self._tell)
        length.times = row.times
        length.saw(row.summaries[0]["engine"])
        return length

    def _undecided(self, point: Point, lengths: dict[str, Length]) -> bool:
        length = lengths.get(point.tasks[0].key)
        return length is not None and self._row(point).verdict in UNDECIDED and length.times < length.most

    def _run(self, points: list[Point]) -> None:
        tasks = {task.key: (task, point) for point in points for task in point.tasks}
        here = self._store.has(list(tasks))
        self._found += len(here)
        missing = [task for key, (task, _) in tasks.items() if key not in here]
        self._progress(0, len(missing))
        for done, outcome in enumerate(self._workers.run(missing), 1):
            task, point = tasks[outcome.key]
            if outcome.broke is not None:
                self._broken.append(f"{_words(point.settings)}: {outcome.broke}")
            else:
                self._store.add(task.key, point.settings, task.seed, task.replication, outcome.summary, outcome.refused)
                self._ran += 1
            self._progress(done, len(missing))
        self._check_whole()
        for point in points:
            self._keep(point)

    def _check_whole(self) -> None:
        if self._broken:
            rest = f"; and {len(self._broken) - 1:,} more" if len(self._broken) > 1 else ""
            raise InvariantError(f"{self._broken[0]}{rest}; finished points are in the store")

    def _keep(self, point: Point) -> None:
        told = [self._store.get(task.key) for task in point.tasks]
        refused = next((why for _, why in told if why), None)
        summaries = tuple(summary for summary, _ in told if summary is not None)
        for summary in summaries[:1]:
            self._check_names(summary)
        seeds = tuple((task.seed, task.replication) for task in point.tasks)
        keys = tuple(task.key for task in point.tasks)
        self._rows.setdefault(keys[0], Row(point.settings, keys, seeds, summaries, refused, point.times))

    def _check_names(self, summary: dict[str, Any]) -> None:
        for key, names in (
            ("figures", self._grid.figures),
            ("pareto", self._grid.pareto),
            ("objective", self._grid.objective),
            ("refine", choose.needed(self._grid)),
        ):
            if sentence := figures.unknown(summary, names):
                raise ScenarioError(f"{self._grid.where(key)}: {key}: {sentence}")

    def _told(self, row: Row) -> dict[str, Any] | None:
        if row.refused:
            return None
        return {"decided": row.decided, **{name: row.mean(name) for name in choose.needed(self._grid)}}


def _decided(task: Task, row: Row, length: Length) -> bool:
    """Do the figures of a point hold for longer runs? Of traffic that is as long as it is they say all there is to know."""
    if row.verdict != "stable" and (row.verdict == "overloaded" or not length.fixed):
        return False
    return not beyond(prepare(from_mapping(task.scenario, folder=task.folder)), task.seed)


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items()) or "the only point"
