"""The trade-off of `llmqsim tradeoff` as text: both latencies as bars, and the range of values that meets both targets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from llmqsim.report.show import duration, percent
from llmqsim.tradeoff import TARGETS, Point, Tradeoff

BAR = 10
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT"}


def screen(found: Tradeoff) -> str:
    """A row a value, then the answer."""
    width = max(7, *(len(f"{p.value:g}") for p in found.points))
    longest = {t: max((p_of(p, t) or 0.0) for p in found.points) for t in TARGETS}
    header = " " * width
    for target in TARGETS:
        header += f"  {NAMES[target] + ' p50':>9} {'p99':>9} {'':{BAR}} {'within':>7}"
    lines = [found.key, header.rstrip()]
    for point in found.points:
        row = f"{point.value:>{width}g}"
        for target in TARGETS:
            its = getattr(point, target)
            bar = _bar(its["p99"], longest[target])
            row += f"  {duration(its['p50']):>9} {duration(its['p99']):>9} {bar:{BAR}} {percent(point.shares[target]):>7}"
        row += "  both" if point.value in found.meets else ("  overloaded" if point.verdict == "overloaded" else "")
        lines.append(row.rstrip())
    return "\n".join([*lines, "", answer(found)])


def answer(found: Tradeoff) -> str:
    """The range in a sentence, or that there is none and what stands in the way."""
    wanted = percent(found.wanted)
    if not found.meets:
        best = {t: max((p.shares[t] or 0.0) for p in found.points) for t in TARGETS}
        told = ", ".join(f"{NAMES[t]} within its target at most {percent(best[t])}" for t in TARGETS)
        return f"No value of {found.key} meets both targets for {wanted} of the requests ({told})."
    low, high = found.meets[0], found.meets[-1]
    span = f"{low:,g}" if low == high else f"{low:,g} to {high:,g}"
    but = f", but not {', '.join(f'{v:,g}' for v in found.gaps)}" if found.gaps else ""
    return f"{found.key} of {span} meets both targets for {wanted} of the requests{but} (of the values tried)."


def told(found: Tradeoff) -> dict[str, Any]:
    """The same as plain data."""
    rows = [{**asdict(point), "meets": point.value in found.meets} for point in found.points]
    span = [found.meets[0], found.meets[-1]] if found.meets else None
    return {
        "key": found.key,
        "wanted": found.wanted,
        "range": span,
        "meets": list(found.meets),
        "answer": answer(found),
        "points": rows,
    }


def p_of(point: Point, target: str) -> float | None:
    """The 99th percentile of a latency."""
    return getattr(point, target)["p99"]


def _bar(value: float | None, longest: float) -> str:
    return "" if not value or not longest else "█" * max(1, round(BAR * value / longest))
