"""Measured events on the screen: each latency, what it is, and what other tools call it."""

from __future__ import annotations

from typing import Any

from llmqsim.metrics.names import NAMES
from llmqsim.report.show import count, duration, wrap

WIDTH, LABEL = 100, 12


def events_screen(measured: dict[str, Any]) -> str:
    """The figures of metrics.events.measure() as text, without a trailing newline."""
    columns = ("mean", "p50", "p90", "p99", "max")
    sizes = ", ".join(count(measured[key], key[:-1]) for key in ("requests", "chunks", "tokens"))
    lines = [sizes, f"{'':<{LABEL}}" + "".join(f"{name:>11}" for name in (*columns, "n"))]
    for name in NAMES:
        figures = measured[name.key]
        cells = "".join(f"{duration(figures[column]):>11}" for column in columns)
        lines.append(f"{name.short:<{LABEL}}{cells}{figures['n']:>11,}")
    if measured["one_token_requests"]:
        lines.append(f"{count(measured['one_token_requests'], 'request')} with one token: no TPOT, left out of it")
    for name in NAMES:
        called = "; ".join(f"{tools}: {word}" for tools, word in name.called)
        text = wrap(f"{name.definition}. {called}", WIDTH - LABEL)
        lines += [f"{name.short if i == 0 else '':<{LABEL}}{part}" for i, part in enumerate(text)]
    return "\n".join([*lines, "† from memory, not checked against the tool's present version"])
