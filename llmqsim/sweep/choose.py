"""Which points to run next: all at once for a grid, round by round where results say where to look."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

from llmqsim.errors import UserError
from llmqsim.planner.figures import LOWER, NEITHER, metrics
from llmqsim.sweep import axes as of
from llmqsim.sweep import grid as g

Settings = dict[str, Any]
Told = list[dict[str, Any] | None]
"""per point the mean figures by name; None where it could not be run"""
Rounds = Generator[list[Settings], Told, None]
"""yields points, is sent their figures, and yields the next ones"""


def rounds(grid: g.Grid, seed: int) -> Rounds:
    """The rounds of a grid's method."""
    if grid.method == "adaptive":
        yield from _adaptive(grid)
    elif grid.method == "optuna":
        yield from _optuna(grid, seed)
    else:
        yield list(_all(grid, seed))


def _all(grid: g.Grid, seed: int):
    if grid.method == "list":
        return grid.points
    if grid.method == "latin_hypercube":
        g.refuse_too_many(grid, grid.samples)
        return of.latin_hypercube(grid.axes, grid.samples, seed)
    count = 1
    for axis in grid.axes:
        count *= len(axis.listed())
    g.refuse_too_many(grid, count)
    return of.product(grid.axes)


def needed(grid: g.Grid) -> tuple[str, ...]:
    """Figures that the method itself looks at."""
    return ((grid.refine.figure,) if grid.refine else ()) + tuple(grid.objective)


def direction(figure: str) -> int:
    """Is a high figure good, or a low one? NEITHER where nobody says."""
    try:
        return metrics([figure])[0].better
    except UserError:
        return NEITHER


class _Bracket:
    """One line along the refined axis: between `low` and `high` the figure crosses the target, if it does at all."""

    def __init__(self, others: Settings, span: of.Span, refine: g.Refine):
        self.others, self.refine = others, refine
        self._span = span
        self.low, self.high = span.at(0.0), span.at(1.0)
        self._above: list[bool | None] = []
        self.done = False

    def ask(self) -> list[Settings]:
        """The two ends, then the middle, until the bracket is narrow."""
        if not self._above:
            return [self._at(self.low), self._at(self.high)]
        self._middle = self._span.middle(self.low, self.high)
        return [self._at(self._middle)]

    def tell(self, told: Told) -> None:
        """What the points of the last `ask` gave."""
        above = [self._is_above(t) for t in told]
        if not self._above:
            self._above = above
            self.done = above[0] is None or above[0] == above[1]  # nothing is crossed on this line
        elif above[0] == self._above[0]:
            self.low = self._middle
        else:  # an end that can't be run counts as the far side
            self.high = self._middle
        self.done = (
            self.done
            or self.high - self.low <= self.refine.tolerance
            or self._span.middle(self.low, self.high) in (self.low, self.high)
        )

    def _is_above(self, told: dict[str, Any] | None) -> bool | None:
        """Which side of the target; None where it has no figure.

        A load that overloads, or that no run of the allowed length shows to settle, keeps no target: its figure says how
        long the run was.
        """
        if told is None or told[self.refine.figure] is None:
            return None
        better = direction(self.refine.figure)
        if not told["decided"] and better != NEITHER:
            return better == LOWER
        return told[self.refine.figure] >= self.refine.target

    def _at(self, value: float) -> Settings:
        return {**self.others, self.refine.axis: value}


def _adaptive(grid: g.Grid) -> Rounds:
    refine = grid.refine
    span = grid.axis(refine.axis).values
    others = tuple(axis for axis in grid.axes if axis.key != refine.axis)
    open_ = [_Bracket(settings, span, refine) for settings in of.product(others)]
    g.refuse_too_many(grid, 2 * len(open_))
    while open_:
        asked = [bracket.ask() for bracket in open_]
        told = yield [settings for settings in itertools.chain.from_iterable(asked)]
        told = list(told)
        for bracket, points in zip(open_, asked, strict=True):
            bracket.tell(told[: len(points)])
            del told[: len(points)]
        open_ = [bracket for bracket in open_ if not bracket.done]


def _optuna(grid: g.Grid, seed: int) -> Rounds:
    """Optuna's sampler, asked in batches of fixed size, so that the same store and seed give the same search."""
    try:
        import optuna
    except ImportError:
        raise UserError(
            f"{grid.where('method')}: method: optuna needs its package: pip install 'llmqsim[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ways = ["maximize" if way == "high" else "minimize" for way in grid.objective.values()]
    study = optuna.create_study(directions=ways, sampler=optuna.samplers.TPESampler(seed=seed))
    left = grid.trials
    while left:
        trials = [study.ask() for _ in range(min(grid.batch, left))]
        told = yield [{axis.key: _suggest(trial, axis) for axis in grid.axes} for trial in trials]
        for trial, figures in zip(trials, told, strict=True):
            values = None if figures is None else [figures[name] for name in grid.objective]
            if values is None or any(not isinstance(value, (int, float)) for value in values):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, values)
        left -= len(trials)


def _suggest(trial: Any, axis: of.Axis) -> Any:
    span = axis.values
    if not isinstance(span, of.Span) or span.steps:
        listed = axis.listed()
        return listed[trial.suggest_categorical(axis.key, list(range(len(listed))))]
    if span.whole:
        return trial.suggest_int(axis.key, int(span.low), int(span.high), log=span.log)
    return float(f"{trial.suggest_float(axis.key, span.low, span.high, log=span.log):.9g}")
