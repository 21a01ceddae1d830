"""Scoring coefficients on a folder of kernel tables: row by row, per family and per configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmqsim.calibrate.fit import predict
from llmqsim.calibrate.holdout import errors
from llmqsim.calibrate.rows import Rows, config_columns, split
from llmqsim.calibrate.tables import LeftOut, Part, Sieve, read_parts
from llmqsim.calibrate.units_check import check_units
from llmqsim.cost.store import Fitted, Store, machine
from llmqsim.errors import DataError

COLUMNS = ("family", "row_id", "latency_us_predicted")


@dataclass(frozen=True)
class Scored:
    """Predictions for one configuration of one file. Seconds; `sheet` and `form` are the two baselines."""

    part: Part
    rows: Rows
    fitted: Fitted | None
    seconds: np.ndarray
    form: np.ndarray
    sheet: np.ndarray
    outside: int
    """rows outside the box that the fit was measured in"""

    @property
    def borrowed(self) -> tuple[str, ...]:
        """What the configuration that was used differs in: 'gpu H200… from H100…'; empty if it is the row's own."""
        if self.fitted is None:
            return ("never fitted: datasheet roofline",)
        have, want = self.fitted.config, self.rows.config
        names = [name for name in config_columns(self.rows.family) if have.get(name) != want.get(name)]
        return tuple(f"{name} {want.get(name)} from {have.get(name)}" for name in names)


WITHOUT = {"gpu": ("gpu",), "version": ("gpu", "backend", "backend_version")}
"""what a score may leave out: each GPU is then predicted from its relatives, each version from another"""


def score_parts(
    folder: Path, store: Store, without: str | None = None, measured: bool = True, sieve: Sieve | None = None
) -> Iterator[Scored]:
    """Predictions for every row of every table under `folder`.

    without : a key of WITHOUT. measured : refuse tables without `latency_us`. sieve : what becomes of rows that can't
    be scored, and of files whose times are in another unit; default: DataError.
    """
    sieve = sieve or Sieve()
    for part in read_parts(folder, measured=measured, sieve=sieve):
        try:
            check_units(part)
        except DataError as error:
            sieve.drop(part.path, len(part.frame), list(error.faults))
            continue
        for rows in split(part.family, part.frame):
            fitted = store.find(part.family.name, rows.config, WITHOUT[without] if without else ())
            yield _score(part, rows, fitted, store)


def _score(part: Part, rows: Rows, fitted: Fitted | None, store: Store) -> Scored:
    card = machine(str(rows.config["gpu"]))
    sheet = rows.family.form(rows.config).at_datasheet(rows.columns, card, rows.dtype)
    if fitted is None:
        return Scored(part, rows, None, sheet, sheet, sheet, len(rows))
    form = predict(rows, fitted.constants, None, card, fitted.config)
    seconds = predict(rows, fitted.constants, store.table(fitted), card, fitted.config)
    outside = np.zeros(len(rows), dtype=bool)
    for axis, (low, high) in fitted.box.items():
        outside |= (rows.columns[axis] < low) | (rows.columns[axis] > high)
    return Scored(part, rows, fitted, seconds, form, sheet, int(outside.sum()))


def score(folder: Path, store: Store, predictions: Path | None = None, without: str | None = None) -> dict:
    """Errors per family and configuration; the predictions of every row go to the CSV file `predictions`.

    Tables without `latency_us` are predicted, not scored, and left out where there is nothing else to do. Rows and
    tables that can't be used are left out and listed under `left_out`. Raises DataError where nothing is left.
    """
    sieve = Sieve(strict=False)
    scored = list(score_parts(folder, store, without, measured=predictions is None, sieve=sieve))
    if not scored:
        raise DataError(*(reason for one in sieve.left_out for reason in one.reasons))
    if predictions:
        write_predictions(scored, predictions)
    return {**summary(scored), "left_out": left_out_as_json(sieve.left_out)}


def left_out_as_json(left_out: Iterable[LeftOut]) -> list[dict]:
    """What was left out as plain data: file, rows (None: no table), reasons."""
    return [{"file": str(one.path), "rows": one.rows, "reasons": list(one.reasons)} for one in left_out]


