"""Bars and intervals in the rows of a table, so that the figure and its drawing are read together, and can be sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmqsim.report.page.axis import Axis
from llmqsim.report.page.chart import COLOURS
from llmqsim.report.page.html import BAD, GOOD, Cell, esc

SIZE = 1000
APART = 0.16
"""of a column's width: labels that are closer than that run into each other"""
SQUEEZED = 10.0
"""per cent up to which differences are drawn as they are, and logarithmically beyond"""


def bar(parts: Sequence[float], whole: float, said: str, mark: float | None = None) -> Cell:
    """Parts of a bar beside each other. whole : what fills the cell. mark : a value with a line. said : for who can't see."""
    drawn, at = "", 0.0
    for i, part in enumerate(parts):
        wide = SIZE * part / whole if whole else 0.0
        drawn += f'<rect class="f{i % COLOURS}" x="{at:.1f}" y="2" width="{wide:.1f}" height="12"/>'
        at += wide
    if mark is not None and whole:
        place = SIZE * mark / whole
        drawn += f'<path class="ref" d="M{place:.1f} 0V16"/>'
    return Cell(kind="bar", value=sum(parts), raw=_svg(drawn, said))


def _svg(drawn: str, said: str) -> str:
    return f'<svg viewBox="0 0 {SIZE} 16" preserveAspectRatio="none" role="img" aria-label="{esc(said)}">{drawn}</svg>'


@dataclass(frozen=True)
class Span:
    """A value with its interval. tone : GOOD, BAD, or anything else for what is not shown."""

    low: float | None
    middle: float
    high: float | None
    tone: str = ""


def interval(span: Span, axis: Axis, said: str, marks: Sequence[float] = ()) -> Cell:
    """A value and its interval on an axis; lines at `marks`."""
    colour = {GOOD: "sgood", BAD: "sbad"}.get(span.tone, "sopen")
    drawn = "".join(f'<path class="ref" d="M{_at(axis, m)} 0V16"/>' for m in marks if 0 <= axis.at(m) <= 1)
    if span.low is not None and span.high is not None:
        drawn += f'<path class="{colour}" d="M{_at(axis, span.low)} 8H{_at(axis, span.high)}"/>'
    drawn += f'<path class="dots big {colour}" d="M{_at(axis, span.middle)} 8h0"/>'
    return Cell(kind="bar", value=span.middle, raw=_svg(drawn, said))


def _at(axis: Axis, value: float) -> str:
    return f"{SIZE * min(1.0, max(0.0, axis.at(value))):.1f}"


def scale(axis: Axis) -> Cell:
    """The axis itself, as the heading of its column."""
    return _labels(axis.ticks())


def squeeze(value: float) -> float:
    """Linear up to SQUEEZED, then logarithmic: an overloaded variant must not make one point of all others."""
    size = abs(value)
    if size <= SQUEEZED:
        return value
    return math.copysign(SQUEEZED * (1 + math.log10(size / SQUEEZED)), value)


def squeezed_scale(axis: Axis) -> Cell:
    """The scale of an axis of squeezed values, as the heading of its column."""
    wanted = [sign * 10.0**power for power in range(1, 9) for sign in (-1, 1)]
    inside = [v for v in wanted if 0 <= axis.at(squeeze(v)) <= 1]
    if not inside:
        inside = [v for v in (5.0, -5.0, 2.0, -2.0, 1.0, -1.0, 0.2, -0.2) if 0 <= axis.at(v) <= 1][:2]
    shown = [(axis.at(0.0), "0")]
    for v in inside:
        at = axis.at(squeeze(v))
        if all(abs(at - other) >= APART for other, _ in shown):
            shown.append((at, f"{v:+,g}".replace("-", "−")))
    return _labels(shown)


def _labels(places: Sequence[tuple[float, str]]) -> Cell:
    spans = "".join(
        f'<span style="position:absolute;left:{100 * at:.1f}%;transform:translateX(-{100 * at:.0f}%)">{esc(text)}</span>'
        for at, text in places
        if 0 <= at <= 1
    )
    return Cell(raw=f'<div class="scale" aria-hidden="true">{spans}</div>')
