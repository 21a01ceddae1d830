"""How long the runs behind an answer are: as the scenario says, and longer until the backlog verdict is in.

A short run starts empty and ends before a queue has built up, so it flatters a fleet that can't keep up. Whether the
backlog grows is then not known (metrics/stability.py says "unsettled"), and such a run decides nothing: all runs of the
question are made longer, step by step, up to a limit that is stated. A trace, and rates that follow a timetable, are as
long as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from llmqsim.planner.vary import changed
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import Prepared

Tell = Callable[[str], None]
"""takes a line about what is going on, for the status line"""
STEP = 4
"""times as long as before, each time"""
MOST_TIMES = 64
"""of what the scenario says"""
MOST_REQUESTS, MOST_SLOW = 200_000, 20_000
"""requests of a run up to which it is made longer; of a run of the reference engine, which takes a hundred times as long.
One step is allowed whatever the scenario says"""


def quiet(text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Told:
    """The length of the runs as an answer states it, in requests a run.

    asked : as the scenario says. run : of the runs that decided. most : the limit. fixed : why they can't be longer, a
    sentence; None where they can.
    """

    asked: int
    run: int
    most: int
    fixed: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @property
    def sentence(self) -> str | None:
        """What the reader should know; None where runs are as long as the scenario says."""
        if self.run == self.asked:
            return None
        return f"runs lengthened to {self.run:,} requests (the scenario says {self.asked:,}; at most {self.most:,})"


class Length:
    """The length of all runs of one question, as a multiple of what the scenario says. requests : of such a run."""

    def __init__(self, scenario: Scenario, requests: int, tell: Tell = quiet):
        self.times, self.requests, self.fixed = 1, max(1, requests), why_fixed(scenario)
        self._tell, self._slow = tell, False

    def of(self, prepared: Prepared, times: int | None = None) -> Prepared:
        """The same with runs of this length. times : another multiple."""
        times = self.times if times is None else times
        return prepared if times == 1 else Prepared(longer(prepared.scenario, times), prepared.servers)

    @property
    def most(self) -> int:
        """The largest multiple."""
        if self.fixed:
            return 1
        room = (MOST_SLOW if self._slow else MOST_REQUESTS) // self.requests
        return max(STEP, min(MOST_TIMES, room))

    def saw(self, engine: str) -> None:
        """Learn which engine runs: of a slow one less is asked."""
        self._slow = self._slow or engine == "reference"

    def lengthen(self, why: str) -> bool:
        """One step longer; False where the limit is reached. why : a phrase for the status line."""
        return self.at_least(STEP * self.times * self.requests, why) if self.times < self.most else False

    def at_least(self, requests: int, why: str) -> bool:
        """Long enough for so many requests a run, as far as the limit allows; was anything changed?"""
        times = min(self.most, max(self.times, -(-requests // self.requests)))
        if times == self.times:
            return False
        self.times = times
        self._tell(f"runs lengthened to {times * self.requests:,} requests: {why}")
        return True

    def told(self) -> Told:
        """For the answer."""
        return Told(self.requests, self.times * self.requests, max(self.most, self.times) * self.requests, self.fixed)


def why_fixed(scenario: Scenario) -> str | None:
    """Why runs of this traffic can't be made longer, a sentence; None where they can."""
    workload = scenario.spec.workload
    if workload.trace is not None:
        return "a trace is as long as it is"
    own = [one.arrivals for one in (workload.classes or {}).values()]
    for one in (workload.arrivals, *own):
        if getattr(one, "stages", None) is not None:
            return "the rates follow a timetable, which ends the traffic"
        if getattr(one, "process", None) == "burst":
            return "all requests come at once"
    return None


def longer(scenario: Scenario, times: int) -> Scenario:
    """The same traffic for `times` as long: requests, duration and the end of the run; the warm-up stays as it is.

    The first requests are the same ones: a longer run goes on where the shorter one ended.
    """
    workload, values = scenario.spec.workload, {}
    for key in ("requests", "duration"):
        if getattr(workload, key) is not None:
            values[f"workload.{key}"] = times * getattr(workload, key)
    if scenario.spec.run.until is not None:
        values["run.until"] = times * scenario.spec.run.until
    if workload.classes:
        values["workload.classes"] = {
            name: one if one.requests is None else one.model_copy(update={"requests": times * one.requests})
            for name, one in workload.classes.items()
        }
    return changed(scenario, values)
