"""summary.csv: errors by family, GPU, model, regime, metric and stat, and by family over everything.

Figures of the whole run count: where a case has a stage `all`, its other stages and classes are parts of it and are
left to errors.csv. Latencies that hold the wait in a queue (TTFT, E2E, NTPOT) of runs that were overloaded are counted
apart: they depend on how long the run lasts, so their errors say nothing of the other runs'.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from llmqsim.validate.errors_table import Row, number

COLUMNS = (
    "family", "gpu", "model", "regime", "metric", "stat", "n", "covered", "mean_ape_pct", "median_ape_pct",
    "p90_ape_pct", "overloaded_apart",
)  # fmt: skip
ALL = "all"


@dataclass(frozen=True)
class Group:
    """Errors of one group, per cent; None where none counts.

    n : measured figures; covered : those with a prediction that count; apart : those of overloaded runs, left out.
    """

    key: tuple[str, str, str, str, str, str]
    n: int
    covered: int
    mean: float | None
    median: float | None
    p90: float | None
    bias: float | None
    apart: int = 0

    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        errors = (number(self.mean), number(self.median), number(self.p90))
        return (*self.key, str(self.n), str(self.covered), *errors, str(self.apart))


def of_whole_runs(rows: Iterable[Row]) -> list[Row]:
    """Rows of whole runs: stage `all` where a case has one, else every stage."""
    return [row for row in rows if row.stage == ALL or ALL not in row.case.stages]


def summary(rows: Iterable[Row]) -> list[Group]:
    """Groups in the order of their first rows; then each family as a whole (gpu, model, regime `all`)."""
    whole = of_whole_runs(rows)
    fine: dict[tuple, list[Row]] = {}
    broad: dict[tuple, list[Row]] = {}
    for row in whole:
        case, figure = row.case, row.figure
        fine.setdefault((case.family, case.gpu, case.model, case.regime, figure.metric, figure.stat), []).append(row)
        broad.setdefault((case.family, ALL, ALL, ALL, figure.metric, figure.stat), []).append(row)
    return [group(key, members) for key, members in [*fine.items(), *broad.items()]]


def group(key: tuple, members: list[Row]) -> Group:
    """The errors of some rows, those of overloaded runs apart."""
    counted = [row for row in members if not row.apart]
    return replace(_errors(key, counted), n=len(members), apart=sum(row.apart for row in members))


def overloaded(rows: Iterable[Row]) -> list[Group]:
    """Errors of what is told apart, by family, metric and stat, whole runs."""
    groups: dict[tuple, list[Row]] = {}
    for row in of_whole_runs(rows):
        if row.apart:
            key = (row.case.family, ALL, ALL, ALL, row.figure.metric, row.figure.stat)
            groups.setdefault(key, []).append(row)
    return [_errors(key, members) for key, members in groups.items()]


def _errors(key: tuple, members: list[Row]) -> Group:
    signed = np.array([row.error_pct for row in members if row.error_pct is not None])
    if not len(signed):
        return Group(key, len(members), 0, None, None, None, None)
    sizes = np.abs(signed)
    covered = sum(row.predicted is not None for row in members)
    return Group(
        key, len(members), covered, float(sizes.mean()), float(np.median(sizes)), float(np.percentile(sizes, 90)),
        float(np.median(signed)),
    )  # fmt: skip
