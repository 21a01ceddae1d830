"""The page of `llmqsim gate`: every objective of every scenario with its interval and its limit."""

from __future__ import annotations

from typing import Any

from llmqsim.report.gate_report import gate_text
from llmqsim.report.page.html import BAD, GOOD, OPEN, Block, Cell, Part, facts, folded, number, preformatted, table
from llmqsim.report.show import NOTHING, count, duration, figures, percent

WORDS = {"kept": (GOOD, "kept"), "broken": (BAD, "broken"), "inconclusive": (OPEN, "inconclusive")}
KINDS = {"kept": "good", "broken": "bad", "inconclusive": "open"}


def part(told: dict[str, Any]) -> Part:
    """The page of a gate. told : what planner.gate returns."""
    tone, word = WORDS[told["verdict"]]
    objectives = [(one, each) for one in told["scenarios"] for each in one["objectives"]]
    kept = sum(each["verdict"] == "kept" for _, each in objectives)
    said = f"{kept:,} of {count(len(objectives), 'objective')} in {count(len(told['scenarios']), 'scenario')} are kept."
    rows = [
        [
            Cell(one["scenario"]), Cell(each["name"]), number(_value(each["value"], each["unit"]), each["value"]),
            Cell(NOTHING if each["low"] is None else f"{_value(each['low'], each['unit'])} to {_value(each['high'], each['unit'])}"),
            Cell(_limit(each)), Cell(each["verdict"], kind=KINDS.get(each["verdict"], "")), Cell(each["why"] or "", kind="wide"),
        ]
        for one, each in objectives
    ]  # fmt: skip
    ran = [
        (one["scenario"], f"{one['stability']}, {one['replications']} replications, seed {one['seed']}")
        for one in told["scenarios"]
    ]
    ran += [("baseline", told["baseline"])] if told["baseline"] else []
    ran += [("note", text) for text in told["notes"]]
    blocks = [
        Block(
            "Objectives",
            table(
                "Each objective",
                ["scenario", "objective", "value", "interval", "limit", "verdict", "why"],
                rows,
                len(rows) > 8,
            ),
        ),
        Block("What it rests on", facts(ran) + folded("the same as text", preformatted(gate_text(told)))),
    ]
    return Part(
        "Do these scenarios keep what they promise?",
        tone,
        word,
        said,
        blocks,
        told,
        "gate.json",
        [w["text"] for w in told["warnings"]],
    )


def _value(value: float | None, unit: str) -> str:
    return {"s": duration, "share": percent}.get(unit, figures)(value)


def _limit(each: dict[str, Any]) -> str:
    if each["limit"] is None:
        return NOTHING
    return f"{'at least' if each['better'] == 'higher' else 'at most'} {_value(each['limit'], each['unit'])}"