def summary(scored: list[Scored]) -> dict:
    """Families (in the order of the tables) with their errors, baselines and configurations; measured rows only."""
    scored = [one for one in scored if "latency_us" in one.part.frame]
    families: dict[str, list[Scored]] = {}
    for one in scored:
        families.setdefault(one.rows.family.name, []).append(one)
    return {
        "families": {name: _together(parts) for name, parts in families.items()},
        "configurations": [_configuration(one) for one in scored],
    }


def _together(parts: list[Scored]) -> dict:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    measured = np.concatenate([part.rows.seconds for part in parts])
    return {
        **errors(joined("seconds"), measured),
        "constants_only": errors(joined("form"), measured),
        "datasheet_roofline": errors(joined("sheet"), measured),
        "rows_outside_the_measured_range": sum(part.outside for part in parts),
        "rows_from_a_relative": sum(len(part.rows) for part in parts if part.borrowed),
    }


def _configuration(one: Scored) -> dict:
    return {
        "family": one.rows.family.name,
        **one.rows.config,
        **errors(one.seconds, one.rows.seconds),
        "constants_only": errors(one.form, one.rows.seconds),
        "datasheet_roofline": errors(one.sheet, one.rows.seconds),
        "borrowed": list(one.borrowed),
        "rows_outside_the_measured_range": one.outside,
    }


def write_predictions(scored: list[Scored], path: Path) -> None:
    """One line for each row, files in order, rows in the order of the file; written whole or not at all."""
    import os

    import pandas as pd

    frames = []
    for one in scored:
        ids = one.part.frame["row_id"].to_numpy()[one.rows.position]
        frames.append(
            pd.DataFrame(
                {"family": one.part.family.table, "row_id": ids, "latency_us_predicted": one.seconds * 1e6}
            )
        )
    part = Path(f"{path}.part")
    pd.concat(frames).to_csv(part, index=False, columns=list(COLUMNS), float_format="%.5g")
    os.replace(part, path)


def text(told: dict, configurations: bool = False) -> str:
    """The score as a table: median / P90 of the absolute error, beside constants only and the datasheet roofline."""
    lines = [f"{'family':20s} {'rows':>9s} {'fitted':>13s} {'constants':>13s} {'datasheet':>13s}  beyond  relative"]
    for name, family in told["families"].items():
        cells = [_cell(family), _cell(family["constants_only"]), _cell(family["datasheet_roofline"])]
        beyond, relative = family["rows_outside_the_measured_range"], family["rows_from_a_relative"]
        lines.append(f"{name:20s} {family['rows']:9,d} {' '.join(cells)} {beyond:7,d} {relative:9,d}")
    lines.append("median / P90 of |predicted / measured - 1|, per cent; beyond: rows outside the measured range;")
    lines.append("relative: rows whose GPU, backend, version or kernel was not fitted itself")
    borrowed = [c for c in told["configurations"] if c["borrowed"]]
    for one in borrowed[: None if configurations else 8]:
        what = f"{one['family']} {one['gpu']} {one['backend']} {one['backend_version']}"
        lines.append(f"  {what}: {'; '.join(one['borrowed'])}")
    if len(borrowed) > 8 and not configurations:
        lines.append(f"  … and {len(borrowed) - 8} more configurations from relatives (all of them: --json)")
    return "\n".join([*lines, *left_out_lines(told["left_out"])])


def left_out_lines(left_out: list[dict]) -> list[str]:
    """What was left out, and why: how many rows of how many files, then each reason."""
    if not left_out:
        return []
    rows = sum(one["rows"] or 0 for one in left_out)
    files = len({one["file"] for one in left_out})
    unread = sum(one["rows"] is None for one in left_out)
    whole = f", {unread} of them no tables at all" if unread else ""
    head = f"left out: {rows:,} rows of {files} file{'s' if files > 1 else ''}{whole}:"
    return [head, *(f"  {reason}" for one in left_out for reason in one["reasons"])]


def _cell(found: dict) -> str:
    return f"{found['median_percent']:6.1f} /{found['p90_percent']:5.1f}"
