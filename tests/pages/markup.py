"""A page read by Python's own HTML parser: is it well formed, what does it hold, and could it ask for anything?"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "input", "br", "link", "img", "hr"}
ASKING = {"src", "srcset", "action", "data", "poster", "formaction", "background"}


class Page(HTMLParser):
    """elements : (tag, attributes) in order. data : JSON by id of its script element, or in order without one."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.data: dict[str, Any] = {}
        self.scripts = 0
        self._open: list[str] = []
        self._inside: dict[str, str | None] = {}
        self._raw = ""
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        assert len(named) == len(attrs), f"an attribute twice: {attrs}"
        self.elements.append((tag, named))
        assert not ASKING & named.keys(), f"{tag} asks for something: {named}"
        if "href" in named:
            assert named["href"].startswith("#"), named
        if tag not in VOID:
            self._open.append(tag)
            self._inside, self._raw = named, ""

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()
        if tag == "script":
            if self._inside.get("type") == "application/json":
                self.data[self._inside.get("id") or f"chart-{len(self.data)}"] = json.loads(self._raw)
            else:
                self.scripts += 1

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            self._raw += data
            if self._open[-1] == "style":
                assert "url(" not in data and "@import" not in data
        else:
            self.text.append(data)

    def check_read_aloud(self) -> None:
        """Everything that is drawn says what it is, or is beside what does; every id is there once."""
        ids = [named["id"] for _, named in self.elements if "id" in named]
        assert len(ids) == len(set(ids))
        assert {named["href"][1:] for tag, named in self.elements if tag == "a"} <= set(ids)
        for tag, named in self.elements:
            if tag == "svg":
                assert named.get("aria-hidden") == "true" or (named.get("role") == "img" and named.get("aria-label")), (
                    named
                )
            if "area" in (named.get("class") or "").split():
                assert named.get("aria-label") and named.get("tabindex") == "0", named
            if tag == "input":
                assert named.get("aria-label")
        assert ("html", {"lang": "en"}) in self.elements


def luminance(colour: str) -> float:
    """WCAG 2: relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG 2: contrast ratio of two colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes(style: str) -> list[dict[str, str]]:
    """The colours of each theme in a style sheet: light, dark, print."""
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{([^}]*)\}", style)]
