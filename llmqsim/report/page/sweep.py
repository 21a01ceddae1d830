"""The page of `llmqsim sweep`: the Pareto front among all points, and the table of them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from llmqsim.report.compare_screen import label, unit
from llmqsim.report.page.axis import Axis
from llmqsim.report.page.chart import MOST_POINTS, Chart, Dot, cloud
from llmqsim.report.page.compare import value
from llmqsim.report.page.html import BAD, GOOD, OPEN, Block, Cell, Part, facts, number, paragraph, table
from llmqsim.report.show import NOTHING, count

MOST_CLOUDS = 6
FRONT, OTHER, APART = "on the front", "others", "overloaded or refused"


def part(told: dict[str, Any]) -> Part:
    """The page of a sweep. told : what sweep.table.told returns."""
    points, best = told["points"], [one for one in told["points"] if one["on_front"]]
    refused = sum(one["refused"] is not None for one in points)
    ways = ", ".join(f"{label(name)} {way}" for name, way in told["pareto"].items())
    if told["pareto"]:
        tone, word = (GOOD, "front found") if best else (BAD, "no front")
        said = f"{count(len(best), 'point')} of {len(points):,} {'is' if len(best) == 1 else 'are'} on the Pareto front ({ways})."
    else:
        tone, word, said = (
            OPEN,
            "no front asked for",
            f"{count(len(points), 'point')} were run; the grid names no `pareto` figures.",
        )
    said += f" {refused:,} could not be run." if refused else ""
    blocks = [
        Block("The front", _clouds(told)),
        Block("Points", _table(told)),
        Block("What it rests on", facts(_rests_on(told))),
    ]
    title = f"Sweep of {str(told['scenario']).rsplit('/', 1)[-1]}"
    return Part(title, tone, word, said, blocks, told, "sweep.json")


def dots(told: dict[str, Any], across: str, up: str) -> list[Dot]:
    """Every point that has both figures; those on the front first, so that they are never left out."""
    found = []
    for one in sorted(told["points"], key=lambda one: not one["on_front"]):
        x, y = one["figures"].get(across), one["figures"].get(up)
        if isinstance(x, (int, float)) and isinstance(y, (int, float)):
            kind = 0 if one["on_front"] else 1 if one["stability"] in ("stable", "unsettled", None) else 2
            found.append(Dot(float(x), float(y), settings(one), kind))
    return found


def settings(point: dict[str, Any]) -> str:
    """What a point sets, in a line."""
    return ", ".join(f"{key.rpartition('.')[2]} {value_}" for key, value_ in point["settings"].items())


def _axis(values: list[float], key: str) -> Axis:
    kind = unit(key)
    if kind == "share":
        return Axis.share(values)
    spread = min(values, default=0.0) > 0 and max(values) > 20 * min(values)
    return Axis.over(values, "s" if kind == "s" else "req/s" if kind == "/s" else "", log=spread, zero=False)


def _clouds(told: dict[str, Any]) -> str:
    charts = []
    for across, up in list(combinations(told["pareto"], 2))[:MOST_CLOUDS]:
        found = dots(told, across, up)
        if not found:
            continue
        along, axis = _axis([d.x for d in found], across), _axis([d.y for d in found], up)
        beside = f"against {label(across)}; better is {told['pareto'][across]} {label(across)} and {told['pareto'][up]} {label(up)}"
        alt = "; ".join(
            f"{d.name}: {label(across)} {value(d.x, across)}, {label(up)} {value(d.y, up)}"
            for d in found
            if d.group == 0
        )
        chart = Chart(_head(up), beside, [], label(across), along, axis, [], f"on the front: {alt or 'none'}")
        charts.append(cloud(chart, found, [FRONT, OTHER, APART]))
    left = (
        paragraph(f"Of more than {MOST_POINTS:,} points the first are drawn.")
        if len(told["points"]) > MOST_POINTS
        else ""
    )
    return f'<div class="charts">{"".join(charts)}</div>{left}' if charts else ""


def _head(key: str) -> str:
    said = label(key)
    return said[:1].upper() + said[1:]


def _table(told: dict[str, Any]) -> str:
    keys = list(dict.fromkeys(key for one in told["points"] for key in one["settings"]))
    names = list(dict.fromkeys(name for one in told["points"] for name in one["figures"]))
    rows = []
    for one in sorted(told["points"], key=lambda one: not one["on_front"])[:MOST_POINTS]:
        own = [_cell(one["settings"].get(key)) for key in keys]
        got = [_figure(one["figures"].get(name), name) for name in names]
        mark = "front" if one["on_front"] else one["refused"] or one["stability"] or ""
        rows.append([Cell(mark, kind="good" if one["on_front"] else "wide" if one["refused"] else ""), *own, *got])
    left = len(told["points"]) - len(rows)
    heads = ["", *(key.rpartition(".")[2] for key in keys), *(label(name) for name in names)]
    heads[0] = "which"
    return table("All points, those on the front first", heads, rows, searched=True) + paragraph(
        f"{left:,} more points are in the data." if left > 0 else "", "soft"
    )


def _cell(setting: Any) -> Cell:
    if isinstance(setting, (int, float)) and not isinstance(setting, bool):
        return number(f"{setting:g}", setting)
    return Cell(NOTHING if setting is None else str(setting))


def _figure(found: Any, name: str) -> Cell:
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        said = f"{found:,}" if isinstance(found, int) and not unit(name) else value(float(found), name)
        return number(said, float(found))
    return Cell(NOTHING if found is None else str(found))


def _rests_on(told: dict[str, Any]) -> list[tuple[str, str]]:
    times = [one["times_as_long"] for one in told["points"] if one["times_as_long"] > 1]
    rows = [
        ("scenario", str(told["scenario"])), ("method", str(told["method"])), ("runs", f"{told['replications']} of each point"),
    ]  # fmt: skip
    rows += [("run longer", f"{count(len(times), 'point')}, up to {max(times)} times")] if times else []
    doubtful = sum(not one["decided"] for one in told["points"])
    return [*rows, *([("doubtful", f"{count(doubtful, 'point')} count as not keeping the target")] if doubtful else [])]
