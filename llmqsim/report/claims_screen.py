"""The answer of `llmqsim claims` as a table, and what each figure rests on below it."""

from __future__ import annotations

from typing import Any

from llmqsim.report.show import NOTHING, figures, wrap
from llmqsim.terminal import width

COLUMNS = 100
HEAD = ("", "check", "published", "simulated", "band", "")
JUDGED = {True: "holds", False: "DOES NOT HOLD", None: ""}
UNDECIDED = "undecided"


def screen(told: dict[str, Any]) -> str:
    """A row a check; under each claim what it assumes, and why what does not hold does not."""
    rows = [HEAD, *(row(line) for line in told["claims"])]
    widths = [max(width(r[column]) for r in rows) for column in range(len(HEAD))]
    lines = [_joined(HEAD, widths)]
    for i, (line, cells) in enumerate(zip(told["claims"], rows[1:], strict=True)):
        lines.append(_joined(cells, widths))
        after = told["claims"][i + 1] if i + 1 < len(told["claims"]) else None
        if after is None or (after["id"], after["assumption"]) != (line["id"], line["assumption"]):
            lines += _indented(f"rests on: {line['assumption']}")
        if line["holds"] is False or line["undecided"]:
            lines += _indented(f"why not: {line['reason']}")
    size = " (reduced size)" if told["reduced"] else ""
    return "\n".join([*lines, "", f"{answer(told)}{size}", *told["notes"]])


def answer(told: dict[str, Any]) -> str:
    """How many hold."""
    judged = [line["holds"] for line in told["claims"] if line["holds"] is not None]
    undecided = sum(line["undecided"] for line in told["claims"])
    rest = len(told["claims"]) - len(judged) - undecided
    open_ones = f", {undecided} undecided" if undecided else ""
    return f"{sum(judged)} of {len(judged) + undecided} checks hold{open_ones}, {rest} are told without a band"


def row(line: dict[str, Any]) -> tuple[str, ...]:
    """The cells of one check: id, check, published, simulated, band, verdict."""
    return (
        line["id"],
        line["check"],
        number(line["published"]),
        simulated(line),
        band(line["low"], line["high"]),
        UNDECIDED if line["undecided"] else JUDGED[line["holds"]],
    )


def simulated(line: dict[str, Any]) -> str:
    """ "0.57 [0.41, 0.73]" where there is an interval over seeds."""
    if line["interval"] is None:
        return number(line["simulated"])
    low, high = line["interval"]
    return f"{figures(line['simulated'])} [{figures(low)}, {figures(high)}]"


def band(low: float | None, high: float | None) -> str:
    """ "1.5 to 3.5", "at most 1.5", "at least 2"; a dash without limits."""
    if low is None and high is None:
        return NOTHING
    if low is None or high is None:
        return f"at most {number(high)}" if low is None else f"at least {number(low)}"
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def number(value: float | None) -> str:
    """As people read it; whole numbers whole."""
    return f"{value:,.0f}" if value is not None and value == round(value) else figures(value)


def _joined(cells: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(cell + " " * (w - width(cell)) for cell, w in zip(cells, widths, strict=True)).rstrip()


def _indented(text: str) -> list[str]:
    return [f"       {line}" for line in wrap(text, COLUMNS - 7)]
