"""Figures of answers that are no single run: `--figure FILE` of size, advise, sweep, validate and the others.

Each takes what the command writes as JSON; compare and capacity have theirs in compare_figure.py and capacity_screen.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from llmqsim.errors import UserError
from llmqsim.report import drawing
from llmqsim.report.compare_screen import label
from llmqsim.report.show import count

TONES = {"kept": "tab:green", "met": "tab:green", True: "tab:green", "broken": "tab:red", False: "tab:red"}
OPEN = "tab:gray"
MOST_PANELS = 4
MOST_ROWS = 60


@dataclass(frozen=True)
class Row:
    """A value with its interval, and how it was judged."""

    name: str
    low: float | None
    middle: float
    high: float | None
    judged: Any = None


def draw(command: str, told: dict[str, Any], path: str) -> None:
    """Draw the answer of a command. path : .png, .svg or .pdf. Raises UserError."""
    drawing.save(figure(command, told), path)


def figure(command: str, told: dict[str, Any]) -> Any:
    """The matplotlib figure of an answer. Raises UserError where there is nothing to draw, or no matplotlib."""
    return DRAWN[command](drawing.pyplot(), told)


def intervals(axes: Any, rows: Sequence[Row], mark: float | None = None) -> None:
    """Values with their intervals, from top to bottom, and a line."""
    for place, row in enumerate(rows):
        colour = TONES.get(row.judged, OPEN)
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=2)
        axes.plot([row.middle], [place], "o", color=colour, markersize=4)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([_text(row.name) for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=7)
    if mark is not None:
        axes.axvline(mark, color="black", linewidth=0.8, linestyle="--")


def _text(text: str, most: int = 46) -> str:
    """A user's text, which is no formula, at a length that a figure has room for."""
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def _panel(plot: Any, rows: int, panels: int = 1) -> tuple[Any, Any]:
    return plot.subplots(
        1, panels, figsize=(5.5 * panels + 2, 1.6 + 0.3 * max(rows, 3)), layout="constrained", squeeze=False
    )


def _some(rows: list[Any], what: str) -> list[Any]:
    if not rows:
        raise UserError(f"--figure: {what}, so there is nothing to draw")
    return rows[:MOST_ROWS]


def _size(plot: Any, told: dict[str, Any]) -> Any:
    """Attainment of the answer and of one less; what the candidates take."""
    rows, asked = [], None
    for one, replicas in (
        (told["one_less"], told["one_less"] and told["one_less"]["replicas"]),
        (told["attainment"], told["replicas"]),
    ):
        if one and replicas:
            asked = one["asked"]
            rows.append(Row(count(replicas, "replica"), one["low"], one["mean"], one["high"], one["judged"]))
    if (split := told["split"]) is not None:
        one, asked = split["attainment"], split["attainment"]["asked"]
        name = f"{split['prefill_replicas']}P{split['decode_replicas']}D"
        rows.append(Row(name, one["low"], one["mean"], one["high"], one["judged"]))
    tried = [one for one in told["candidates"] if one["replicas"] is not None][:MOST_ROWS]
    _some([*rows, *tried], f"there is no deployment ({told['reason']})")
    made, (panels,) = _panel(plot, max(len(rows), len(tried)), 2 if tried else 1)
    intervals(panels[0], rows, asked)
    panels[0].set_xlabel("share of arrivals that keep the SLO; dashed: asked for", fontsize=8)
    if tried:
        names = [", ".join(f"{key.split('.')[-1]} {value}" for key, value in one["choice"].items()) for one in tried]
        panels[1].barh(range(len(tried)), [one["gpus"] for one in tried], color="tab:blue")
        panels[1].set_yticks(range(len(tried)))
        panels[1].set_yticklabels([_text(name) for name in names], fontsize=8)
        panels[1].invert_yaxis()
        panels[1].set_xlabel("GPUs of each candidate", fontsize=8)
    return made


