"""What a rate does over time, beside chance: hours and days, ramps, flash crowds, growth. Factors on a grid."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

DAY_S, HOUR_S, WEEK_S = 86_400.0, 3_600.0, 604_800.0
FINEST_S = 0.05
"""steps of the grid at least"""
MOST_STEPS = 5_000_000
THURSDAY = 3
"""the weekday of 1 January 1970, Monday being 0"""


@dataclass(frozen=True)
class Ramp:
    """The rate goes linearly from 1 to `factor` times between two instants, and stays there."""

    from_s: float
    to_s: float
    factor: float


@dataclass(frozen=True)
class Flash:
    """A crowd: the rate rises to `factor` times within rise_s, holds, and falls back within fall_s."""

    at_s: float
    factor: float
    rise_s: float = 10.0
    hold_s: float = 300.0
    fall_s: float = 600.0


@dataclass(frozen=True)
class Growth:
    """What grows by these shares each `every_s`, compounding: clients (more independent streams), what each sends
    (the same streams, faster), and the lengths of prompts."""

    clients: float = 0.0
    per_client: float = 0.0
    prompts: float = 0.0
    every_s: float = WEEK_S


@dataclass(frozen=True)
class Shape:
    """Factors on the mean rate. hours : of 24 hours of the day, days : of 7 weekdays from Monday, or none.

    start_s : Unix time at which the traffic begins, for hours and days.
    """

    hours: tuple[float, ...] = ()
    days: tuple[float, ...] = ()
    ramps: tuple[Ramp, ...] = ()
    flashes: tuple[Flash, ...] = ()
    growth: Growth = field(default=Growth())
    start_s: float = 0.0

    @property
    def plain(self) -> bool:
        """Is the factor 1 at all times?"""
        return self == Shape(start_s=self.start_s)

    def factor(self, seconds: np.ndarray) -> np.ndarray:
        """float64[n] s since the start to factors, growth of the number of clients left out."""
        found = np.ones(len(seconds))
        clock = self.start_s + seconds
        if self.hours:
            found *= np.array(self.hours)[(clock % DAY_S // HOUR_S).astype(np.int64)]
        if self.days:
            found *= np.array(self.days)[((clock // DAY_S).astype(np.int64) + THURSDAY) % 7]
        for ramp in self.ramps:
            found *= np.interp(seconds, [ramp.from_s, ramp.to_s], [1.0, ramp.factor])
        for flash in self.flashes:
            places = np.cumsum([flash.at_s, flash.rise_s, flash.hold_s, flash.fall_s])
            found *= np.interp(seconds, places, [1.0, flash.factor, flash.factor, 1.0])
        if self.growth.per_client:
            found *= (1 + self.growth.per_client) ** (seconds / self.growth.every_s)
        return found

    def clients(self, seconds: np.ndarray) -> np.ndarray:
        """How many times the clients of the start there are."""
        return (1 + self.growth.clients) ** (seconds / self.growth.every_s)

    def prompts(self, seconds: np.ndarray) -> np.ndarray:
        """How many times as long prompts are."""
        return (1 + self.growth.prompts) ** (seconds / self.growth.every_s)

    def step_s(self) -> float:
        """How fine a grid must be to follow it, whatever the time that is drawn."""
        spans = [self.growth.every_s / 64] if self.growth != Growth() else []
        spans += [HOUR_S / 4] if self.hours else []
        spans += [DAY_S / 24] if self.days else []
        spans += [(ramp.to_s - ramp.from_s) / 64 for ramp in self.ramps]
        spans += [part / 16 for flash in self.flashes for part in (flash.rise_s, flash.fall_s) if part > 0]
        spans += [flash.hold_s / 4 for flash in self.flashes if flash.hold_s > 0]
        return max(min(spans, default=HOUR_S), FINEST_S)
