"""Axes of a grid: the values of one scenario key, as a list or as a span of numbers, and points among several axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmqsim import rng
from llmqsim.scenario.faults import show
from llmqsim.scenario.source import Node

SPAN_KEYS = ("from", "to", "steps", "scale", "whole")
SCALES = ("linear", "log")
VARIANT = "variant"
"""an axis of this name applies variants of the scenario"""


@dataclass(frozen=True)
class Span:
    """Numbers between two ends, both included. steps : 0 where the method itself picks values. whole : round them."""

    low: float
    high: float
    steps: int = 0
    log: bool = False
    whole: bool = False

    def at(self, share: float) -> float | int:
        """The value a share (0 to 1) of the way from `low` to `high`."""
        if self.log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        # an end stands as written, and a value in between has no more digits than a reader would type
        value = self.low if share == 0 else self.high if share == 1 else float(f"{value:.9g}")
        return round(value) if self.whole else value

    def middle(self, low: float, high: float) -> float | int:
        """The value to try between two others."""
        value = math.sqrt(low * high) if self.log else (low + high) / 2
        return round(value) if self.whole else float(f"{value:.9g}")


@dataclass(frozen=True)
class Axis:
    """One scenario key and what it takes. place : "file:line" where it is written."""

    key: str
    values: tuple[Any, ...] | Span
    place: str

    def listed(self) -> tuple[Any, ...]:
        """Its values, one after the other; a span without steps has its two ends."""
        if not isinstance(self.values, Span):
            return self.values
        steps = max(2, self.values.steps)
        return tuple(dict.fromkeys(self.values.at(i / (steps - 1)) for i in range(steps)))

    def at(self, share: float) -> Any:
        """The value at a share (0 <= share < 1) of the axis."""
        if isinstance(self.values, Span) and not self.values.steps:
            return self.values.at(share)
        values = self.listed()
        return values[int(share * len(values))]


def read_axis(key: str, node: Node, fault: Callable[[str], None]) -> Axis | None:
    """The axis of one entry of `axes`, or None after `fault(sentence)` was told what is wrong."""
    place = str(node.place)
    if node.is_mapping:
        span = _span(node.plain(), fault)
        return None if span is None else Axis(key, span, place)
    if not isinstance(node.value, list) or not node.value:
        fault(f"must be a list of values, or {{from: A, to: B, steps: N}} (got {show(node.plain())})")
        return None
    if len({repr(value) for value in node.value}) < len(node.value):
        fault(f"names a value twice (got {show(node.value)})")
        return None
    return Axis(key, tuple(node.value), place)


def _span(given: dict[str, Any], fault: Callable[[str], None]) -> Span | None:
    unknown = [key for key in given if key not in SPAN_KEYS]
    if unknown:
        fault(f"unknown key {unknown[0]!r}; a span has: {', '.join(SPAN_KEYS)}; values that are mappings go in a list")
        return None
    ends = [given.get(key) for key in ("from", "to")]
    if any(isinstance(end, bool) or not isinstance(end, (int, float)) or not math.isfinite(end) for end in ends):
        fault(f"from and to must be numbers, in the key's SI unit (got {show(ends[0])} and {show(ends[1])})")
        return None
    low, high = ends
    steps, scale, whole = given.get("steps", 0), given.get("scale", "linear"), given.get("whole", False)
    if low >= high:
        fault(f"from must be below to (got {low} and {high})")
    elif type(steps) is not int or (steps and steps < 2):
        fault(f"steps must be a whole number of at least 2 (got {show(steps)})")
    elif scale not in SCALES:
        fault(f"scale must be linear or log (got {show(scale)})")
    elif scale == "log" and low <= 0:
        fault(f"a log scale needs from above 0 (got {low})")
    elif not isinstance(whole, bool):
        fault(f"whole must be true or false (got {show(whole)})")
    else:
        return Span(low, high, steps, scale == "log", whole)
    return None


def product(axes: tuple[Axis, ...]) -> Iterator[dict[str, Any]]:
    """Every combination of the axes' values; the last axis changes fastest."""
    for values in itertools.product(*(axis.listed() for axis in axes)):
        yield dict(zip((axis.key for axis in axes), values, strict=True))


def latin_hypercube(axes: tuple[Axis, ...], samples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Points that cover every axis evenly: of `samples` equal parts of an axis each holds one point.

    McKay, Beckman and Conover, Technometrics 21 (1979). Drawn from the stream "sweep" of the seed.
    """
    random = rng.stream(seed, 0, "sweep")
    shares = np.empty((samples, len(axes)))
    for column in range(len(axes)):
        shares[:, column] = (random.permutation(samples) + random.random(samples)) / samples
    for row in shares:
        yield {axis.key: axis.at(float(share)) for axis, share in zip(axes, row, strict=True)}
