"""Time stamps in files: their unit, where it is stated, and when numbers can't be the seconds that they claim to be.

Numbers are seconds unless a column's name (`arrival_ms`) or an option says otherwise. Two kinds are refused until
somebody says what they are: Unix times (the first is later than the year 1973 in some unit), and stamps so far apart
that, as seconds, hardly anybody would ever have come.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from llmqsim.errors import DataError, UserError, or_known

AUTO = "auto"
PER_SECOND: dict[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""units by name, and how many of them make a second"""
CHOICES: tuple[str, ...] = (AUTO, *PER_SECOND)
WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
EPOCH_S = 1e8
"""A first stamp beyond this (3 March 1973 as Unix time, three years as a distance) is a date and no distance."""
SPARSE_S = 20.0
"""Mean gap from which seconds are doubted: three requests a minute leave every server idle, while 20 ms is an ordinary
gap of a service that somebody sizes."""
ORDINARY_S = 1.0
"""Numbers with a mean gap from here to SPARSE_S may be seconds or milliseconds alike: the reader is told."""
LATE_S = 60.0
"""A trace that starts later than this, and than it lasts, may hold dates in a unit other than the one stated."""
LATEST_S = 4e9
"""the year 2096, the last that the clock of a run holds"""


def columns(stem: str) -> dict[str, str]:
    """Names of a column of times with its unit: {"arrival_s": "s", "arrival_ms": "ms", …}."""
    return {f"{stem}_{unit}": unit for unit in PER_SECOND}


def unit(text: str, option: str) -> str:
    """A unit that a user wrote. Raises UserError naming the option and the units there are."""
    if text not in CHOICES:
        raise UserError(f"{option}: unknown unit (got '{text}'){or_known(text, CHOICES)}")
    return text


def epoch_unit(first: float) -> str | None:
    """The unit in which a number is a Unix time between 1973 and 5138, by its size; None where it is none."""
    if not first >= EPOCH_S:
        return None
    return next((name for name, per in PER_SECOND.items() if first < 1e3 * EPOCH_S * per), None)


