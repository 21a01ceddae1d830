"""The page of `llmqsim validate`: every measured figure against its prediction, and the errors by family."""

from __future__ import annotations

from typing import Any

from llmqsim.report.page.axis import Axis
from llmqsim.report.page.chart import MOST_POINTS, Chart, Dot, cloud
from llmqsim.report.page.html import GOOD, OPEN, Block, Cell, Part, facts, number, paragraph, table
from llmqsim.report.show import NOTHING, figures

METRICS = ("ttft", "tpot", "itl", "e2e", "output_tok_s", "req_s", "makespan_s")
MOST_ROWS = 1000
ALL = "all"


def part(told: dict[str, Any]) -> Part:
    """The page of a validation. told : what validate.told returns."""
    rows = told["figures"]
    covered = [row for row in rows if row["predicted"] is not None]
    inside = [row for row in covered if row["in_envelope"] and row["error_pct"] is not None]
    errors = sorted(abs(row["error_pct"]) for row in inside)
    said = f"{len(covered):,} of {len(rows):,} measured figures were predicted"
    if errors:
        said += f"; half of the {len(errors):,} within the measured range are off by at most {errors[(len(errors) - 1) // 2]:.1f} %"
    blocks = [
        Block("Measured against predicted", _clouds(covered)),
        Block("Errors by family", _groups(told)),
        Block("Every figure", _table(rows)),
        Block("Beside it", _beside(told)),
        Block("What it rests on", facts(_rests_on(told))),
    ]
    tone, word = (GOOD, "compared") if covered else (OPEN, "nothing compared")
    return Part("Predictions against measurements", tone, word, f"{said}.", blocks, told, "validate.json")


def dots(rows: list[dict[str, Any]], metric: str) -> list[Dot]:
    """Measured and predicted of one metric, those within the measured range first."""
    found = [
        Dot(
            row["measured"],
            row["predicted"],
            f"{row['case']} {row['stage']} {row['stat']}",
            0 if row["in_envelope"] else 1,
        )
        for row in rows
        if row["metric"] == metric and row["measured"] > 0 and row["predicted"] > 0
    ]
    return sorted(found, key=lambda dot: dot.group)


def _clouds(rows: list[dict[str, Any]]) -> str:
    charts = []
    seen = [row["metric"] for row in rows]
    for metric in sorted(set(seen), key=lambda name: (name not in METRICS, -seen.count(name)))[:6]:
        found = dots(rows, metric)
        if not found:
            continue
        axis = Axis.over([v for d in found for v in (d.x, d.y)], "", log=True)
        alt = f"{len(found)} figures; the dashed line is where prediction and measurement agree"
        beside = "predicted against measured" + (
            ", ms" if metric in ("ttft", "tpot", "itl", "e2e", "ntpot", "prefill", "decode") else ""
        )
        charts.append(
            cloud(
                Chart(metric, beside, [], "measured", axis, axis, [], alt),
                found,
                ["in the measured range", "outside of it"],
                True,
            )
        )
    left = (
        paragraph(f"Of more than {MOST_POINTS:,} figures of a metric the first are drawn.")
        if len(rows) > MOST_POINTS
        else ""
    )
    return f'<div class="charts">{"".join(charts)}</div>{left}' if charts else paragraph("Nothing could be predicted.")


def _groups(told: dict[str, Any]) -> str:
    rows = [
        [
            Cell(one["family"]), Cell(f"{one['metric']} {one['stat']}"), number(f"{one['covered']:,}", one["covered"]),
            number(f"{one['n']:,}", one["n"]), *(_error(one[key]) for key in ("mean", "median", "p90", "bias")),
        ]
        for one in told["groups"]
        if (one["gpu"], one["model"], one["regime"]) == (ALL, ALL, ALL)
    ]  # fmt: skip
    return table(
        "Absolute errors, per cent; bias is signed",
        ["family", "figure", "compared", "measured", "mean", "median", "P90", "bias"],
        rows,
        True,
    )


def _error(value: float | None) -> Cell:
    return number(NOTHING if value is None else f"{value:.1f}", value)


def _table(rows: list[dict[str, Any]]) -> str:
    shown = sorted(rows, key=lambda row: -abs(row["error_pct"] or 0.0))[:MOST_ROWS]
    lines = [
        [
            Cell(row["case"]), Cell(row["stage"]), Cell(f"{row['metric']} {row['stat']}"), number(figures(row["measured"]), row["measured"]),
            number(figures(row["predicted"]), row["predicted"]), _error(row["error_pct"]), Cell(row["reason"], kind="wide"),
        ]
        for row in shown
    ]  # fmt: skip
    left = len(rows) - len(shown)
    heads = ["case", "stage", "figure", "measured", "predicted", "error %", "why not, or what to know"]
    return table("The largest errors first", heads, lines, searched=True) + paragraph(
        f"{left:,} more are in the data." if left else "", "soft"
    )


def _beside(told: dict[str, Any]) -> str:
    rows = [
        [
            Cell(one["who"]), Cell(f"{one['metric']} {one['stat']}"), number(str(one["n"]), one["n"]),
            *(_error(one[key]) for key in ("mean", "median", "ours_mean", "ours_median")),
        ]
        for one in told["beside"]
    ]  # fmt: skip
    heads = ["who", "figure", "n", "their mean error %", "median", "our mean error %", "median"]
    return table("The same figures by others", heads, rows) if rows else ""


def _rests_on(told: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("cases", f"{told['cases']:,}"), ("runs", f"{told['runs']:,} planned, {told['ran']:,} came to an end")]
    return [*rows, *(("not read", text) for text in told["unread"])]