def _advise(plot: Any, told: dict[str, Any]) -> Any:
    """The ladder: what each lever gives in attainment and in rate."""
    levers = _some(sorted(told["levers"], key=lambda one: -one["attainment"]["difference"]), "no lever is left to pull")
    made, (panels,) = _panel(plot, len(levers), 2)

    def row(one: dict[str, Any], key: str, scale: float) -> Row | None:
        cell = one[key]
        if cell is None:
            return None
        low, high = (None if cell[end] is None else scale * cell[end] for end in ("low", "high"))
        return Row(one["lever"], low, scale * cell["difference"], high, True if one["helps"] else None)

    for axes, key, scale, said in (
        (panels[0], "attainment", 100.0, "attainment, points"), (panels[1], "capacity_per_s", 1.0, "req/s within the SLO"),
    ):  # fmt: skip
        intervals(axes, [found for one in levers if (found := row(one, key, scale)) is not None], 0.0)
        axes.set_xlabel(f"{said}: what each lever gives alone", fontsize=8)
    return made


def _sweep(plot: Any, told: dict[str, Any]) -> Any:
    """Every pair of the grid's Pareto figures."""
    pairs = list(combinations(told["pareto"], 2))[:MOST_PANELS]
    _some(pairs, "the grid names fewer than two `pareto` figures")
    made, grid = plot.subplots(1, len(pairs), figsize=(4.2 * len(pairs) + 1, 4), layout="constrained", squeeze=False)
    for axes, (across, up) in zip(grid[0], pairs, strict=True):
        for best, style, name in ((False, ".", "others"), (True, "o", "on the front")):
            found = [
                (one["figures"][across], one["figures"][up])
                for one in told["points"]
                if one["on_front"] == best and isinstance(one["figures"].get(across), (int, float))
                and isinstance(one["figures"].get(up), (int, float))
            ]  # fmt: skip
            axes.plot(
                [x for x, _ in found], [y for _, y in found], style, color="tab:blue" if best else OPEN, label=name
            )
        axes.set_xlabel(f"{label(across)} ({told['pareto'][across]} is better)", fontsize=8)
        axes.set_ylabel(f"{label(up)} ({told['pareto'][up]} is better)", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7, frameon=False)
        if all(isinstance(one["figures"].get(across), int) for one in told["points"]):
            axes.xaxis.get_major_locator().set_params(integer=True)
    return made


