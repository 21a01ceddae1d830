"""The parts that every page is made of: text that can't be markup, tables, facts, data, and the whole file."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

GOOD, BAD, OPEN = "good", "bad", "open"
"""tones of a verdict: kept, not kept, not known"""
MOST_DATA = 2_000_000
"""bytes of an answer that is kept in a page"""


def esc(text: object) -> str:
    """Text as HTML, in an element or in an attribute with double quotes."""
    return html.escape(str(text), quote=True)


def data(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


@dataclass(frozen=True)
class Block:
    """A section of a page: its heading and HTML."""

    heading: str
    inner: str


@dataclass(frozen=True)
class Part:
    """One answer on a page.

    title : what was asked, in the reader's own words. tone, word, verdict : the answer in a word and in one sentence. blocks :
    what it rests on. answer : the plain data that `--json` writes. name : of the file that its data are saved as.
    """

    title: str
    tone: str
    word: str
    verdict: str
    blocks: Sequence[Block]
    answer: dict[str, Any]
    name: str
    warnings: Sequence[str] = ()


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text; nothing for no text."""
    return f"<p{_class(kind)}>{esc(text)}</p>" if text else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Labels and what they say."""
    inner = "".join(f"<dt>{esc(label)}</dt><dd>{esc(text)}</dd>" for label, text in rows)
    return f'<dl class="facts">{inner}</dl>' if inner else ""


def tiles(rows: Iterable[tuple[str, str, str]]) -> str:
    """Key figures: label, figure, what stands beside it."""
    inner = "".join(
        f'<div class="tile"><dt>{esc(label)}</dt><dd>{esc(figure)}<small>{esc(beside)}</small></dd></div>'
        for label, figure, beside in rows
    )
    return f'<dl class="tiles">{inner}</dl>'


@dataclass(frozen=True)
class Cell:
    """A cell of a table. value : what it is sorted by, where that is not its text. raw : HTML in place of the text."""

    text: str = ""
    value: float | str | None = None
    kind: str = ""
    raw: str | None = None

    def html(self) -> str:
        sort = f' data-v="{esc(self.value)}"' if self.value is not None else ""
        kind = f' class="{esc(self.kind)}"' if self.kind else ""
        return f"<td{kind}{sort}>{esc(self.text) if self.raw is None else self.raw}</td>"


def number(text: str, value: float | None) -> Cell:
    """A cell with a figure, sorted by its value; those without one come last."""
    return Cell(text, "" if value is None else value, "n")


def table(caption: str, heads: Sequence[str | Cell], rows: Iterable[Sequence[Cell]], searched: bool = False) -> str:
    """A table that can be sorted by any column with a text for its heading; with a field to filter it where asked for."""
    lines = [list(row) for row in rows]
    right = {i for row in lines for i, cell in enumerate(row) if cell.kind.startswith("n")}
    top = "".join(_head(head, i in right) for i, head in enumerate(heads))
    body = "".join("<tr>" + "".join(cell.html() for cell in row) + "</tr>" for row in lines)
    search = (
        f'<p class="filter" hidden><input type="search" placeholder="filter" aria-label="filter: {esc(caption)}"> '
        '<span class="soft" aria-live="polite"></span></p>'
        if searched
        else ""
    )
    start = f'<div class="scroll" tabindex="0" role="group" aria-label="{esc(caption)}"><table class="sortable">'
    return f"{search}{start}<caption>{esc(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _head(head: str | Cell, right: bool) -> str:
    if isinstance(head, Cell):
        return f'<th scope="col" data-plain>{esc(head.text) if head.raw is None else head.raw}</th>'
    return f'<th scope="col"{_class("n" if right else "")}{"" if head else " data-plain"}>{esc(head)}</th>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def folded(summary: str, *blocks: str) -> str:
    """What is shown when it is asked for."""
    return f"<details><summary>{esc(summary)}</summary>{''.join(blocks)}</details>"


def preformatted(text: str) -> str:
    """Text as it stands."""
    return f"<pre>{esc(text)}</pre>"


def page(title: str, parts: Sequence[Part], foot: str) -> str:
    """The whole file."""
    own = files("llmqsim.report.page")
    style, script = (own.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    inner = "".join(_part(part, i) for i, part in enumerate(parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:\">"
        f"<title>{esc(title)}</title><style>\n{style}</style></head><body>\n{inner}"
        f"<footer>{esc(foot)}</footer><script>\n{script}</script></body></html>\n"
    )


def _part(part: Part, i: int) -> str:
    blocks = [block for block in part.blocks if block.inner]
    links = "".join(f'<li><a href="#s{i}-{j}">{esc(block.heading)}</a></li>' for j, block in enumerate(blocks))
    inner = "".join(
        f'<section id="s{i}-{j}"><h2>{esc(block.heading)}</h2>{block.inner}</section>' for j, block in enumerate(blocks)
    )
    warned = "".join(f'<p class="warn">{esc(text)}</p>' for text in part.warnings)
    return (
        f"<header><h1>{esc(part.title)}</h1>"
        f'<p class="verdict {part.tone}"><b>{esc(part.word)}</b>{esc(part.verdict)}</p>{warned}'
        f'<nav aria-label="sections"><ul>{links}</ul></nav></header>\n<main>{inner}{_kept(part, i)}</main>\n'
    )


def _kept(part: Part, i: int) -> str:
    """The answer as data, with a button that saves it."""
    text = data(part.answer)
    if len(text.encode()) > MOST_DATA:
        return paragraph("The data of this answer are too many for a page; --json writes them to a file.", "soft")
    return (
        f'<p><button type="button" class="save" hidden data-of="answer-{i}" data-name="{esc(part.name)}">save the data of this '
        f'answer</button></p><script type="application/json" id="answer-{i}">{text}</script>'
    )
