"""The trade-off of `llmqsim tradeoff` as text: both latencies as bars, and the range of values that meets both targets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from llmqsim.report.show import duration, percent, warnings
from llmqsim.tradeoff import BROKEN, KEPT, OPEN, TARGETS, Point, Tradeoff

BAR = 10
WIDTH = 100
"""of sentences; rows are as wide as they need"""
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT"}
SAID = {KEPT: "both", BROKEN: "no", OPEN: "undecided"}


def screen(found: Tradeoff) -> str:
    """A row a value, then the answer."""
    width = max(7, *(len(f"{p.value:g}") for p in found.points))
    longest = {t: max((p_of(p, t) or 0.0) for p in found.points) for t in TARGETS}
    header = " " * width
    for target in TARGETS:
        header += f"  {NAMES[target] + ' p50':>9} {'p99':>9} {'':{BAR}} {'within':>7}"
    lines = [*warnings(found.warnings, WIDTH), found.key, f"{header}  {'both':>7}  95 % interval"]
    for point in found.points:
        row = f"{point.value:>{width}g}"
        for target in TARGETS:
            its = getattr(point, target)
            bar = _bar(its["p99"], longest[target])
            row += f"  {duration(its['p50']):>9} {duration(its['p99']):>9} {bar:{BAR}} {percent(point.shares[target]):>7}"
        joint = point.joint
        interval = "too few for one" if joint.low is None or joint.high is None else f"{percent(joint.low)} to {percent(joint.high)}"
        settled = "" if point.verdict == "stable" else f", {point.verdict}"
        lines.append(f"{row}  {percent(joint.mean):>7}  {interval:<16}  {SAID[point.judged]}{settled}".rstrip())
    return "\n".join([*lines, "", answer(found)])


def answer(found: Tradeoff) -> str:
    """The range in a sentence, or that there is none and what stands in the way."""
    wanted = percent(found.wanted)
    if not found.meets:
        best = {t: max((p.shares[t] or 0.0) for p in found.points) for t in TARGETS}
        told = ", ".join(f"{NAMES[t]} within its target at most {percent(best[t])}" for t in TARGETS)
        both = percent(max(p.joint.mean or 0.0 for p in found.points))
        no = "No value" if not found.open else f"Of {_listed(found.open)} the runs can't tell (longer ones may); no other value"
        return f"{no} of {found.key} is shown to meet both targets for {wanted} of the requests ({told}, both at most {both})."
    low, high = found.meets[0], found.meets[-1]
    span = f"{low:,g}" if low == high else f"{low:,g} to {high:,g}"
    gaps = [value for value in found.gaps if value not in found.open]
    but = f", but not {_listed(gaps)}" if gaps else ""
    open_ = f" Of {_listed(found.open)} the runs can't tell: longer ones may." if found.open else ""
    return f"{found.key} of {span} meets both targets for {wanted} of the requests{but} (of the values tried).{open_}"


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:,g}" for value in values)


def told(found: Tradeoff) -> dict[str, Any]:
    """The same as plain data."""
    rows = [{**asdict(point), "meets": point.value in found.meets} for point in found.points]
    span = [found.meets[0], found.meets[-1]] if found.meets else None
    return {
        "key": found.key,
        "wanted": found.wanted,
        "range": span,
        "meets": list(found.meets),
        "undecided": list(found.open),
        "warnings": list(found.warnings),
        "answer": answer(found),
        "points": rows,
    }


def p_of(point: Point, target: str) -> float | None:
    """The 99th percentile of a latency."""
    return getattr(point, target)["p99"]


def _bar(value: float | None, longest: float) -> str:
    return "" if not value or not longest else "█" * max(1, round(BAR * value / longest))
