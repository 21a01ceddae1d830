"""A run in matplotlib: `result.plot.queue()` and the like, each on axes that you may give and that it returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from llmqsim.errors import UserError
from llmqsim.metrics import curves, timeline
from llmqsim.metrics.waiting import WORDS
from llmqsim.report import drawing
from llmqsim.report.show import limit

LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2e": "time to the last token",
    "wait": "wait to start",
}
OVERVIEW = ("load", "attainment", "queue", "kv", "waits", "latency")


class Plots:
    """What can be drawn of one run. Every method takes matplotlib axes, or makes some, and returns them.

    Raises UserError for a result that kept its figures alone, where nobody arrived, and where matplotlib is missing.
    """

    def __init__(self, result: Any):
        self._result = result

    def __dir__(self) -> list[str]:
        return [*OVERVIEW, "served", "overview"]

    @cached_property
    def _shown(self) -> timeline.Timeline:
        shown = timeline.timeline(self._result)
        if shown is None:
            raise UserError("no request arrived, so there is nothing to draw")
        return shown

    def _axes(self, axes: Any, title: str, along: str = "time, s") -> Any:
        plot = drawing.pyplot() if axes is None else None
        if plot is not None:
            _, axes = plot.subplots(figsize=(6.4, 3.2), layout="constrained")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(along, fontsize=8)
        axes.tick_params(labelsize=7)
        return axes

    def _lines(self, axes: Any, title: str, lines: dict[str, list]) -> Any:
        axes = self._axes(axes, title)
        for (name, values), style in zip(lines.items(), ("-", "--", ":"), strict=False):
            known = [float("nan") if v is None else v for v in values]
            axes.plot(self._shown.middles_s, known, style, linewidth=1.2, label=name)
        if len(lines) > 1:
            axes.legend(fontsize=7, frameon=False)
        return axes

    def load(self, axes: Any = None) -> Any:
        """Requests that arrive and are completed, per second."""
        lines = {"arrive": self._shown.arrivals_per_s, "are completed": self._shown.completions_per_s}
        return _from_zero(self._lines(axes, "load, requests per second", lines))

    def attainment(self, axes: Any = None) -> Any:
        """Share that kept the SLO, by when requests were due, and the share asked for."""
        axes = self._lines(axes, "share that kept the SLO, by when requests were due", {"kept": self._shown.attainment})
        asked = self._result.slo.get("attainment")
        if asked is not None:
            axes.axhline(asked, color="black", linewidth=0.8, linestyle="--")
        if not any(self._shown.asked):
            axes.text(0.5, 0.5, "no SLO is set", transform=axes.transAxes, ha="center", fontsize=8)
        axes.set_ylim(min([v for v in self._shown.attainment if v is not None], default=0.0) - 0.05, 1.02)
        return axes

    def queue(self, axes: Any = None) -> Any:
        """Requests that have arrived and are in no step yet."""
        return _from_zero(self._lines(axes, "requests that wait to start", {"wait": self._shown.waiting}))

    def served(self, axes: Any = None) -> Any:
        """Requests served at once, mean of the replicas, between the one with the fewest and the one with the most."""
        shown, replicas = self._shown, max(max(self._shown.replicas), 1)
        axes = self._lines(
            axes, "requests served at once at a replica", {"mean": [s / replicas for s in shown.serving]}
        )
        axes.fill_between(shown.middles_s, shown.serving_least, shown.serving_most, alpha=0.25)
        return _from_zero(axes)

    def kv(self, axes: Any = None) -> Any:
        """Share of the KV blocks that is held; exact for a run with `keep_steps=True`, else from lengths and times."""
        shown = self._shown
        if shown.kv_mean is None or shown.kv_most is None:
            axes = self._axes(axes, "KV cache")
            axes.text(0.5, 0.5, "not limited, or of several pools", transform=axes.transAxes, ha="center", fontsize=8)
            return axes
        how = "" if shown.kv_from == timeline.STEPS else ", from lengths and times"
        return _from_zero(
            self._lines(
                axes, f"share of KV blocks held{how}", {"mean of replicas": shown.kv_mean, "fullest": shown.kv_most}
            )
        )

    def waits(self, axes: Any = None) -> Any:
        """What the requests that arrive at a time wait for, mean seconds, stacked by reason."""
        shown = self._shown
        axes = self._axes(axes, "mean wait by reason, s, by arrival")
        named = {WORDS[name]: [v or 0.0 for v in each] for name, each in shown.waits.items() if any(each)}
        if named:
            axes.stackplot(shown.middles_s, *named.values(), labels=list(named))
            axes.legend(fontsize=6, frameon=False, loc="upper left")
        return axes

    def latency(self, axes: Any = None, metric: str = "ttft") -> Any:
        """Share of requests that took no longer, with the target. metric : ttft, tpot, e2e or wait."""
        if metric not in LATENCIES:
            raise UserError(f"metric: must be one of {', '.join(LATENCIES)} (got {metric!r})")
        seconds, shares = curves.distributions(self._result)[metric]
        axes = self._axes(axes, f"share of requests: {LATENCIES[metric]} at most", "seconds")
        axes.plot(seconds, shares, linewidth=1.2)
        if any(second > 0 for second in seconds):
            axes.set_xscale("log")
        target = self._result.slo.get(f"{metric}_s")
        if target is not None:
            axes.axvline(target, color="black", linewidth=0.8, linestyle="--", label=f"target {limit(target)}")
            axes.legend(fontsize=7, frameon=False)
        axes.set_ylim(0, 1.02)
        return axes

    def overview(self) -> Any:
        """All of these on one figure; returns its axes, an array of them."""
        figure, grid = drawing.pyplot().subplots(3, 2, figsize=(11, 9), layout="constrained")
        for name, axes in zip(OVERVIEW, grid.flat, strict=True):
            draw: Callable[[Any], Any] = getattr(self, name)
            draw(axes)
        scenario = self._result.scenario
        title = scenario.get("question") or scenario.get("name") or ""
        figure.suptitle(title.replace("$", r"\$"), fontsize=10)
        return grid


def _from_zero(axes: Any) -> Any:
    axes.set_ylim(bottom=0)
    return axes


def draw(result: Any, path: str) -> None:
    """The overview of a run as a file. path : .png, .svg or .pdf. Raises UserError."""
    drawing.save(Plots(result).overview().flat[0].figure, path)
