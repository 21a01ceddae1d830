"""From answers to one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmqsim.report.page import advise, capacity, compare, gated, html, read, run, size, sweep, validated
from llmqsim.report.page.html import Part
from llmqsim.version import __version__

SHOWN: dict[str, Callable[[dict[str, Any]], Part]] = {
    "compare": compare.part,
    "size": size.part,
    "capacity": capacity.part,
    "advise": advise.part,
    "sweep": sweep.part,
    "validate": validated.part,
    "gate": gated.part,
}
"""command -> what makes a part of a page of its answer; a run needs more (run.part)"""
STEPPED = 40_000
"""requests up to which a run that is made for a page keeps its log of steps, for an exact use of the KV cache"""


def of_file(path: str, requests: str | None, prices: Mapping[str, float]) -> Part:
    """The part of an answer in a file. requests : the table of a run's requests, where there is one. Raises DataError."""
    kind, told = read.read_answer(path)
    try:
        if kind == "run":
            return run.part(told, None if requests is None else read.with_requests(told, requests), prices)
        return SHOWN[kind](told)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise read.lacking(path, kind, told, error) from error


def page(parts: Sequence[Part], title: str | None = None) -> str:
    """One HTML file that needs nothing else. title : of the browser's window; None for the first part's."""
    foot = f"Made by llmqsim {__version__}. Everything on this page is in this file; nothing is fetched."
    return html.page(title or parts[0].title, parts, foot)
