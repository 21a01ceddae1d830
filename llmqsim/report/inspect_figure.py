"""The figure of `llmqsim workload inspect`: lengths, answers by prompt, arrivals over time, dispersion."""

from __future__ import annotations

import numpy as np

from llmqsim.report import drawing
from llmqsim.workload.inspection.arrivals import counts_in, dispersion
from llmqsim.workload.inspection.inspect import Inspection
from llmqsim.workload.trace import Trace

BARS = 200
SCALES = 12


def draw(trace: Trace, seen: Inspection, path: str) -> None:
    """path : .png, .svg or .pdf. Raises UserError, DataError."""
    plot = drawing.pyplot()
    figure, ((tails, given), (times, spread)) = plot.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    _tails(tails, trace)
    _given(given, seen)
    _times(times, trace)
    _spread(spread, trace)
    figure.suptitle(f"{seen.source}: {seen.rows:,} requests", fontsize=10)
    drawing.save(figure, path)


def _tails(axes, trace: Trace) -> None:
    """Share of requests longer than x, both scales logarithmic: a straight line is a power law."""
    for colour, name, values in (("tab:blue", "prompt", trace.prompt_tokens), ("tab:orange", "output", trace.output_tokens)):
        tokens, counts = np.unique(values, return_counts=True)
        above = 1 - np.cumsum(counts) / len(values)
        axes.step(tokens[:-1], above[:-1], where="post", color=colour, linewidth=1.2, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("tokens", fontsize=8)
    axes.set_ylabel("share of requests that are longer", fontsize=8)
    axes.legend(fontsize=8, frameon=False)


def _given(axes, seen: Inspection) -> None:
    bands = seen.output_given_prompt
    places = range(len(bands))
    for name, style in (("output_mean", "o-"), ("output_p50", "s--"), ("output_p95", "^:")):
        axes.plot(places, [getattr(band, name) for band in bands], style, markersize=3, label=name.replace("output_", ""))
    axes.set_xticks(list(places))
    axes.set_xticklabels([f"{band.prompt_high:,}" for band in bands], rotation=45, fontsize=7)
    axes.set_yscale("log")
    axes.set_xlabel("prompts up to … tokens (tenths of the requests)", fontsize=8)
    axes.set_ylabel("output tokens", fontsize=8)
    axes.legend(fontsize=8, frameon=False)


def _times(axes, trace: Trace) -> None:
    if not trace.has_times or trace.arrival_s[-1] <= trace.arrival_s[0]:
        axes.text(0.5, 0.5, "no times", ha="center", transform=axes.transAxes)
        return
    span = float(trace.arrival_s[-1] - trace.arrival_s[0])
    counts = counts_in(trace.arrival_s, span / BARS)
    axes.step(np.arange(len(counts)) * span / BARS, counts * BARS / span, where="post", linewidth=0.8)
    axes.set_xlabel("seconds since the first request", fontsize=8)
    axes.set_ylabel("requests a second", fontsize=8)
    axes.set_ylim(bottom=0)


def _spread(axes, trace: Trace) -> None:
    if not trace.has_times or trace.arrival_s[-1] <= trace.arrival_s[0]:
        axes.text(0.5, 0.5, "no times", ha="center", transform=axes.transAxes)
        return
    span = float(trace.arrival_s[-1] - trace.arrival_s[0])
    windows = np.geomspace(max(span / len(trace) / 4, 1e-3), span / 25, SCALES)
    found = [(w, d.index, d.noise) for w in windows if (d := dispersion(trace.arrival_s, float(w))).index is not None]
    if found:
        x, y, noise = (np.array(column, dtype=float) for column in zip(*found, strict=True))
        axes.plot(x, y, "o-", markersize=3, label="trace")
        axes.fill_between(x, np.maximum(1 - 2 * noise, 0.05), 1 + 2 * noise, alpha=0.3, color="tab:gray", label="Poisson")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("window, s", fontsize=8)
    axes.set_ylabel("variance of counts over their mean", fontsize=8)
    axes.legend(fontsize=8, frameon=False)
