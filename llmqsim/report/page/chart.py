"""Charts as HTML: lines and points are an SVG that is stretched to its place, all text is text.

So it stays readable at any width, takes the colours of light and dark, can be printed, and is read aloud. The same numbers
stand beside it as JSON, from which the script shows values and zooms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmqsim.report.page.axis import Axis
from llmqsim.report.page.html import data, esc

SIZE = 1000
COLOURS = 7
DASHES = 5
DOTS = ("big", "small", "square")
"""kinds of points, so that colour is not all that tells them apart"""
MOST_POINTS = 2000

Values = Sequence[float | None]


@dataclass(frozen=True)
class Series:
    """One line or set of points. low, high : the ends of a band around it."""

    name: str
    values: Values
    low: Values | None = None
    high: Values | None = None
    dots: str = ""
    """a kind of dots ("big", "square", "small") in place of a line"""


@dataclass(frozen=True)
class Mark:
    """A dashed line across the chart where something is promised or happens. across : at a y value, else at an x value."""

    name: str
    value: float
    across: bool = True


@dataclass(frozen=True)
class Chart:
    """title, beside : above it. x, of : what runs along it, and its name for the reader. alt : what is seen, in words."""

    title: str
    beside: str
    x: Sequence[float]
    of: str
    along: Axis
    up: Axis
    series: Sequence[Series]
    alt: str
    marks: Sequence[Mark] = ()
    group: str = ""
    """charts of one group are zoomed together"""
    stacked: bool = False
    bands: Sequence[tuple[float, float]] = ()
    """stretches of x that are shaded"""


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _x(chart: Chart, value: float) -> str:
    return _n(SIZE * chart.along.at(value))


def _y(chart: Chart, value: float) -> str:
    return _n(SIZE * (1 - min(max(chart.up.at(value), -0.02), 1.02)))


def line(points: Sequence[tuple[str, str] | None]) -> str:
    """The path through points; a None breaks it."""
    path, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        path.append(f"{pen}{point[0]} {point[1]}")
        pen = "L"
    return "".join(path)


def _points(chart: Chart, values: Values) -> list[tuple[str, str] | None]:
    return [None if v is None else (_x(chart, at), _y(chart, v)) for at, v in zip(chart.x, values, strict=True)]


def _area(chart: Chart, low: Values, high: Values) -> str:
    """The closed path between two lines, in pieces where one of them is not known."""
    pieces, up, down = [], [], []
    for at, a, b in zip([*chart.x, 0.0], [*low, None], [*high, None], strict=True):
        if a is None or b is None:
            if len(up) > 1:
                pieces.append(f"{line(up)}{line(down[::-1]).replace('M', 'L', 1)}Z")
            up, down = [], []
            continue
        up.append((_x(chart, at), _y(chart, b)))
        down.append((_x(chart, at), _y(chart, a)))
    return "".join(pieces)


def _series(chart: Chart, i: int, one: Series) -> str:
    colour, dash = f"s{i % COLOURS}", f" d{i % DASHES}" if i % DASHES else ""
    drawn = ""
    if one.low is not None and one.high is not None:
        drawn += f'<path class="f{i % COLOURS} band" d="{_area(chart, one.low, one.high)}"/>'
    points = _points(chart, one.values)
    known = [p for p in points if p is not None]
    if one.dots or len(known) == 1:
        drawn += f'<path class="dots {one.dots} {colour}" d="{"".join(f"M{x} {y}h0" for x, y in known)}"/>'
    if not one.dots:
        drawn += f'<path class="{colour}{dash}" d="{line(points)}"/>'
    return drawn


def _stack(chart: Chart) -> str:
    """Each series on top of those before it."""
    drawn, base = "", [0.0] * len(chart.x)
    for i, one in enumerate(chart.series):
        top = [None if v is None else b + v for b, v in zip(base, one.values, strict=True)]
        drawn += f'<path class="f{i % COLOURS}" d="{_area(chart, base, top)}"/>'
        base = [b if t is None else t for b, t in zip(base, top, strict=True)]
    return drawn


def _svg(chart: Chart) -> str:
    grid = "".join(f"M0 {_n(SIZE * (1 - at))}H{SIZE}" for at, _ in chart.up.ticks() if 0 < at <= 1)
    shades = "".join(
        f'<rect class="f1 band" x="{_x(chart, a)}" y="0" width="{_n(SIZE * (chart.along.at(b) - chart.along.at(a)))}" '
        f'height="{SIZE}"/>'
        for a, b in chart.bands
    )
    drawn = (
        _stack(chart)
        if chart.stacked
        else "".join(_series(chart, i, s) for i, s in reversed(list(enumerate(chart.series))))
    )
    marks = "".join(
        '<path class="ref" d="'
        + (f"M0 {_y(chart, m.value)}H{SIZE}" if m.across else f"M{_x(chart, m.value)} 0V{SIZE}")
        + '"/>'
        for m in chart.marks
    )
    return (
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="grid" d="{grid}"/>{shades}{drawn}{marks}</svg>'
    )


def _edge(at: float) -> str:
    return "first" if at < 0.03 else "last" if at > 0.97 else ""


def _key(chart: Chart) -> str:
    rows = []
    for i, one in enumerate(chart.series):
        if chart.stacked:
            mark = f'<rect class="f{i % COLOURS}" width="26" height="10"/>'
        elif one.dots:
            mark = f'<path class="dots {one.dots} s{i % COLOURS}" d="M13 5h0"/>'
        else:
            mark = f'<path class="s{i % COLOURS} d{i % DASHES}" d="M0 5H26"/>'
        rows.append((mark, one.name))
    rows += [('<path class="ref" d="M0 5H26"/>', one.name) for one in chart.marks]
    return "".join(
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true">{mark}</svg>{esc(name)}</li>' for mark, name in rows
    )


def _told(chart: Chart) -> dict:
    """What the script needs."""
    told = {
        "of": chart.of,
        "x": [float(f"{v:.6g}") for v in chart.x],
        "unit": chart.along.unit,
        "log": chart.along.log,
        "range": [chart.along.low, chart.along.high],
        "group": chart.group,
        "zoomable": True,
        "series": [
            {
                "name": one.name,
                "unit": chart.up.unit,
                "values": [None if v is None else float(f"{v:.6g}") for v in one.values],
            }
            for one in chart.series
        ],
    }
    return told


def draw(chart: Chart) -> str:
    """A chart of lines, bands or stacked areas over x."""
    return _figure(chart, _svg(chart), _key(chart), _told(chart))


def _figure(chart: Chart, svg: str, key: str, told: dict) -> str:
    ys = "".join(
        f'<span style="bottom:{100 * at:.1f}%">{esc(text)}</span>' for at, text in chart.up.ticks() if 0 <= at <= 1
    )
    xs = "".join(
        f'<span class="{_edge(at)}{" even" if i % 2 else ""}" style="left:{100 * at:.1f}%">{esc(text)}</span>'
        for i, (at, text) in enumerate((at, text) for at, text in chart.along.ticks() if -0.001 <= at <= 1.001)
    )
    alt = f"{chart.title}. {chart.alt}"
    return (
        f'<figure class="chart"><figcaption>{esc(chart.title)}<span>{esc(chart.beside)}</span></figcaption>'
        f'<div class="frame"><div class="ys" aria-hidden="true">{ys}</div>'
        f'<div class="area" tabindex="0" role="img" aria-label="{esc(alt)}">{svg}</div>'
        f'<div class="xs" aria-hidden="true">{xs}</div></div><ul class="key">{key}</ul>'
        '<div class="under"><p class="read" aria-live="polite"></p><p class="tools" hidden><button type="button" class="values" '
        'aria-expanded="false">values</button><button type="button" class="reset" hidden>whole range</button></p></div>'
        f'<script type="application/json">{data(told)}</script></figure>'
    )


@dataclass(frozen=True)
class Dot:
    """A point of a cloud. group : number of its kind. name : what it is."""

    x: float
    y: float
    name: str
    group: int = 0


def cloud(chart: Chart, dots: Sequence[Dot], kinds: Sequence[str], diagonal: bool = False) -> str:
    """Points with names. chart : its axes and words; x and series are of the dots. kinds : names of their groups.

    diagonal : a line where both axes say the same.
    """
    kept = list(dots[:MOST_POINTS])
    chart = Chart(
        title=chart.title, beside=chart.beside, x=[d.x for d in kept], of=chart.of, along=chart.along, up=chart.up,
        series=[
            Series(name, [d.y if d.group == i else None for d in kept], dots=DOTS[i % len(DOTS)]) for i, name in enumerate(kinds)
        ],
        alt=chart.alt, marks=chart.marks,
    )  # fmt: skip
    svg = _svg(chart)
    if diagonal:
        low, high = max(chart.along.low, chart.up.low), min(chart.along.high, chart.up.high)
        path = f"M{_x(chart, low)} {_y(chart, low)}L{_x(chart, high)} {_y(chart, high)}"
        svg = svg.replace("</svg>", f'<path class="ref" d="{path}"/></svg>')
    told = {
        **_told(chart),
        "names": [d.name for d in kept],
        "y": [float(f"{chart.up.at(d.y):.4g}") for d in kept],
        "series": [
            {"name": chart.of, "unit": chart.along.unit, "values": [d.x for d in kept]},
            {"name": chart.title, "unit": chart.up.unit, "values": [d.y for d in kept]},
        ],
    }
    return _figure(chart, svg, _key(chart), told)