@dataclass(frozen=True)
class Clock:
    """How the numbers of one column of arrivals become seconds.

    unit : stated, or "auto" for seconds that are doubted. column : as the file names it, which may state the unit.
    path : of the file. option : what a user would set, for messages. settable : by --set, too?
    """

    unit: str
    column: str
    path: str
    option: str = "workload.trace.time_unit"
    settable: bool = True

    def seconds(self, stamps: np.ndarray) -> np.ndarray:
        """float64[n] stamps to seconds; Unix times count from the first. NaN stay, faults are left to the reader.

        Raises DataError, one sentence, where the unit must be stated first or is not the one that was stated.
        """
        known = stamps[np.isfinite(stamps)]
        if not len(known):
            return stamps
        own = self._unit()
        epoch = epoch_unit(float(known[0]))
        if self.unit == AUTO and own == "s":
            self._doubt(known, epoch)
        elif epoch is not None and known[0] / PER_SECOND[own] > LATEST_S:
            raise DataError(
                f"{self.path}: {self.column}: {_plain(known[0])} can't be {WORDS[own]}; as Unix time in {WORDS[epoch]} "
                f"it is {_date(known[0], epoch)}: {self._set(epoch)}"
            )
        origin = known[0] if known[0] / PER_SECOND[own] >= EPOCH_S else 0.0
        return (stamps - origin) / PER_SECOND[own]

    def origin(self, stamps: np.ndarray) -> float | None:
        """Unix time, s, from which `seconds` counts; None where the stamps are no Unix times."""
        known = stamps[np.isfinite(stamps)]
        if not len(known):
            return None
        first_s = float(known[0]) / PER_SECOND[self._unit()]
        return first_s if first_s >= EPOCH_S else None

    def relative(self, stamps: np.ndarray) -> np.ndarray:
        """Stamps of whatever unit on a scale of their own, for who only asks which came first."""
        known = stamps[np.isfinite(stamps)]
        if not len(known) or np.median(known) <= LATEST_S:
            return stamps
        return (stamps - (known[0] if epoch_unit(float(known[0])) else 0.0)) / PER_SECOND["ns"]

    def notes(self, stamps: np.ndarray) -> list[str]:
        """What a reader should know of stamps that were read."""
        known = stamps[np.isfinite(stamps)]
        if not len(known):
            return []
        own = self._unit()
        if known[0] / PER_SECOND[own] >= EPOCH_S:
            return [f"time stamps of the trace are Unix times in {WORDS[own]}: they count from its first request"]
        return []

    def doubt(self, stamps: np.ndarray) -> str:
        """Why stamps that were read may be in another unit; empty where nothing says so."""
        known = stamps[np.isfinite(stamps)]
        own = self._unit()
        if not len(known) or known[0] / PER_SECOND[own] >= EPOCH_S:
            return ""
        first_s, span_s = known[0] / PER_SECOND[own], (known[-1] - known[0]) / PER_SECOND[own]
        if first_s > max(LATE_S, span_s) and (epoch := epoch_unit(float(known[0]))) is not None:
            told = f"the trace's first stamp, {_plain(known[0])}, is read as {WORDS[own]} since the start"
            return f"{told}; as Unix time in {WORDS[epoch]} it is {_date(known[0], epoch)}"
        if self.unit == AUTO and own == "s" and len(known) > 2 and _gap(known) >= ORDINARY_S:
            rate = 1 / _gap(known)
            told = f"time stamps of the trace are read as seconds ({rate:.3g} req/s)"
            return f"{told}; if they are milliseconds, {self._set('ms')}"
        return ""

    def refuse_stated(self, held: str = "time stamps with a date") -> None:
        """Raise DataError where a unit is stated for what the column holds, which needs none."""
        if self.unit != AUTO:
            raise DataError(
                f"{self.path}: {self.column}: holds {held}, whose unit needs no stating; remove "
                f"{self.option}: {self.unit}"
            )

    def _unit(self) -> str:
        """The unit that was stated, or seconds. arrival_s may be stated to hold another; no other name may."""
        named = columns("arrival").get(self.column, "s")
        if self.unit not in (AUTO, named) and named != "s":
            raise DataError(
                f"{self.path}: {self.column}: its name says {WORDS[named]}, {self.option}: {self.unit} says "
                f"{WORDS[self.unit]}; remove {self.option}, or rename the column"
            )
        return named if self.unit == AUTO else self.unit

    def _doubt(self, known: np.ndarray, epoch: str | None) -> None:
        if epoch is not None:
            raise DataError(
                f"{self.path}: {self.column}: the first stamp, {_plain(known[0])}, looks like Unix time in "
                f"{WORDS[epoch]} ({_date(known[0], epoch)}), not like seconds since the start: {self._set(epoch)}"
            )
        known = known[known <= LATEST_S]  # a lone number beyond is a fault of its row
        gap = _gap(known)
        if gap < SPARSE_S:
            return
        likely = next((name for name, per in PER_SECOND.items() if gap / per < SPARSE_S), "ns")
        shown = ", ".join(_plain(value) for value in known[:3]) + (", …" if len(known) > 3 else "")
        raise DataError(
            f"{self.path}: {self.column}: as seconds, the stamps {shown} are one request every {gap:,.4g} s; as "
            f"{WORDS[likely]} they are {PER_SECOND[likely] / gap:,.4g} a second: {self._set(likely)}, or s if they are "
            "seconds"
        )

    def _set(self, name: str) -> str:
        return f"state the unit, {self.option}: {name}" + (f" (--set {self.option}={name})" if self.settable else "")


def _gap(known: np.ndarray) -> float:
    """Mean gap, in the unit of the stamps; 0 for a single one."""
    return float((known[-1] - known[0]) / (len(known) - 1)) if len(known) > 1 else 0.0


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.6f}".rstrip("0")


def _date(value: float, name: str) -> str:
    try:
        return datetime.fromtimestamp(value / PER_SECOND[name], tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "a date that no clock holds"
