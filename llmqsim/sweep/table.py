"""A finished sweep as a table: for the screen, as JSON, and as CSV with one row a run."""

from __future__ import annotations

import csv
import io
from typing import Any

from llmqsim.sweep.pareto import front
from llmqsim.sweep.sweep import Row, Swept

MOST_LINES = 40


UNSETTLED = ("overloaded", "mixed")
"""verdicts of points whose latencies depend on the length of the run: on no front"""
OPEN = "unsettled"
"""verdict of points of which it is not known"""


def on_front(swept: Swept) -> list[bool]:
    """Which rows are on the Pareto front of the grid's `pareto` figures."""
    ways = swept.grid.pareto
    return front([[_number(row, name) for name in ways] for row in swept.rows], list(ways.values()))


def _number(row: Row, name: str) -> float | None:
    value = row.mean(name)
    return float(value) if isinstance(value, (int, float)) and _verdict(row) not in UNSETTLED else None


def _verdict(row: Row) -> str | None:
    return row.verdict


def told(swept: Swept) -> dict[str, Any]:
    """The sweep as plain data for JSON."""
    best = on_front(swept)
    return {
        "scenario": swept.grid.scenario,
        "method": swept.grid.method,
        "replications": swept.grid.replications,
        "ran": swept.ran,
        "found_in_store": swept.found,
        "pareto": swept.grid.pareto,
        "points": [
            {
                "settings": row.settings,
                "keys": list(row.keys),
                "refused": row.refused,
                "on_front": on,
                "stability": _verdict(row),
                "times_as_long": row.times,
                "decided": row.decided,
                "figures": {name: row.mean(name) for name in _names(swept)},
            }
            for row, on in zip(swept.rows, best, strict=True)
        ],
    }


def _names(swept: Swept) -> list[str]:
    return list(dict.fromkeys([*swept.grid.figures, *swept.grid.pareto, *swept.grid.objective]))


def as_csv(swept: Swept) -> str:
    """One row a run: the settings, seed, replication, the figures of the grid, and why it was refused."""
    settings, names = _keys(swept), _names(swept)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*settings, "seed", "replication", "key", *names, "refused"])
    for row in swept.rows:
        start = [_cell(row.settings.get(key)) for key in settings]
        for i, (seed, replication) in enumerate(row.seeds):
            one = Row(row.settings, row.keys, row.seeds, row.summaries[i : i + 1], row.refused)
            values = [_cell(one.mean(name)) for name in names]
            writer.writerow([*start, seed, replication, row.keys[i], *values, row.refused or ""])
    return out.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None else value


def _keys(swept: Swept) -> list[str]:
    return list(dict.fromkeys(key for row in swept.rows for key in row.settings))


def screen(swept: Swept) -> str:
    """The table for a terminal: the Pareto front first, then the others in order, as far as there is room."""
    best, keys, names = on_front(swept), _keys(swept), _names(swept)
    order = sorted(range(len(swept.rows)), key=lambda i: not best[i])
    shown = order[:MOST_LINES]
    rows = [["", *map(_short, keys), *names]]
    for i in shown:
        row = swept.rows[i]
        mark = "*" if best[i] else "-" if row.refused else ""
        rows.append([mark, *(_text(row.settings.get(key)) for key in keys), *(_text(row.mean(name)) for name in names)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(order) > len(shown):
        lines.append(f"... and {len(order) - len(shown):,} more points (--csv or --json has them)")
    return "\n".join([*_head(swept), "", *lines, *_foot(swept, any(best))])


def _head(swept: Swept) -> list[str]:
    runs = f"{swept.ran:,} run now, {swept.found:,} from the store"
    each = f", {swept.grid.replications} replications each" if swept.grid.replications > 1 else ""
    return [f"{swept.grid.scenario}: {len(swept.rows):,} points{each} ({runs})"]


def _foot(swept: Swept, any_best: bool) -> list[str]:
    lines = []
    if any_best:
        ways = ", ".join(f"{name} {way}" for name, way in swept.grid.pareto.items())
        lines.append(f"* on the Pareto front ({ways})")
    refused = [row for row in swept.rows if row.refused]
    if refused:
        lines.append(f"- {len(refused):,} points could not be run; the first: {refused[0].refused}")
    unsettled = sum(1 for row in swept.rows if _verdict(row) in UNSETTLED)
    if unsettled:
        told = "their latencies depend on the length of the run, so they are on no front"
        lines.append(f"{unsettled:,} points were overloaded, at least in one replication: {told}")
    if open_ := sum(1 for row in swept.rows if _verdict(row) == OPEN):
        lines.append(f"{open_:,} points did not settle: whether a backlog grows there is not known; longer runs may tell")
    if doubtful := sum(1 for row in swept.rows if not row.decided):
        told = "overloaded, not settled in the longest run, or above what arithmetic says is completed"
        lines.append(f"{doubtful:,} points count as not keeping the target, whatever their figures say: {told}")
    if longer := [row for row in swept.rows if row.times > 1]:
        most = max(row.mean("requests.arrived") for row in longer)
        lines.append(f"{len(longer):,} points that did not settle were run longer, up to {most:,.0f} requests")
    return ["", *lines] if lines else []


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
