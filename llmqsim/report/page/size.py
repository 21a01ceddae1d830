"""The page of `llmqsim size`: how many, what one less gives, what was tried, and how far to trust it."""

from __future__ import annotations

from typing import Any

from llmqsim.report.page.axis import Axis
from llmqsim.report.page.bars import Span, bar, interval, scale
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
    preformatted,
    table,
    tiles,
)  # fmt: skip
from llmqsim.report.show import NOTHING, count, figures, percent
from llmqsim.report.size_screen import WAITS, size_text

TONES = {"kept": GOOD, "broken": BAD}
WORDS = {"feasible": (GOOD, "found"), "infeasible": (BAD, "none")}


def part(told: dict[str, Any]) -> Part:
    """The page of a size. told : what planner.sizing.size returns."""
    scenario = told.get("scenario") or {}
    tone, word = WORDS.get(told["verdict"], (OPEN, "not known"))
    if told["split"] is not None:
        tone, word = GOOD, "found"
    blocks = [
        Block("In short", tiles(_tiles(told))),
        Block("How much is enough", _steps(told)),
        Block("What was tried", _candidates(told)),
        Block("What it rests on", facts(_rests_on(told)) + folded("the same as text", preformatted(text(told)))),
    ]
    title = scenario.get("question") or "How many replicas keep the SLO?"
    return Part(title, tone, word, verdict(told), blocks, told, "size.json", [one["text"] for one in told["warnings"]])


def text(told: dict[str, Any]) -> str:
    """The screen, without how long the search took: a file does not hold it."""
    return size_text({"seconds": 0.0, **told}).rpartition("\n\n")[0]


def verdict(told: dict[str, Any]) -> str:
    """The answer in one sentence."""
    if told["verdict"] == "feasible":
        chosen, kept = told["deployment"], told["attainment"]
        each = chosen["tensor_parallel_size"] * chosen["pipeline_parallel_size"]
        shape = "" if each == 1 else f" of {each} GPUs"
        said = f"{count(told['replicas'], 'replica')}{shape}, {told['gpus']:,} × {chosen['gpu'] or 'GPU'}, keep the SLO: {_share(kept)}"
        said += f" of {percent(kept['asked'])} asked for ({kept['objective']})"
        return said + (f", ${told['usd_per_hour']:,.2f} an hour." if told["usd_per_hour"] is not None else ".")
    if told["split"] is not None:
        one = told["split"]
        return f"{one['prefill_replicas']} prefill and {one['decode_replicas']} decode replicas, {one['gpus']:,} GPUs, keep the SLO."
    return f"{told['reason']}: {told['explanation']}"


def _share(one: dict[str, Any]) -> str:
    interval_ = "" if one["low"] is None else f" [{percent(one['low'])}, {percent(one['high'])}]"
    return f"{percent(one['mean'])}{interval_}"


def _tiles(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    if told["verdict"] != "feasible":
        return []
    rows = [("replicas", f"{told['replicas']:,}", count(told["gpus"], "GPU"))]
    if told["usd_per_hour"] is not None:
        rows.append(("cost", f"${told['usd_per_hour']:,.2f}", "an hour"))
    more = told["n_plus_one"]
    rows.append(("if one fails", f"{more['replicas']:,} replicas", f"N+1, {count(more['gpus'], 'GPU')}"))
    if told["headroom_rate_per_s"] is not None:
        rows.append(
            (
                "head-room",
                f"{figures(told['headroom_rate_per_s'])} req/s",
                f"of {figures(told['theory']['rate_per_s'])} now",
            )
        )
    if told["binds"] is not None:
        rows.append(("binds", told["binds_target"].upper(), str(WAITS.get(told["binds"], told["binds"]))))
    return rows


def _steps(told: dict[str, Any]) -> str:
    """Attainment with the answer and with one less, against what is asked for."""
    rows = []
    if told["one_less"] is not None:
        rows.append((count(told["one_less"]["replicas"], "replica"), told["one_less"]))
    if told["verdict"] == "feasible":
        rows.append((count(told["replicas"], "replica"), told["attainment"]))
    if (one := told["split"]) is not None:
        pair = (one["prefill_replicas"], one["decode_replicas"])
        for phase, less in one["one_less"].items():
            if less is not None:
                rows.append((f"{pair[0] - (phase == 'prefill')} prefill, {pair[1] - (phase == 'decode')} decode", less))
        rows.append((f"{pair[0]} prefill, {pair[1]} decode", one["attainment"]))
    if not rows:
        return ""
    asked = rows[0][1]["asked"]
    axis = Axis.share([v for _, one in rows for v in (one["low"], one["mean"], asked)])
    lines = [
        [
            Cell(name), number(percent(one["mean"]), one["mean"]), Cell(_share(one)),
            interval(Span(one["low"], one["mean"], one["high"], TONES.get(one["judged"], "")), axis, _share(one), [asked]),
            Cell({"kept": "enough", "broken": "too few"}.get(one["judged"], f"not shown: {one.get('why') or one['judged']}")),
        ]
        for name, one in rows
    ]  # fmt: skip
    return table(
        f"Share of arrivals that keep the SLO; the line is the {percent(asked)} asked for",
        ["", "kept", "interval", scale(axis), ""],
        lines,
    )


def _candidates(told: dict[str, Any]) -> str:
    found = [(_named(one), one, one["replicas"]) for one in told["candidates"]]
    found += [(f"split, {_named(one)}", one, one["prefill_replicas"]) for one in told["split_candidates"]]
    dearest = max((one.get("usd_per_hour") or 0.0 for _, one, _ in found), default=0.0)
    lines = []
    for name, one, replicas in found:
        if replicas is None:
            lines.append(
                [
                    Cell(name),
                    number(NOTHING, None),
                    number(NOTHING, None),
                    Cell(f"{one['reason']}: {one['explanation']}", kind="wide"),
                ]
            )
            continue
        dollars = one["usd_per_hour"]
        said = NOTHING if dollars is None else f"${dollars:,.2f}"
        drawn = Cell() if dollars is None else bar([dollars], dearest, said)
        lines.append([Cell(name), number(f"{one['gpus']:,}", one["gpus"]), number(said, dollars), drawn])
    return table("Candidates", ["", "GPUs", "an hour", ""], lines, searched=len(lines) > 8) if lines else ""


def _named(one: dict[str, Any]) -> str:
    return ", ".join(f"{key.split('.')[-1]} {value}" for key, value in one["choice"].items())


def _rests_on(told: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("same again", told["command"]), ("runs", f"{told['runs']:,}")]
    rows += [("price", text_) for text_ in told["prices"]]
    return [*rows, *(("note", text_) for text_ in told["notes"])]
