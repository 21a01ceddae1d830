"""Text for a terminal: characters that it can't show are spelt otherwise, none can steer it, wide ones count as two."""

from __future__ import annotations

import codecs
import sys
import unicodedata

SPELT: dict[str, str] = {
    "×": "x", "≤": "<=", "≥": ">=", "–": "-", "—": "-", "…": "...", "µ": "u", "μ": "u", "→": "->", "²": "^2",
    "√": "sqrt", "†": "(+)", "·": "*", "é": "e", "−": "-",
}  # fmt: skip
"""what our own texts use beyond ASCII; anything else becomes a question mark"""

TURNS = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
"""characters that turn the direction of what follows"""


def prepare() -> None:
    """Make stdout and stderr take any text, whatever the terminal's encoding."""
    codecs.register_error("llmqsim", _spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="llmqsim")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(SPELT.get(c, "?") for c in error.object[error.start : error.end]), error.end


def plain(text: str) -> str:
    """The text without control characters but line ends: a user's text must not steer the reader's terminal."""
    if text.isprintable():
        return text
    return "".join("?" if unicodedata.category(c) == "Cc" and c != "\n" or c in TURNS else c for c in text)


def width(text: str) -> int:
    """Columns that a text takes: two for a wide (East Asian) character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
