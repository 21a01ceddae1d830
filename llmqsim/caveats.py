"""What makes the figures of a run err, and what changes nothing in it: data that rooms share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caveat:
    """Something that is not modelled and moves the figures of this run. The screen says it before the answer."""

    code: str
    """time_unit, windowed_kv, architecture, enforce_eager, kernel_version, expert_parallel"""
    text: str
    """one sentence, with the consequence and its direction"""

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return {"code": self.code, "text": self.text}


@dataclass(frozen=True)
class Idle:
    """A key of the scenario that changes nothing, and why."""

    key: str
    why: str

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return {"key": self.key, "why": self.why}
