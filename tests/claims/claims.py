"""What the tests of claims share: a claim at reduced size, judged by the bands that ship."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from llmqsim.claims import claims

ROOT = Path(__file__).parents[2]


@cache
def measured(name: str) -> dict[str, dict[str, Any]]:
    """The lines of one claim by check, run once for all tests that ask."""
    return {line["check"]: line for line in claims([name], reduced=True)["claims"]}


def misses(name: str) -> set[str]:
    """Checks of a claim that lie outside their bands."""
    return {check for check, line in measured(name).items() if line["holds"] is False}


def undecided(name: str) -> set[str]:
    """Checks whose interval over so few seeds holds an end of the band."""
    return {check for check, line in measured(name).items() if line["undecided"]}
