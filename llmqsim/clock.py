"""Order within an instant, and the two SimPy events that keep it.

When several things happen at the same nanosecond, they happen in this order, never in the order in which they were
scheduled:

1. COMMIT   ended steps give back blocks and slots first, so that whoever comes next can use them;
2. REPORT   then replicas whose report is due tell the router what they hold;
3. DELIVER  then arrivals and finished transfers reach their queues, so that the next step can hold them;
4. FORM     then replicas form their next steps, the lowest index first (priority FORM + index).
"""

from __future__ import annotations

import simpy

from llmqsim.errors import UserError

END_NS = 2**62
"""146 years: the sum of two times before it fits into int64"""

COMMIT = 0
REPORT = 1
DELIVER = 2
FORM = 3


class EndOfTime(UserError):
    """A run would go on for longer than the clock can count: something in it takes absurdly long."""


class At(simpy.Event):
    """An event at an absolute time (int ns) and a place in that instant's order. SimPy's own timeout has no place.

    Raises EndOfTime at or beyond END_NS.
    """

    def __init__(self, env: simpy.Environment, time_ns: int, order: int):
        if time_ns >= END_NS:
            raise EndOfTime(f"the run would last beyond {END_NS / 1e9:.2g} s (146 years), where the clock ends")
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=order, delay=time_ns - env.now)


class Wake(simpy.Event):
    """What an idle process waits for; `fire` wakes it at the present instant, in the given place of its order."""

    def fire(self, order: int) -> None:
        """Wake the process once; firing again is ignored."""
        if not self.triggered:
            self._ok = True
            self._value = None
            self.env.schedule(self, priority=order)
