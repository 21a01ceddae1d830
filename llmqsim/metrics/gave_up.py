"""Who gave up: because of the load, or because an empty server would have been too slow, too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.requests import Outcome, RequestTable

MANY_GAVE_UP = 0.05
"""share of time-outs from which it may be overload, where they are more than there was room for: who gives up leaves no
backlog that could grow. Those whom an empty server would keep waiting as long do not count"""


@dataclass(frozen=True)
class GaveUp:
    """How many of those served timed out, and how many of these would have been answered in time by an empty server."""

    all: int
    by_load: int
    asked: int

    @property
    def many(self) -> bool:
        """Are those whom the load made give up more than hardly any?"""
        return self.by_load > MANY_GAVE_UP * self.asked

    @property
    def said(self) -> str:
        """How many, a phrase."""
        alone = self.all - self.by_load
        also = f", {alone} of them whatever the load: alone on a server they are too late, too" if alone else ""
        return f"{self.all} of {self.asked} requests timed out{also}"


def gave_up(table: RequestTable, served: np.ndarray, late_alone: np.ndarray | None) -> GaveUp:
    """Count them. served, late_alone : bool[rows], as of stability.stability."""
    lost = served & (table.outcome == Outcome.TIMED_OUT)
    by_load = lost if late_alone is None else lost & ~late_alone
    return GaveUp(int(lost.sum()), int(by_load.sum()), int(served.sum()))
