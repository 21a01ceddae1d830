"""`llmqsim validate`: from files of measured runs to errors.csv, summary.csv and what stands beside them."""

from __future__ import annotations

import csv
import fnmatch
import io
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmqsim.errors import DataError
from llmqsim.files import write_text
from llmqsim.validate import errors_table, summary
from llmqsim.validate.cases import Case, read_cases
from llmqsim.validate.errors_table import POINT_KEYS, Row, number
from llmqsim.validate.execute import execute_all
from llmqsim.validate.groups import read_closed_loop, read_static_batches
from llmqsim.validate.peers import Beside, null_model, peers, read_peers
from llmqsim.validate.runs import Run, plan
from llmqsim.validate.summary import Group
from llmqsim.validate.tools.server import Server, read_server
from llmqsim.validate.tools.sniff import is_tool_file, read_tool_file

PEERS = "peer_predictions_dev.csv"
BESIDE_COLUMNS = (
    "who",
    "metric",
    "stat",
    "n",
    "mean_ape_pct",
    "median_ape_pct",
    "ours_mean_ape_pct",
    "ours_median_ape_pct",
)
POINT_COLUMNS = (*errors_table.COLUMNS, *POINT_KEYS, "error_pct", "g", "amplification", "engine", "seconds")


@dataclass(frozen=True)
class Validation:
    """All that a validation found. runs : planned; ran : those that came to an end. seconds : wall time."""

    rows: list[Row]
    groups: list[Group]
    beside: list[Beside]
    cases: list[Case]
    runs: int
    ran: int
    seconds: float

    @property
    def why_none(self) -> list[str]:
        """Why nothing could be run, each reason once with its case; empty where something ran."""
        return [] if self.ran else list(dict.fromkeys(f"{row.case.id}: {row.reason}" for row in self.rows))


def read(
    files: Sequence[str | Path],
    requests: str | Path | None = None,
    closed_loop: Sequence[str | Path] = (),
    static_batch: Sequence[str | Path] = (),
    server: str | Path | None = None,
) -> list[Case]:
    """Cases of every file: YAML of the schema, or results of a tool. server : description of who served the latter.

    Raises DataError where a file as a whole can't be read.
    """
    if requests is not None and not Path(requests).is_dir():
        raise DataError(f"{requests}: no such folder; --requests takes the folder of the request tables")
    described = read_server(server) if server is not None else Server()
    cases: list[Case] = []
    for file in files:
        cases += read_tool_file(file, described) if is_tool_file(file) else read_cases(file, requests)
    cases += [case for file in closed_loop for case in read_closed_loop(file)]
    cases += [case for file in static_batch for case in read_static_batches(file)]
    return cases


def chosen(cases: Iterable[Case], patterns: Sequence[str]) -> list[Case]:
    """Cases whose id or family fits one of the patterns (*, ?); all without any. Raises DataError when none does."""
    cases = list(cases)
    if not patterns:
        return cases
    kept = [c for c in cases if any(fnmatch.fnmatchcase(name, p) for p in patterns for name in (c.id, c.family))]
    if not kept:
        families = ", ".join(dict.fromkeys(case.family for case in cases))
        raise DataError(f"--case: nothing fits {', '.join(patterns)}; families: {families}")
    return kept


def validate(
    cases: Sequence[Case],
    workers: int | None = None,
    tell: Callable[[str], None] | None = None,
    peer_file: Path | None = None,
) -> Validation:
    """Run all cases and compare. peer_file : published predictions of other simulators, if there are any."""
    start = time.perf_counter()
    planned = [item for case in cases for item in plan(case)]
    runs = [item for item in planned if isinstance(item, Run)]
    outcomes = execute_all(runs, workers, tell)
    rows = errors_table.rows(planned, outcomes)
    beside = null_model(rows)
    if peer_file is not None and peer_file.is_file():
        beside += peers(rows, read_peers(peer_file))
    ran = sum(not outcome.error for outcome in outcomes)
    return Validation(rows, summary.summary(rows), beside, list(cases), len(runs), ran, time.perf_counter() - start)


def write(found: Validation, out: str | Path) -> None:
    """errors.csv, summary.csv, points.csv, beside.csv in a folder, made where it is absent. Raises DataError."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{out}: --out can't be made ({(error.strerror or str(error)).lower()}); give a folder"
        ) from None
    write_text(folder / "errors.csv", _csv(errors_table.COLUMNS, (row.cells() for row in found.rows)))
    write_text(folder / "summary.csv", _csv(summary.COLUMNS, (group.cells() for group in found.groups)))
    write_text(folder / "points.csv", _csv(POINT_COLUMNS, (_point_cells(row) for row in found.rows)))
    write_text(folder / "beside.csv", _csv(BESIDE_COLUMNS, (_beside_cells(other) for other in found.beside)))


def _csv(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue()


def _point_cells(row: Row) -> tuple[str, ...]:
    own = ("" if row.point.get(key) is None else f"{row.point[key]}" for key in POINT_KEYS)
    told = (number(row.error_pct), number(row.gain), number(row.amplification), row.engine, f"{row.seconds:.3f}")
    return (*row.cells(), *own, *told)


def _beside_cells(other: Beside) -> tuple[str, ...]:
    numbers = (other.mean, other.median, other.ours_mean, other.ours_median)
    return (other.who, other.metric, other.stat, str(other.n), *(number(value) for value in numbers))


def peer_file_of(files: Sequence[str | Path]) -> Path | None:
    """Published predictions beside the first file of cases, if there are any."""
    return next((place for file in files if os.path.isfile(place := Path(file).parent / PEERS)), None)
