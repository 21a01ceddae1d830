"""The two kinds of failure: what the user wrote (`UserError`) and what we got wrong (`InvariantError`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_LISTED, NEAREST = 15, 5
"""names up to which a message lists all that are known, and how many of more than that"""
SHORTEST_START = 3
"""characters; shorter beginnings would fit too much"""


class UserError(Exception):
    """A mistake in a file, an option or a value that the user gave. The CLI prints `faults` line by line; exit code 2.

    faults : tuple of sentences, each naming the place, the value found and what would be right.
    """

    def __init__(self, *faults: str):
        if not faults:
            raise InvariantError("a UserError without a fault")
        self.faults: tuple[str, ...] = tuple(faults)
        super().__init__("\n".join(faults))


class ScenarioError(UserError):
    """A scenario (its file, its `--set` and `--variant`) that can't be run as written."""

    def told(self, *faults: str) -> ScenarioError:
        """The same mistake in other words, such as with its place."""
        return ScenarioError(*faults)


class NoRoom(ScenarioError):
    """A scenario that is well written and has no room on its GPUs. reason : which room, a key of planner/limits.py."""

    def __init__(self, *faults: str, reason: str = ""):
        super().__init__(*faults)
        self.reason = reason

    def told(self, *faults: str) -> ScenarioError:
        """The same mistake in other words."""
        return NoRoom(*faults, reason=self.reason)


class DataError(UserError):
    """A data file (trace, events, length table, coefficients) that can't be read as what it should be."""


class InvariantError(RuntimeError):
    """One of the simulator's own rules is broken: a bug of ours, never a user's mistake."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"`, or an empty string when nothing known is close to `name`.

    What begins like `name`, signs aside, comes before what is merely similar: azure-conv is azure-conversation.
    """
    choices = sorted(known)
    start = _letters(name)
    longer = [k for k in choices if _letters(k).startswith(start)] if len(start) >= SHORTEST_START else []
    by_lower = {k.lower(): k for k in choices}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    found = min(longer, key=len) if longer else by_lower[near[0]] if near else None
    return f"; did you mean '{found}'?" if found is not None else ""


def or_known(name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """The end of a sentence about an unknown name: did_you_mean, then all that is known. also : aliases of these."""
    choices = sorted(known)
    return f"{did_you_mean(name, [*choices, *also]) or '.'} Known: {', '.join(choices) or 'none'}"


def or_nearest(name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """The same where `llmqsim presets` lists what is known: of a long list only the nearest, and the command."""
    choices = sorted(known)
    if len(choices) <= MOST_LISTED:
        return or_known(name, choices, also)
    near = difflib.get_close_matches(name.lower(), choices, n=NEAREST, cutoff=0.3)
    some = f" Near: {', '.join(near)}." if near else ""
    return f"{did_you_mean(name, [*choices, *also]) or '.'}{some} `llmqsim presets` lists all {len(choices)}"


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
