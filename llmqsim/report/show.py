"""Numbers as people read them: three significant figures, the unit that fits, an en dash for what doesn't exist."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from llmqsim.terminal import width

NOTHING = "–"


SMALLEST = 1e-4
"""less than this is said to be less, not written with an exponent"""
NANOSECOND = 1e-9


def figures(value: float | None) -> str:
    """Three significant figures, no exponent; whole numbers from 100 on, with thousands separators."""
    if value is None:
        return NOTHING
    if 0 < abs(value) < SMALLEST:
        return f"< {SMALLEST:g}" if value > 0 else f"> -{SMALLEST:g}"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    digits = 2 if abs(value) < 9.995 else 1
    return f"{value:.{digits}f}" if abs(value) >= 0.9995 or value == 0 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """"12.3 ms", "4.56 s", "250 µs"."""
    if seconds is None:
        return NOTHING
    size = abs(seconds)
    if size >= 0.9995 or size == 0:
        return f"{figures(seconds)} s"
    if size >= 0.9995e-3:
        return f"{figures(seconds * 1e3)} ms"
    if size >= NANOSECOND:
        return f"{figures(seconds * 1e6)} µs"
    return "< 1 ns" if seconds > 0 else "> -1 ns"


def limit(seconds: float) -> str:
    """A target as one would write it: "500 ms", "1.5 s", all digits, no trailing zeros."""
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"


def percent(share: float | None) -> str:
    """"97.3 %", rounded down, so that what is shown was reached; "< 0.1 %" for what is more than nothing."""
    if share is None:
        return NOTHING
    if share < 0:  # a lower bound, or a change: the size is rounded up, so that it is nowhere flattered
        return f"-{math.ceil(-share * 1000 - 1e-9) / 10:g} %"
    tenths = math.floor(share * 1000 + 1e-9)
    if tenths == 0 and share > 0:
        return "< 0.1 %"
    return f"{tenths // 10}.{tenths % 10} %".replace(".0 %", " %")


def count(number: int, thing: str) -> str:
    """"1 request", "2,000 requests"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def warnings(told: Iterable[dict[str, str]] | None, columns: int) -> list[str]:
    """What makes the figures err, whole. told : caveats as plain data; they stand on top of every screen."""
    return [line for one in told or () for line in wrap(f"warning: {one['text']}", columns)]


def clip(text: str, columns: int) -> str:
    """At most so many columns of a terminal; what is cut off is shown by an ellipsis."""
    if width(text) <= columns:
        return text
    while width(text) > columns - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns; a number and its unit are never parted, a word only where it fits nowhere."""
    joined = re.sub(r"(?<=[0-9]) (?=(%|s|ms|µs)(\W|$))|(?<=\bseed) (?=[0-9])", "\0", text)
    lines: list[str] = []
    for word in joined.split():
        if lines and width(lines[-1]) + 1 + width(word) <= columns:
            lines[-1] += f" {word}"
            continue
        while width(word) > columns:
            part = word[:1]
            while width(part + word[len(part)]) <= columns:
                part += word[len(part)]
            lines.append(part)
            word = word[len(part) :]
        lines.append(word)
    return [line.replace("\0", " ") for line in lines]