def _validate(plot: Any, told: dict[str, Any]) -> Any:
    """Measured against predicted, the metrics with most figures."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for one in told["figures"]:
        if one["predicted"] is not None and one["predicted"] > 0 and one["measured"] > 0:
            pairs.setdefault(one["metric"], []).append((one["measured"], one["predicted"]))
    shown = _some(sorted(pairs, key=lambda name: -len(pairs[name])), "nothing was predicted")[:MOST_PANELS]
    made, grid = plot.subplots(1, len(shown), figsize=(3.8 * len(shown) + 1, 4), layout="constrained", squeeze=False)
    for axes, name in zip(grid[0], shown, strict=True):
        axes.loglog([x for x, _ in pairs[name]], [y for _, y in pairs[name]], ".", markersize=4)
        ends = [min(min(p) for p in pairs[name]), max(max(p) for p in pairs[name])]
        axes.loglog(ends, ends, "--", color="black", linewidth=0.8)
        axes.set_title(f"{name}: {len(pairs[name])} figures", fontsize=9)
        axes.set_xlabel("measured", fontsize=8)
        axes.set_ylabel("predicted", fontsize=8)
        axes.tick_params(labelsize=7)
    return made


def _tradeoff(plot: Any, told: dict[str, Any]) -> Any:
    """Both latencies, and the share that keeps both targets, against the setting."""
    points = _some(told["points"], "no value was tried")
    made, grid = plot.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    values = [one["value"] for one in points]
    for axes, key in zip(grid, ("ttft_s", "tpot_s"), strict=False):
        for name, style in (("p50", "o--"), ("p99", "o-")):
            axes.plot(values, [one[key][name] for one in points], style, markersize=3, label=name)
        axes.set_ylabel(f"{key.removesuffix('_s').upper()}, s", fontsize=8)
        axes.legend(fontsize=7, frameon=False)
    joint = [one["joint"] for one in points]
    grid[2].plot(values, [one["mean"] for one in joint], "o-", markersize=3)
    band = [(v, one) for v, one in zip(values, joint, strict=True) if one["low"] is not None]
    grid[2].fill_between(
        [v for v, _ in band], [one["low"] for _, one in band], [one["high"] for _, one in band], alpha=0.2
    )
    grid[2].axhline(told["wanted"], color="black", linewidth=0.8, linestyle="--")
    grid[2].set_ylabel("share that keeps both; dashed: asked for", fontsize=8)
    for axes in grid:
        axes.set_xlabel(_text(told["key"]), fontsize=8)
        axes.tick_params(labelsize=7)
        if all(v > 0 for v in values):
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{v:g}" for v in values])
        axes.minorticks_off()
    return made


def _theory(plot: Any, told: dict[str, Any]) -> Any:
    """What was simulated as a multiple of what the formula says."""
    rows = []
    for one in told["rows"]:
        found, theory = one["simulated"], one["theory"]
        if one["ratio"] is not None and found is not None and theory:
            ends = [None if found[end] is None else found[end] / theory for end in ("low", "high")]
            rows.append(Row(one["quantity"], ends[0], found["mean"] / theory, ends[1]))
    made, (panels,) = _panel(plot, len(_some(rows, "no formula has a figure beside it")))
    intervals(panels[0], rows, 1.0)
    panels[0].set_xlabel("simulated, as a multiple of the formula", fontsize=8)
    return made


def _gate(plot: Any, told: dict[str, Any]) -> Any:
    """Every objective as a multiple of its limit."""
    rows = []
    for scenario in told["scenarios"]:
        for one in scenario["objectives"]:
            if one["limit"] and one["value"] is not None:
                low, high = (None if one[end] is None else one[end] / one["limit"] for end in ("low", "high"))
                side = "at least" if one["better"] == "higher" else "at most"
                name = f"{scenario['scenario'].rsplit('/', 1)[-1]}: {one['name']} ({side} 1)"
                rows.append(Row(name, low, one["value"] / one["limit"], high, one["verdict"]))
    made, (panels,) = _panel(plot, len(_some(rows, "no objective has a limit")))
    intervals(panels[0], rows[:MOST_ROWS], 1.0)
    panels[0].set_xlabel("as a multiple of the limit: green kept, red broken, grey inconclusive", fontsize=8)
    return made


def _claims(plot: Any, told: dict[str, Any]) -> Any:
    """What was simulated as a multiple of what was published."""
    rows = []
    for one in told["claims"]:
        if one["published"] and one["simulated"] is not None:
            low, high = (None, None) if one["interval"] is None else (end / one["published"] for end in one["interval"])
            rows.append(
                Row(f"{one['id']} {one['check']}", low, one["simulated"] / one["published"], high, one["holds"])
            )
    shown = _some(rows, "no claim has a published figure")
    made, (panels,) = _panel(plot, len(shown))
    intervals(panels[0], shown, 1.0)
    panels[0].set_xlabel("simulated, as a multiple of what was published: green holds, red does not", fontsize=8)
    return made


def _events(plot: Any, told: dict[str, Any]) -> Any:
    """Percentiles of measured latencies."""
    names = _some(
        [key for key, one in told.items() if isinstance(one, dict) and one.get("p99")], "no latency was measured"
    )
    made, (panels,) = _panel(plot, len(names))
    for place, key in enumerate(names):
        values = [told[key][name] for name in ("p50", "p90", "p99")]
        panels[0].plot(values, [place] * 3, "-", color="tab:blue")
        for value, mark in zip(values, "o|s", strict=True):
            panels[0].plot([value], [place], mark, color="tab:blue", markersize=5)
    panels[0].set_yticks(range(len(names)))
    panels[0].set_yticklabels([label(name) for name in names], fontsize=8)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    panels[0].set_xscale("log")
    panels[0].set_xlabel("seconds: p50 (dot), p90 (bar), p99 (square)", fontsize=8)
    return made


DRAWN: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "size": _size, "advise": _advise, "sweep": _sweep, "validate": _validate, "tradeoff": _tradeoff,
    "check-theory": _theory, "gate": _gate, "claims": _claims, "metrics": _events,
}  # fmt: skip
"""command -> what draws its answer"""
