"""Axes: round ticks, and where a value lies between the ends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from llmqsim.report.show import duration, figures

STEPS = (1, 2, 5, 10)
FEWEST_TICKS, MOST_TICKS = 3, 6


def ticks(low: float, high: float, least_step: float = 0.0, most: int = MOST_TICKS) -> list[float]:
    """Round values from low to high, at most so many, no closer than least_step."""
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * s for s in STEPS if power * s >= rough * (1 - 1e-9))
    step = max(step, least_step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between low and high; powers alone where those are many."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [s * 10.0**p for p in powers for s in steps if low * 0.999 <= s * 10.0**p <= high * 1.001]
        if len(found) <= MOST_TICKS + 1:
            return found
    return found[:: math.ceil(len(found) / MOST_TICKS)]


@dataclass(frozen=True)
class Axis:
    """low, high : its ends. unit : "s", "share", or a word that stands behind the figure. log : logarithmic. least_step : between
    its ticks."""

    low: float
    high: float
    unit: str = ""
    log: bool = False
    least_step: float = 0.0

    @classmethod
    def over(cls, values: Iterable[float | None], unit: str = "", log: bool = False, zero: bool = True) -> Axis:
        """An axis that shows all values with a little room, from zero where asked for; never without a width."""
        known = [v for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
        if not known:
            return cls(1.0, 10.0, unit, log) if log else cls(0.0, 1.0, unit)
        low, high = min(known), max(known)
        if log:
            return cls(low / 1.15, high * 1.15, unit, True)
        if zero:
            low, high = min(0.0, low), max(0.0, high)
        room = 0.06 * (high - low)
        low, high = low - (room if low < 0 or not zero else 0), high + room
        if not high > low:
            low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
        return cls(low, high, unit)

    @classmethod
    def whole(cls, most: int) -> Axis:
        """An axis of whole things, from none to most."""
        return cls(0.0, max(most * 1.06, 1.06), "", least_step=1.0)

    @classmethod
    def share(cls, values: Iterable[float | None]) -> Axis:
        """An axis of shares: 0 to 1, or from the least where all are high."""
        known = [v for v in values if v is not None]
        low = min(known, default=0.0)
        return cls(max(0.0, math.floor((low - 0.02) * 20) / 20) if low > 0.6 else 0.0, 1.005, "share")

    def at(self, value: float) -> float:
        """Where a value lies, 0 to 1; beyond that where it is outside."""
        low, high, value = (math.log10(max(v, 1e-300)) if self.log else v for v in (self.low, self.high, value))
        return (value - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """Place and label of each tick."""
        values = log_ticks(self.low, self.high) if self.log else []
        if len(values) < FEWEST_TICKS:
            values = ticks(self.low, self.high, self.least_step)
        return [
            (self.at(value), self.said(value) if self.unit in ("s", "share") else _plain(figures(value)))
            for value in values
        ]

    def said(self, value: float) -> str:
        """A value in words."""
        if self.unit == "share":
            return f"{float(f'{100 * value:.3g}'):g} %"
        if self.unit == "s":
            return _plain(duration(value))
        return _plain(figures(value)) + (f" {self.unit}" if self.unit else "")


def _plain(text: str) -> str:
    """Without zeros that say nothing: "1.00 s" is "1 s"."""
    value, _, unit = text.partition(" ")
    short = value.rstrip("0").rstrip(".") if "." in value else value
    return f"{short} {unit}".strip()
