"""A run over its time: load, attainment, queue, KV use and replicas, in charts that zoom together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmqsim.metrics import timeline
from llmqsim.report.page.axis import Axis
from llmqsim.report.page.chart import Chart, Mark, Series, draw
from llmqsim.report.page.html import (
    paragraph,
)
from llmqsim.report.show import duration, percent

if TYPE_CHECKING:
    from llmqsim.result import Result

KV_FROM = {
    timeline.STEPS: "exact, as of when each step is formed",
    timeline.LENGTHS: "from lengths and times, as if answers grew evenly and nothing were shared: not exact",
}


def _span(values: list[float | None], unit: str) -> str:
    """ "from 0 to 12 req/s, 5 on average"."""
    known = [v for v in values if v is not None]
    if not known:
        return "nothing to show"
    axis = Axis(0, 1, unit)
    return f"from {axis.said(min(known))} to {axis.said(max(known))}, {axis.said(sum(known) / len(known))} on average"


def _alt(series: list[Series], unit: str) -> str:
    return "; ".join(f"{one.name}: {_span(list(one.values), unit)}" for one in series)


def over_time(
    shown: timeline.Timeline, title: str, beside: str, series: list[Series], up: Axis, marks: list[Mark] | None = None,
    stacked: bool = False, bands: list[tuple[float, float]] | None = None,
) -> str:  # fmt: skip
    """A chart over the time of a run; all of them zoom together."""
    return draw(
        Chart(
            title, beside, shown.middles_s, "time", Axis(shown.start_s, shown.end_s, "s"), up, series,
            _alt(series, up.unit), marks or [], "time", stacked, bands or [],
        )
    )  # fmt: skip


def charts(summary: dict[str, Any], result: Result, shown: timeline.Timeline) -> str:
    """All charts over the time of a run; what is shaded is the warm-up."""
    cut = _warmup(result)
    drawn = [
        _load(shown, cut), _attained(summary, shown, cut), _waiting(shown, cut), _kv(shown, cut), *_served(shown, cut)
    ]  # fmt: skip
    n = len(shown.waiting)
    width = (shown.end_s - shown.start_s) / n
    said = f"{n} stretches of {duration(width)}; drag over a chart to zoom in, press Escape to see the whole again."
    if cut:
        said += " What is shaded is the warm-up, which is left out of the figures."
    return paragraph(said, "soft") + f'<div class="charts">{"".join(chart for chart in drawn if chart)}</div>'


def _warmup(result: Result) -> list[tuple[float, float]]:
    cut = result.cut
    if cut is None or not cut.rows.any():
        return []
    return [(float(result.table.arrival_ns[result.arrived].min()) / 1e9, cut.until_ns / 1e9)]


def _load(shown: timeline.Timeline, cut: list[tuple[float, float]]) -> str:
    series = [Series("arrive", shown.arrivals_per_s), Series("are completed", shown.completions_per_s)]
    up = Axis.over([*shown.arrivals_per_s, *shown.completions_per_s], "req/s")
    return over_time(shown, "Load", "requests that arrive and are completed, per second", series, up, bands=cut)


def _attained(summary: dict[str, Any], shown: timeline.Timeline, cut: list[tuple[float, float]]) -> str:
    if not any(shown.asked):
        return ""
    asked = summary["slo"]["target"]
    marks = [] if asked is None else [Mark(f"asked for: {percent(asked)}", asked)]
    up = Axis.share([*shown.attainment, asked])
    beside = "share that kept the SLO, by when requests were due"
    return over_time(shown, "Attainment", beside, [Series("kept", shown.attainment)], up, marks, bands=cut)


def _waiting(shown: timeline.Timeline, cut: list[tuple[float, float]]) -> str:
    series = [Series("wait to start", shown.waiting)]
    beside = "requests that have arrived and are in no step yet, mean over each stretch"
    return over_time(shown, "Queue", beside, series, Axis.over(shown.waiting), bands=cut)


def _kv(shown: timeline.Timeline, cut: list[tuple[float, float]]) -> str:
    if shown.kv_mean is None or shown.kv_most is None or shown.kv_from is None:
        return ""
    series = [Series("mean of replicas", shown.kv_mean)]
    if shown.kv_most != shown.kv_mean:
        series.append(Series("fullest replica", shown.kv_most))
    up = Axis(0.0, max(0.05, 1.06 * max(shown.kv_most)), "share")
    return over_time(shown, "KV cache", f"share of blocks held; {KV_FROM[shown.kv_from]}", series, up, bands=cut)


def _served(shown: timeline.Timeline, cut: list[tuple[float, float]]) -> list[str]:
    most, beside = max(shown.replicas), "from their first step to their end; who resumes after a preemption counts"
    if most < 2:
        return [
            over_time(
                shown,
                "Requests served at once",
                beside,
                [Series("are served", shown.serving)],
                Axis.over(shown.serving),
                bands=cut,
            )
        ]
    at_work: list[float | None] = [float(n) for n in shown.replicas]
    each = Series("mean of replicas", [s / most for s in shown.serving], shown.serving_least, shown.serving_most)
    beside = f"at a replica, {beside}; the band is from the replica with the fewest to that with the most"
    return [
        over_time(shown, "Requests served at once", beside, [each], Axis.over([*shown.serving_most, 0.0]), bands=cut),
        over_time(
            shown, "Replicas at work", "that serve anybody", [Series("replicas", at_work)], Axis.whole(most), bands=cut
        ),
    ]
