"""The page of `llmqsim compare`: every paired difference with its interval, and who gains or loses by class, length and time."""

from __future__ import annotations

from typing import Any

from llmqsim.report.compare_screen import compare_text, label, unit
from llmqsim.report.page.axis import Axis
from llmqsim.report.page.bars import Span, interval, squeeze, squeezed_scale
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
from llmqsim.report.show import NOTHING, duration, figures, percent

TONES = {"better": GOOD, "worse": BAD}
GROUPS = {"class": "class", "tenant": "tenant", "length": "tokens, prompt and output", "time": "when they were due"}
SHOWN = ("attainment", "ttft_s.mean", "e2e_s.mean")


def part(told: dict[str, Any]) -> Part:
    """The page of a comparison. told : what planner.compare returns."""
    tone, word, verdict = judged(told)
    blocks = [
        Block(
            "Differences", paragraph(_how(told), "soft") + "".join(_variant(told, name) for name in told["differences"])
        ),
        Block("Who gains, who loses", "".join(_groups(told, kind) for kind in GROUPS)),
        Block(
            "What it rests on", facts(_rests_on(told)) + folded("the same as text", preformatted(compare_text(told)))
        ),
    ]
    title = told["question"] or f"{', '.join(told['differences'])} against {told['against']}"
    return Part(title, tone, word, verdict, blocks, told, "compare.json", [one["text"] for one in told["warnings"]])


def judged(told: dict[str, Any]) -> tuple[str, str, str]:
    """Tone, word and sentence over all variants and figures."""
    said, better, worse = [], 0, 0
    for name, cells in told["differences"].items():
        found = {
            word: [label(key) for key, cell in cells.items() if cell and cell["verdict"] == word] for word in TONES
        }
        better, worse = better + len(found["better"]), worse + len(found["worse"])
        each = [f"{word} in {', '.join(keys)}" for word, keys in found.items() if keys]
        said.append(f"{name} against {told['against']}: {'; '.join(each) or 'no difference is shown'}")
    tone, word = OPEN, "no difference shown"
    if better or worse:
        tone, word = (GOOD, "better") if not worse else (BAD, "worse") if not better else (OPEN, "better and worse")
    return tone, word, f"{'. '.join(said)}."


def _how(told: dict[str, Any]) -> str:
    runs = "one run, in batches" if told["replications"] == 1 else f"{told['replications']} paired runs"
    return (
        f"{runs} on the same traffic, seed {told['seed']}; intervals at {percent(told['confidence'])}. Differences are in per cent of "
        f"{told['against']}, of shares in points. Beyond 10 the scale is logarithmic."
    )


def share(cell: dict[str, Any], key: str) -> float | None:
    """What a difference is multiplied by to be per cent or points; None where there is no base to compare with."""
    if unit(key) == "share":
        return 100.0
    return 100.0 / abs(cell["base"]) if cell["base"] else None


def span(cell: dict[str, Any], key: str) -> Span | None:
    """A difference in per cent or points, squeezed."""
    factor = share(cell, key)
    if factor is None:
        return None
    ends = [None if cell[end] is None else squeeze(factor * cell[end]) for end in ("low", "high")]
    return Span(ends[0], squeeze(factor * cell["difference"]), ends[1], TONES.get(cell["verdict"], ""))


def axis(spans: list[Span | None]) -> Axis:
    """One for all of them, with zero in it."""
    return Axis.over([0.0, *(v for s in spans if s for v in (s.low, s.middle, s.high))])


def value(number_: float | None, key: str) -> str:
    """A figure in its unit."""
    if number_ is None:
        return NOTHING
    return {"s": duration, "share": percent, "/s": lambda v: f"{figures(v)}/s"}.get(unit(key), figures)(number_)


def change(cell: dict[str, Any], key: str) -> str:
    """The difference and its interval in words."""
    factor = share(cell, key)
    if factor is None:
        return signed(cell["difference"])
    word = " points" if unit(key) == "share" else " %"
    ends = "" if cell["low"] is None else f" [{signed(factor * cell['low'])}, {signed(factor * cell['high'])}]"
    return f"{signed(factor * cell['difference'])}{word}{ends}"


def signed(number_: float) -> str:
    """With its sign."""
    return "0" if number_ == 0 else f"{'−' if number_ < 0 else '+'}{figures(abs(number_))}"


def _variant(told: dict[str, Any], name: str) -> str:
    cells = {key: cell for key, cell in told["differences"][name].items() if cell is not None}
    spans = {key: span(cell, key) for key, cell in cells.items()}
    over = axis(list(spans.values()))
    rows = []
    for key, cell in cells.items():
        own, said = spans[key], change(cell, key)
        drawn = Cell(kind="bar") if own is None else interval(own, over, said, [0.0])
        kind = TONES.get(cell["verdict"], "")
        rows.append(
            [
                Cell(label(key)), number(value(cell["base"], key), cell["base"]), number(value(cell["value"], key), cell["value"]),
                Cell(said, cell["difference"], "keep"), drawn, Cell(cell["verdict"], kind=kind),
            ]
        )  # fmt: skip
    heads = ["figure", told["against"], name, "difference", squeezed_scale(over), "verdict"]
    return table(f"{name} against {told['against']}", heads, rows)


def _groups(told: dict[str, Any], kind: str) -> str:
    names = [name for name in told["groups"] if name.startswith(f"{kind}:")]
    picked = [
        (group, variant, key, cell)
        for group in names
        for variant, own in told["groups"][group]["variants"].items()
        if variant != told["against"]
        for key, cell in own["figures"].items()
        if key in SHOWN and cell is not None
    ]
    spans = [span(cell, key) for _, _, key, cell in picked]
    over, rows = axis(spans), []
    for (group, variant, key, cell), own in zip(picked, spans, strict=True):
        said = change(cell, key)
        rows.append(
            [
                Cell(group.split(":", 1)[1], names.index(group)), Cell(variant), Cell(label(key)), Cell(said, cell["difference"], "keep"),
                Cell(kind="bar") if own is None else interval(own, over, said, [0.0]),
                Cell(cell["verdict"], kind=TONES.get(cell["verdict"], "")),
            ]
        )  # fmt: skip
    heads = [GROUPS[kind], "variant", "figure", "difference", squeezed_scale(over), "verdict"]
    return table(f"By {GROUPS[kind]}", heads, rows, searched=True) if rows else ""


def _rests_on(told: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("scenario", str(told["scenario"]))]
    for name, own in told["variants"].items():
        rows.append((name, f"{own['stability']}, {own['engine']} engine"))
    return [*rows, *(("note", text) for text in told["notes"])]
