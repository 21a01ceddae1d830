"""The comparison with a start-up log as a page for a terminal."""

from __future__ import annotations

import textwrap
from typing import Any

from llmqsim.units import format_bytes

WIDTH = 100
GIB = 2**30


def beside_log_text(told: dict[str, Any]) -> str:
    """The page, without a trailing newline."""
    version = f", vLLM {told['engine_version']}" if told["engine_version"] else ""
    lines = [f"{told['log']}{version}, beside {told['file']} ({told['model']})", ""]
    lines.append(f"  {'':<34}{'log':>18}{'ours':>18}{'difference':>12}  line")
    for one in told["lines"]:
        off = one["relative_difference"]
        difference = "" if off is None else f"{100 * off:+.1f} %"
        at = "" if one["line"] is None else f"{one['line']}"
        row = f"  {one['name']:<34}{_shown(one['log'], one['unit']):>18}{_shown(one['ours'], one['unit']):>18}{difference:>12}"
        lines.append(f"{row}  {at}".rstrip())
        if one["note"]:
            lines.append(f"      {one['note']}")
    if told["settings"]:
        lines += ["", "The log says otherwise than the scenario"]
        for one in told["settings"]:
            lines.append(f"  {one['key']}: {one['log']} (line {one['line']}; the scenario: {one['ours']})")
    if told["keys"]:
        lines += ["", "Keys that take the log's figures (the last one alone states the whole pool)"]
        lines += [f"  {key}: {value}" for key, value in told["keys"].items()]
    if told["notes"]:
        lines.append("")
        lines += [
            part
            for note in told["notes"]
            for part in textwrap.wrap(note, WIDTH, initial_indent="  ", subsequent_indent="  ")
        ]
    return "\n".join(lines)


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "bytes":
        return f"-{format_bytes(-value)}" if value < 0 else f"{value / GIB:.2f} GiB"
    return f"{value:.2f}" if unit == "requests" else f"{value:,.0f}"
