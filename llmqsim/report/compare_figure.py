"""The figure of `llmqsim compare`: every difference with its interval, and who gains or loses by length."""

from __future__ import annotations

from typing import Any

from llmqsim.report import drawing
from llmqsim.report.compare_screen import label, unit

VERDICT_COLOURS = {"better": "tab:green", "worse": "tab:red", "no difference shown": "tab:gray", "not enough runs": "silver"}


def draw(told: dict[str, Any], path: str) -> None:
    """Draw what planner.compare returned. path : .png, .svg or .pdf. Raises UserError."""
    drawing.save(figure(told), path)


def figure(told: dict[str, Any]) -> Any:
    """The matplotlib figure of it."""
    plot = drawing.pyplot()
    variants = list(told["differences"])
    made, (left, right) = plot.subplots(1, 2, figsize=(12, 1.5 + 0.32 * len(_rows(told))), layout="constrained")
    _forest(left, told)
    _lengths(right, told, variants)
    runs = "one run, in batches" if told["replications"] == 1 else f"{told['replications']} paired runs"
    made.suptitle(f"{', '.join(variants)} against {told['against']}: {runs}, 95 % intervals", fontsize=10)
    return made


def _rows(told: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(metric, variant, difference) that can be drawn on one axis: relative, or in points."""
    return [
        (key, name, cell)
        for key in told["variants"][told["against"]]["figures"]
        for name, differences in told["differences"].items()
        if (cell := differences[key]) is not None and (unit(key) == "share" or cell["base"])
    ]


def _forest(axes: Any, told: dict[str, Any]) -> None:
    rows = _rows(told)
    several = len(told["differences"]) > 1
    for place, (key, _name, cell) in enumerate(rows):
        scale = 100.0 if unit(key) == "share" else 100.0 / abs(cell["base"])
        colour = VERDICT_COLOURS.get(cell["verdict"], "tab:blue")
        if cell["low"] is not None:
            axes.plot([cell["low"] * scale, cell["high"] * scale], [place, place], color=colour, linewidth=2)
        axes.plot([cell["difference"] * scale], [place], "o", color=colour, markersize=4)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([f"{label(k)}{f', {n}' if several else ''}" for k, n, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=10)  # an overloaded variant must not squeeze the others into one point
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_xlabel("difference: % of the base; attainment in points", fontsize=8)
    axes.set_title("green better, red worse, grey not shown", fontsize=8)


def _lengths(axes: Any, told: dict[str, Any], variants: list[str]) -> None:
    names = [n for n in told["groups"] if n.startswith("length:")]
    for i, variant in enumerate(variants):
        cells = [told["groups"][n]["variants"][variant]["figures"]["e2e_s.mean"] for n in names]
        kept = [(at, c) for at, c in enumerate(cells) if c is not None and c["base"]]
        colour = drawing.COLOURS[i % len(drawing.COLOURS)]
        places, middle = [at + 0.12 * i for at, _ in kept], [100 * c["relative"] for _, c in kept]
        axes.plot(places, middle, "o-", color=colour, markersize=3, linewidth=1, label=variant)
        for place, (_, c) in zip(places, kept, strict=True):
            if c["low"] is not None:
                ends = [100 * c[end] / abs(c["base"]) for end in ("low", "high")]
                axes.plot([place, place], ends, color=colour, linewidth=1)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(names)))
    axes.set_xticklabels([n.split(":", 1)[1] for n in names], rotation=45, ha="right", fontsize=7)
    axes.set_xlabel("tokens of prompt and output" if names else "all requests have the same length", fontsize=8)
    axes.set_ylabel("mean E2E, change in %", fontsize=8)
    if names:
        axes.legend(fontsize=7, frameon=False)
