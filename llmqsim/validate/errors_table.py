"""errors.csv and points.csv: one row a measured figure, with its prediction, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from llmqsim.validate.cases import Case
from llmqsim.validate.envelope import OVERLOADED, amplification, remarks, why_outside
from llmqsim.validate.execute import Outcomes
from llmqsim.validate.figures import LATENCIES, Figure, figures
from llmqsim.validate.runs import CannotRun, Run

COLUMNS = (
    "case_id", "stage", "family", "gpu", "model", "regime", "metric", "stat",
    "measured", "predicted", "ape_pct", "in_envelope", "reason",
)  # fmt: skip
POINT_KEYS = ("concurrency", "isl", "osl", "batch", "tp", "n", "rate_per_s")
"""what tells entries of one stage apart, as in the long table of measurements"""
QUEUED = ("ttft", "e2e", "ntpot")
"""latencies that hold the wait in a queue"""


@dataclass(frozen=True)
class Row:
    """One measured figure beside its prediction. Latencies in ms. entry : its place in the case's `measured`."""

    case: Case
    entry: int
    figure: Figure
    predicted: float | None
    in_envelope: bool
    reason: str
    gain: float | None = None
    amplification: float | None = None
    engine: str = ""
    overloaded: bool = False
    """is it of a run that was overloaded?"""
    seconds: float = 0.0
    point: dict[str, Any] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        return self.case.stages[self.entry]

    @property
    def error_pct(self) -> float | None:
        """Signed percentage error; None without a prediction, or of a measured zero that was not hit."""
        measured = self.figure.measured
        if self.predicted is None:
            return None
        if measured == 0:
            return 0.0 if self.predicted == 0 else None
        return 100 * (self.predicted - measured) / abs(measured)

    @property
    def ape_pct(self) -> float | None:
        """Absolute percentage error."""
        return None if self.error_pct is None else abs(self.error_pct)

    @property
    def apart(self) -> bool:
        """Is its error told apart from the means? A queue that grows makes it a question of how long the run lasts."""
        return self.overloaded and self.figure.metric in QUEUED and self.predicted is not None

    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        return (
            self.case.id, self.stage, self.case.family, self.case.gpu, self.case.model, self.case.regime,
            self.figure.metric, self.figure.stat, number(self.figure.measured), number(self.predicted),
            number(self.ape_pct), "true" if self.in_envelope else "false", self.reason,
        )  # fmt: skip


def number(value: float | None) -> str:
    """Six significant digits; empty where there is no number."""
    return "" if value is None else f"{value:.6g}"


def rows(planned: Iterable[Run | CannotRun], outcomes: Iterable[Outcomes]) -> list[Row]:
    """All rows in the order of the file, figures in the order written. outcomes : of the runs alone."""
    outcome_of = iter(outcomes)
    made: list[Row] = []
    for item in planned:
        if isinstance(item, CannotRun):
            made += _not_run(item.case, item.entries, item.reason)
            continue
        outcome = next(outcome_of)
        if outcome.error:
            made += _not_run(item.case, item.entries, outcome.error)
        else:
            made += _predicted(item, outcome)
    place: dict[int, int] = {}
    for row in made:
        place.setdefault(id(row.case), len(place))
    return sorted(made, key=lambda row: (place[id(row.case)], row.entry))


def _not_run(case: Case, entries: tuple[int, ...], reason: str) -> list[Row]:
    return [
        Row(case, entry, figure, None, False, f"not run: {reason}", point=_point(case, entry))
        for entry in entries
        for figure in figures(case.entries[entry])
    ]


def _predicted(run: Run, outcome: Outcomes) -> list[Row]:
    outside, said = why_outside(run, outcome), remarks(run, outcome)
    made = []
    for entry in run.entries:
        for figure, found in zip(figures(run.case.entries[entry]), outcome.values[entry], strict=True):
            value = None if _nothing_measured(figure) else found
            reasons = [*outside, *_of_figure(figure, value), *said]
            made.append(
                Row(
                    case=run.case,
                    entry=entry,
                    figure=figure,
                    predicted=value,
                    in_envelope=not outside and value is not None,
                    reason="; ".join(reasons),
                    gain=outcome.gain,
                    amplification=amplification(outcome.gain),
                    engine=outcome.engine,
                    overloaded=outcome.verdict == OVERLOADED,
                    seconds=outcome.seconds,
                    point=_point(run.case, entry),
                )
            )
    return made


def _nothing_measured(figure: Figure) -> bool:
    """A latency of zero: a tool wrote it for what it could not measure (TTFT without streaming, TPOT of one token)."""
    return figure.metric in LATENCIES and figure.measured == 0


def _of_figure(figure: Figure, value: float | None) -> list[str]:
    if _nothing_measured(figure):
        return [f"{figure.metric} {figure.stat} of 0 is no measurement"]
    if value is None:
        return [f"no request gave a {figure.metric} {figure.stat}, or the stage or stat is not known"]
    if figure.stat == "mean_as_published":
        return ["the client counted its own tokens"]
    return []


def _point(case: Case, entry: int) -> dict[str, Any]:
    return {key: case.entries[entry].get(key) for key in POINT_KEYS}
