"""The page of `llmqsim capacity`: goodput and attainment against load, and where the SLO breaks."""

from __future__ import annotations

from typing import Any

from llmqsim.report.capacity_screen import answer, capacity_text
from llmqsim.report.page.axis import Axis
from llmqsim.report.page.chart import Chart, Mark, Series, draw
from llmqsim.report.page.html import BAD, GOOD, OPEN, Block, Cell, Part, facts, folded, number, preformatted, table
from llmqsim.report.show import NOTHING, duration, figures, percent


def part(told: dict[str, Any]) -> Part:
    """The page of a capacity. told : what planner.capacity returns."""
    tone, word = {True: (GOOD, "kept today"), False: (BAD, "broken today")}.get(told["kept_now"], (OPEN, "not known"))
    said = answer(told)
    blocks = [
        Block("Against load", f'<div class="charts">{_goodput(told)}{_attainment(told)}</div>' + _points(told)),
        Block(
            "What it rests on", facts(_rests_on(told)) + folded("the same as text", preformatted(capacity_text(told)))
        ),
    ]
    title = told["question"] or "At which load does the SLO break?"
    warned = [one["text"] for one in told["warnings"]]
    return Part(title, tone, word, f"{said[:1].upper()}{said[1:]}.", blocks, told, "capacity.json", warned)


def cells(told: dict[str, Any], name: str) -> tuple[list[float | None], list[float | None], list[float | None]]:
    """Mean, low and high of a figure at each load."""
    found = [point[name] or {"mean": None, "low": None, "high": None} for point in told["points"]]
    return tuple([one[end] for one in found] for end in ("mean", "low", "high"))  # type: ignore[return-value]


def _chart(told: dict[str, Any], title: str, beside: str, up: Axis, series: list[Series], alt: str) -> str:
    rates, knee = [point["rate_per_s"] for point in told["points"]], told["knee_rate_per_s"]
    marks = [Mark(f"today: {figures(told['rate_per_s'])} req/s", told["rate_per_s"], across=False)]
    bands = []
    if knee is not None:
        marks.append(Mark(f"the SLO breaks: {figures(knee['mean'])} req/s", knee["mean"], across=False))
        bands = [(knee["low"], knee["high"])]
    return draw(
        Chart(
            title,
            beside,
            rates,
            "load",
            Axis.over(rates, "req/s", zero=False),
            up,
            series,
            alt,
            marks,
            "load",
            bands=bands,
        )
    )


def _goodput(told: dict[str, Any]) -> str:
    good, low, high = cells(told, "goodput")
    done, least, most_ = cells(told, "throughput")
    rates = [point["rate_per_s"] for point in told["points"]]
    series = [
        Series("keep the SLO", good, low, high),
        Series("are completed", done, least, most_),
        Series("arrive", rates),
    ]
    up = Axis.over([*good, *done, *(h for h in high if h is not None)], "req/s")
    most = max((v for v in good if v is not None), default=None)
    return _chart(
        told,
        "Goodput",
        "requests per second, with intervals",
        up,
        series,
        f"at most {figures(most)} req/s keep the SLO",
    )


def _attainment(told: dict[str, Any]) -> str:
    mean, low, high = cells(told, "attainment")
    alt = ", ".join(
        f"{percent(v)} at {figures(p['rate_per_s'])} req/s" for v, p in zip(mean, told["points"], strict=True)
    )
    least, most = ([None if v is None else min(1.0, max(0.0, v)) for v in end] for end in (low, high))
    series = [Series("keep the SLO", mean, least, most)]
    return _chart(told, "Attainment", "share of arrivals, with intervals", Axis.share(mean), series, alt)


def _points(told: dict[str, Any]) -> str:
    rows = []
    for one in told["points"]:
        share, good, ttft = (one[key] and one[key]["mean"] for key in ("attainment", "goodput", "ttft_p99_s"))
        kept = {True: "kept", False: "broken"}.get(one["kept"], NOTHING)
        rows.append(
            [
                number(figures(one["rate_per_s"]), one["rate_per_s"]), number(f"{one['factor']:.2f}", one["factor"]),
                number(percent(share), share), number(figures(good), good), number(duration(ttft), ttft),
                Cell(kept, kind={"kept": "good", "broken": "bad"}.get(kept, "")), Cell(one["stability"]),
            ]
        )  # fmt: skip
    return table("Each load", ["req/s", "of now", "attainment", "goodput", "TTFT p99", "SLO", "stable?"], rows)


def _rests_on(told: dict[str, Any]) -> list[tuple[str, str]]:
    length = told["run_length"]
    rows = [
        ("scenario", str(told["scenario"])), ("judged by", ", ".join(told["objectives"])),
        ("runs", f"{told['replications']} of each load, of {length['run']:,} requests ({length['asked']:,} asked for)"),
    ]  # fmt: skip
    return [*rows, *(("note", text) for text in told["notes"])]
