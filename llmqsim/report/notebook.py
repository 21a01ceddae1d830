"""Scenarios, runs and answers in a notebook: a verdict and small tables, in HTML that needs no style and no script."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from llmqsim.report import headline
from llmqsim.report.page.html import Part, esc
from llmqsim.report.show import duration, figures, percent

MOST_ROWS = 12


def of_result(result: Any) -> str:
    """A run: its verdict, latencies, and what it did."""
    from llmqsim.report.page import run

    told = result.summary()
    _, word, verdict = run.judged(told)
    names = ("mean", "p50", "p90", "p99", "max")
    shown = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s"), ("wait", "wait_s"))
    latencies = [[name, *(duration(told[key][n]) for n in names)] for name, key in shown]
    facts = [
        ("ran", headline.system(told)), ("traffic", headline.traffic(told)),
        ("throughput", f"{figures(told['throughput']['requests_per_s'])} req/s, busy {percent(told['utilisation']['busy'])}"),
    ]  # fmt: skip
    warned = [one["text"] for one in told["warnings"]]
    return _said(word, verdict, warned) + _table(["", *names], latencies) + _table([], facts)


def of_answer(command: str, told: dict[str, Any]) -> str:
    """An answer of many runs: its verdict, warnings and notes."""
    part = _parts()[command](told)
    return _said(part.word, part.verdict, part.warnings) + _table(
        [], [("note", text) for text in told.get("notes") or ()]
    )


def _parts() -> dict[str, Callable[[dict[str, Any]], Part]]:
    from llmqsim.report.page import make

    return make.SHOWN


def figure(command: str, told: dict[str, Any]) -> Any:
    """The figure of an answer."""
    from llmqsim.report import capacity_screen, compare_figure, figures

    drawn = {"compare": compare_figure.figure, "capacity": capacity_screen.figure}
    return drawn[command](told) if command in drawn else figures.figure(command, told)


def of_scenario(scenario: Any) -> str:
    """What a scenario sets, key by key, as it was resolved."""
    told = scenario.to_dict()
    rows = list(_flat("", {key: value for key, value in told.items() if key not in ("question", "variants")}))
    question = told.get("question") or told.get("name") or "a scenario"
    return _said("", question, ()) + _table(["key", "value"], rows)


def _flat(lead: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(f"{lead}.{key}" if lead else str(key), inner)
    elif value is not None and value != {}:
        yield lead, str(value)


def _said(word: str, verdict: str, warned: Iterable[str]) -> str:
    head = f"<p><b>{esc(word)}{': ' if word else ''}</b>{esc(verdict)}</p>"
    return head + "".join(f"<p><i>warning: {esc(text)}</i></p>" for text in warned)


def _table(heads: list[str], rows: Iterable[Iterable[str]]) -> str:
    inner = "".join("<tr>" + "".join(f"<td>{esc(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    top = "<tr>" + "".join(f"<th>{esc(head)}</th>" for head in heads) + "</tr>" if heads else ""
    return f"<table>{top}{inner}</table>" if inner else ""
