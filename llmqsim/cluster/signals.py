"""What replicas report to the router: as they are, or every so often, so that the router works with old numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from llmqsim import clock


@dataclass(frozen=True)
class Report:
    """policies.protocol.Signal."""

    waiting: int
    running: int
    held_blocks: int


class Signals:
    """The last report of each replica. period_ns : 0, the router sees everything as it is.

    Reports come at whole multiples of the period, from all replicas at once, while requests are in flight; what an idle
    replica would report is what it last did.
    """

    def __init__(self, env: simpy.Environment, sources: Sequence[Callable[[], tuple[int, int, int]]], period_ns: int):
        self._env = env
        self._sources = sources
        self._period_ns = period_ns
        self._reports = [Report(0, 0, 0)] * len(sources)
        self._ticking = False
        self.on_report: Callable[[], None] = lambda: None
        self.busy: Callable[[], bool] = lambda: False

    def of(self, index: int) -> Report:
        """What the router knows of a replica."""
        return self._reports[index] if self._period_ns else Report(*self._sources[index]())

    @property
    def live(self) -> bool:
        """Does the router see replicas as they are?"""
        return self._period_ns == 0

    def sending(self) -> None:
        """A request is about to be sent: reports go on from here if they had stopped."""
        if self._period_ns and not self._ticking:
            self._ticking = True
            self._tick_at((self._env.now // self._period_ns + 1) * self._period_ns)

    def _tick_at(self, time_ns: int) -> None:
        clock.At(self._env, time_ns, clock.REPORT).callbacks.append(lambda _: self._tick())

    def _tick(self) -> None:
        self._reports = [Report(*source()) for source in self._sources]
        self.on_report()
        self._ticking = self.busy()
        if self._ticking:
            self._tick_at(self._env.now + self._period_ns)
