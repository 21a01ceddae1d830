"""Answers that show themselves in a notebook: plain mappings, as `--json` writes them, that know whose answer they are.

How they look lies in `report/`, above the rooms that make answers; it is looked up when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec

Given = ParamSpec("Given")


class Answer(dict[str, Any]):
    """What a command answers. command : its name."""

    command: str = ""

    def _repr_html_(self) -> str:
        """The answer in short, for a notebook."""
        return import_module("llmqsim.report.notebook").of_answer(self.command, self)

    def figure(self) -> Any:
        """The answer as a matplotlib figure. Raises UserError where there is nothing to draw, or no matplotlib."""
        return import_module("llmqsim.report.notebook").figure(self.command, self)


def answer_of(command: str) -> Callable[[Callable[Given, dict[str, Any]]], Callable[Given, Answer]]:
    """A decorator: what the function returns is the answer of this command."""

    def decorate(function: Callable[Given, dict[str, Any]]) -> Callable[Given, Answer]:
        @wraps(function)
        def answering(*given: Given.args, **named: Given.kwargs) -> Answer:
            made = Answer(function(*given, **named))
            made.command = command
            return made

        return answering

    return decorate
