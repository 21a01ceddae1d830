"""What `llmqsim gate` leaves for a CI: the log, JUnit XML, a Markdown summary, and annotations. No times, no dates: the
same commit and seed give the same bytes."""

from __future__ import annotations

import re
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from llmqsim.report.show import NOTHING, count, duration, figures

MOST_BYTES = 1_000_000
"""GitHub takes a summary of up to 1 MiB"""
MARK = {"kept": "pass", "broken": "FAIL", "inconclusive": "INCONCLUSIVE"}


def gate_text(told: dict[str, Any]) -> str:
    """The log: a line for every objective, with baseline, value, interval and limit."""
    lines = [f"warning: {one['text']}" for one in told["warnings"]]
    for one in told["scenarios"]:
        runs = count(one["replications"], "replication")
        lines.append(f"{one['scenario']}: {one['verdict']} ({one['stability']}, {runs}, seed {one['seed']})")
        lines += [f"  {MARK[o['verdict']]:<13}{sentence(o)}" for o in one["objectives"]]
    lines += [f"note: {note}" for note in told["notes"]]
    lines.append(f"gate: {told['verdict']}")
    return "\n".join(lines)


def sentence(one: dict[str, Any]) -> str:
    """"attainment: 98.7 % [97.9 %, 99.5 %], limit at least 99 %: the interval straddles the limit"."""
    kind = "share" if one["kind"] == "slo" else one["unit"]
    interval = "" if one["low"] is None else f" [{_value(one['low'], kind)}, {_value(one['high'], kind)}]"
    side = "at least" if one["better"] == "higher" else "at most"
    limit = "" if one["limit"] is None else f", limit {side} {_value(one['limit'], kind)}"
    before = "" if one["baseline"] is None else f", baseline {_value(one['baseline'], kind)}"
    inside = ""
    if one["limits_s"]:
        inside = " (" + ", ".join(f"{t.removesuffix('_s').upper()} <= {duration(s)}" for t, s in one["limits_s"].items()) + ")"
    why = f": {one['why']}" if one["why"] else ""
    return f"{one['name']}{inside}: {_value(one['value'], kind)}{interval}{before}{limit}{why}"


def _value(value: float | None, kind: str) -> str:
    if value is None:
        return NOTHING
    if kind == "share":
        return f"{100 * value:.2f} %"
    return duration(value) if kind == "s" else figures(value) + ("/s" if kind == "/s" else "")


def annotations(told: dict[str, Any]) -> str:
    """Workflow commands: an error on the scenario's line for each objective that is not kept."""
    lines = []
    for one in told["scenarios"]:
        place = re.fullmatch(r"(.*?)(?::(\d+))?(?: .*)?", one["file_line"])
        file, line = (place[1], place[2] or "1") if place else (one["scenario"], "1")
        for o in one["objectives"]:
            if o["verdict"] != "kept":
                kind = "error" if o["verdict"] == "broken" else "warning"
                lines.append(f"::{kind} file={_property(file)},line={line},title={_property('llmqsim gate')}::{_message(sentence(o))}")
    return "\n".join(lines)


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def junit(told: dict[str, Any]) -> str:
    """JUnit XML: a suite a scenario, a case an objective. Inconclusive is an error: it never passes."""
    suites, totals = [], {"tests": 0, "failures": 0, "errors": 0}
    for one in told["scenarios"]:
        objectives = one["objectives"]
        counts = {
            "tests": len(objectives),
            "failures": sum(o["verdict"] == "broken" for o in objectives),
            "errors": sum(o["verdict"] == "inconclusive" for o in objectives),
        }
        totals = {key: totals[key] + counts[key] for key in totals}
        attributes = " ".join(f'{key}="{value}"' for key, value in counts.items())
        suites.append(f"  <testsuite name={_attribute(one['scenario'])} {attributes}>")
        suites += [line for o in objectives for line in _case(one, o)]
        if told["notes"]:
            suites.append(f"    <system-out>{_text(' '.join(told['notes']))}</system-out>")
        suites.append("  </testsuite>")
    attributes = " ".join(f'{key}="{value}"' for key, value in totals.items())
    body = "\n".join(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="llmqsim gate" {attributes}>\n{body}\n</testsuites>\n'


def _case(one: dict[str, Any], o: dict[str, Any]) -> list[str]:
    head = f"    <testcase classname={_attribute(one['scenario'])} name={_attribute(o['name'])}"
    tag = {"broken": "failure", "inconclusive": "error"}.get(o["verdict"])
    if tag is None:
        return [head + "/>"]
    said = f"      <{tag} type={_attribute(o['verdict'])} message={_attribute(sentence(o))}>{_text(sentence(o))}</{tag}>"
    return [head + ">", said, "    </testcase>"]


def _attribute(text: str) -> str:
    return quoteattr(_legal(text))


def _text(text: str) -> str:
    return escape(_legal(text))


def _legal(text: str) -> str:
    """Without characters that XML has no way to hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def markdown(told: dict[str, Any]) -> str:
    """A summary below 1 MiB: broken and inconclusive objectives first, then the rest as far as there is room."""
    head = [f"## llmqsim gate: {told['verdict']}", "", *(f"> {note}" for note in told["notes"])]
    head += ["", "| scenario | objective | verdict | value | interval | baseline | limit |", "| --- | --- | --- | --- | --- | --- | --- |"]
    rows = [(o["verdict"] == "kept", _row(one, o)) for one in told["scenarios"] for o in one["objectives"]]
    lines, size = list(head), sum(len(line.encode()) + 1 for line in head)
    ordered = [row for kept, row in sorted(rows, key=lambda item: item[0])]
    for number, row in enumerate(ordered):
        size += len(row.encode()) + 1
        if size > MOST_BYTES:
            lines.append(f"\nand {len(ordered) - number:,} more")
            break
        lines.append(row)
    return "\n".join(lines) + "\n"


def _row(one: dict[str, Any], o: dict[str, Any]) -> str:
    kind = "share" if o["kind"] == "slo" else o["unit"]
    interval = "" if o["low"] is None else f"{_value(o['low'], kind)} to {_value(o['high'], kind)}"
    side = "≥" if o["better"] == "higher" else "≤"
    limit = "" if o["limit"] is None else f"{side} {_value(o['limit'], kind)}"
    verdict = MARK[o["verdict"]] + (f": {o['why']}" if o["why"] else "")
    before = "" if o["baseline"] is None else _value(o["baseline"], kind)
    cells = (one["scenario"], o["name"], verdict, _value(o["value"], kind), interval, before, limit)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
