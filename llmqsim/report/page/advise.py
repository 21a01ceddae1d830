"""The page of `llmqsim advise`: the ladder of levers, what they give and to whom, and what is left to buy."""

from __future__ import annotations

from typing import Any

from llmqsim.report.advise_screen import MARK, advise_text
from llmqsim.report.page.axis import Axis
from llmqsim.report.page.bars import Span, interval, scale
from llmqsim.report.page.compare import signed
from llmqsim.report.page.html import (
    BAD,
    GOOD,
    OPEN,
    Block,
    Cell,
    Part,
    facts,
    folded,
    number,
    paragraph,
    preformatted,
    table,
)
from llmqsim.report.show import NOTHING, count, figures, percent

WORDS = {
    "no_hardware_needed": (GOOD, "kept"),
    "levers": (GOOD, "settings are enough"),
    "add_gpus": (OPEN, "more GPUs"),
    "out_of_reach": (BAD, "out of reach"),
}


def part(told: dict[str, Any]) -> Part:
    """The page of advice. told : what planner.advise returns."""
    tone, word = WORDS.get(told["verdict"], (OPEN, "not known"))
    said = told["explanation"]
    blocks = [
        Block(
            "Why",
            facts(
                [
                    ("cause" if not i else "also", f"{one['says']} ({one['evidence']})")
                    for i, one in enumerate(told["causes"])
                ]
            ),
        ),
        Block("The ladder", _ladder(told)),
        Block("Best together", facts(_stack(told))),
        Block("Left out", _left_out(told)),
        Block("What it rests on", facts(_rests_on(told)) + folded("the same as text", preformatted(advise_text(told)))),
    ]
    title = told["question"] or "What should change before buying?"
    warned = [one["text"] for one in told["warnings"]]
    return Part(title, tone, word, f"{said[:1].upper()}{said[1:]}", blocks, told, "advise.json", warned)


def rungs(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The levers from the one that gives most attainment to the one that gives least, in points."""
    return sorted(told["levers"], key=lambda one: -one["attainment"]["difference"])


def points(cell: dict[str, Any]) -> Span:
    """What a lever gives, in points of attainment."""
    ends = [None if cell[end] is None else 100 * cell[end] for end in ("low", "high")]
    return Span(ends[0], 100 * cell["difference"], ends[1])


def _said(one: Span, unit: str) -> str:
    ends = "" if one.low is None or one.high is None else f" [{signed(one.low)}, {signed(one.high)}]"
    return f"{signed(one.middle)}{unit}{ends}"


def _ladder(told: dict[str, Any]) -> str:
    levers = rungs(told)
    if not levers:
        return paragraph("No lever is left to pull.")
    spans = [points(one["attainment"]) for one in levers]
    axis = Axis.over([0.0, *(v for s in spans for v in (s.low, s.middle, s.high))])
    rows = []
    for one, own in zip(levers, spans, strict=True):
        tone = GOOD if one["helps"] else ""
        gained = one["capacity_per_s"]
        rate = NOTHING if gained is None else _said(Span(gained["low"], gained["difference"], gained["high"]), "")
        worse = "; ".join(dict.fromkeys(group["group"].split(":", 1)[-1] for group in one["worse"])) or "nobody shown"
        says = one["says"] + ("; changes the model's outputs" if one["changes_answers"] else "")
        rows.append(
            [
                Cell(f"{one['lever']}{MARK if one['changes_answers'] else ''}"), Cell(_said(own, " points"), own.middle, "keep"),
                interval(Span(own.low, own.middle, own.high, tone), axis, _said(own, " points"), [0.0]),
                Cell(rate, "" if gained is None else gained["difference"], "keep"), number(f"{one['gpus']:,}", one["gpus"]),
                Cell(worse, kind="wide"), Cell(says, kind="wide"),
            ]
        )  # fmt: skip
    heads = ["lever", "attainment", scale(axis), "req/s within the SLO", "GPUs", "who gets worse", "what it does"]
    commands = "\n".join(one["command"] for one in levers)
    return table("What each lever gives alone", heads, rows) + folded(
        "the command that shows each", preformatted(commands)
    )


def _left_out(told: dict[str, Any]) -> str:
    rows = [
        [Cell(one["lever"]), Cell(one["says"], kind="wide"), Cell(one["reason"], kind="wide")]
        for one in told["left_out"]
    ]
    shown = table("Levers that were not followed up", ["lever", "what it does", "why"], rows, searched=True)
    return folded(f"{count(len(rows), 'setting')} that were tried or could not be", shown) if rows else ""


def _stack(told: dict[str, Any]) -> list[tuple[str, str]]:
    base, one, left, spared = told["base"], told["stack"], told["hardware"], told["gpus_spared"]
    rows = [
        (
            "now",
            f"{percent(base['attainment']['mean'])} of {percent(base['attainment']['asked'])} asked for, {count(base['gpus'], 'GPU')}",
        )
    ]
    if one is not None:
        outputs = ", which changes the model's outputs" if one["changes_answers"] else ""
        kept = "kept" if one["kept"] else "not kept"
        rows.append(
            ("levers together", f"{' + '.join(one['levers'])}{outputs}: {percent(one['attainment']['mean'])}, {kept}")
        )
        rows += [("vllm serve", "  ".join(one["vllm_serve"]))] if one["vllm_serve"] else []
        rows += [("and change", "  ".join(one["other_changes"]))] if one["other_changes"] else []
        rows.append(("shown by", one["command"]))
    if left is not None:
        bought = (
            f"{count(left['add_gpus'], 'GPU')} more" if left["add_gpus"] else f"{left['reason']}: {left['explanation']}"
        )
        rows.append(("left to buy", bought))
    if spared is not None:
        rows.append(("GPUs spared", figures(spared["spared"]["mean"])))
    return rows


def _rests_on(told: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("same again", told["command"]),
        ("runs", f"{told['replications']} of each, of {told['requests']:,} requests, seed {told['seed']}"),
    ]
    return [*rows, *(("note", text) for text in told["notes"])]
