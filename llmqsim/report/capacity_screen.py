"""The screen and the figure of `llmqsim capacity`."""

from __future__ import annotations

from typing import Any

from llmqsim.report import drawing
from llmqsim.report.show import NOTHING, duration, figures, percent, warnings, wrap

WIDTH = 100
DAYS = 30.4
"""of a month"""


def capacity_text(told: dict[str, Any]) -> str:
    """The answer as text. told : what planner.capacity.capacity returns."""
    lines = warnings(told["warnings"], WIDTH)
    lines += wrap(told["question"], WIDTH) if told["question"] else []
    lines += wrap(answer(told), WIDTH)
    lines += ["", f"{'rate':>10}{'of now':>8}{'attainment':>12}  {'95 % interval':<18}{'goodput':>10}{'TTFT p99':>11}  stable?"]
    lines += [_row(point) for point in told["points"]]
    for note in told["notes"]:
        lines += wrap(f"note: {note}", WIDTH)
    return "\n".join(lines)


def answer(told: dict[str, Any]) -> str:
    """Where the SLO breaks, in one sentence."""
    knee, rate = told["knee_rate_per_s"], told["rate_per_s"]
    by_arithmetic = f"arithmetic allows {figures(told['capacity_by_arithmetic_per_s'])} req/s ({told['binding']})"
    if knee is None:
        return f"no knee found between the loads tried; {by_arithmetic}"
    said = f"the SLO breaks at {figures(knee['mean'])} req/s [{figures(knee['low'])}, {figures(knee['high'])}]"
    left = told["growth_left"]["mean"]
    said += f": {percent(left)} above today's {figures(rate)}" if left >= 0 else f", below today's {figures(rate)}"
    if told["months_left"] is not None:
        said += f", {_time_left(told['months_left'])} at {percent(told['growth_per_month'])} a month"
    return f"{said}; {by_arithmetic}{_step_error(told['step_error'])}"


def _step_error(error: dict[str, Any] | None) -> str:
    """How the knee moves with step times."""
    if error is None:
        return ""
    each = {name: error[name]["value"] for name in ("longer", "shorter")}
    rates = {name: NOTHING if rate is None else f"{figures(rate)} req/s" for name, rate in each.items()}
    share = f"{100 * error['error']:.2g} %"
    return f"; if step times are {share} longer: {rates['longer']}, {share} shorter: {rates['shorter']}"


def _time_left(months: float) -> str:
    """Months of growth that are left; days where they are few."""
    if months <= 0:
        return "no time left"
    return f"{figures(months)} months" if months >= 1 else f"some {max(1.0, months * DAYS):.0f} days"


def _row(point: dict[str, Any]) -> str:
    share, interval = point["attainment"], ""
    if share and share["low"] is not None:
        interval = f"[{percent(max(0.0, share['low']))}, {percent(min(1.0, share['high']))}]"
    goodput = NOTHING if point["goodput"] is None else f"{figures(point['goodput']['mean'])}/s"
    ttft = duration(point["ttft_p99_s"] and point["ttft_p99_s"]["mean"])
    return (
        f"{figures(point['rate_per_s']):>8}/s{point['factor']:>8.2f}{percent(share and share['mean']):>12}  {interval:<18}"
        f"{goodput:>10}{ttft:>11}  {point['stability']}"
    )


def draw(told: dict[str, Any], path: str) -> None:
    """Write the figure as a file. path : .png, .svg or .pdf. Raises UserError."""
    drawing.save(figure(told), path)


def figure(told: dict[str, Any]) -> Any:
    """Goodput and throughput against load above, attainment below, the knee in both. Raises UserError."""
    plot = drawing.pyplot()
    made, (above, below) = plot.subplots(2, 1, figsize=(7, 6), sharex=True, layout="constrained")
    rates = [p["rate_per_s"] for p in told["points"]]
    for name, colour, label in (("throughput", "tab:gray", "completed"), ("goodput", "tab:blue", "goodput")):
        _band(above, told["points"], rates, name, colour, label)
    _band(below, told["points"], rates, "attainment", "tab:blue", "attainment")
    above.plot(rates, rates, ":", color="black", linewidth=0.7, label="all that arrive")
    knee = told["knee_rate_per_s"]
    for axes in (above, below):
        axes.axvline(told["rate_per_s"], color="tab:green", linewidth=0.8, label="today")
        if knee is not None:
            axes.axvspan(knee["low"], knee["high"], color="tab:red", alpha=0.25)
            axes.axvline(knee["mean"], color="tab:red", linewidth=0.8, label="the SLO breaks")
        axes.legend(fontsize=7, frameon=False)
    above.set_ylabel("requests per second", fontsize=8)
    below.set_ylabel("share of arrivals within the SLO", fontsize=8)
    below.set_xlabel("arrivals per second", fontsize=8)
    above.set_title(f"{told['replications']} replications a load, 95 % intervals", fontsize=9)
    return made


def _band(axes: Any, points: list[dict[str, Any]], rates: list[float], name: str, colour: str, label: str) -> None:
    known = [(rate, p[name]) for rate, p in zip(rates, points, strict=True) if p[name] is not None]
    x, middle = [rate for rate, _ in known], [cell["mean"] for _, cell in known]
    axes.plot(x, middle, "o-", color=colour, markersize=3, linewidth=1, label=label)
    if known and known[0][1]["low"] is not None:
        axes.fill_between(x, [c["low"] for _, c in known], [c["high"] for _, c in known], color=colour, alpha=0.2)
