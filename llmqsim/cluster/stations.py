"""StationsReplica: a prefill station (one prompt at a time, first come first served), then decoding as a pure delay.

It shows the cluster the same face as an engine's replica and keeps the same books, so that closed loops, routing and
metrics can be checked by arithmetic. Nothing here batches, and there is no KV pool: decoding neither delays nor is
delayed by prefills. The prefill is its only step, and only who is in the station counts as running.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from llmqsim import clock
from llmqsim.cost.stations import Stations
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.requests import INDEX, Outcome, RequestTable


class StationsReplica:
    """One replica: `submit` gives it a request, `abort` takes one back, `on_finish(row)` is called when one ends."""

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        table: RequestTable,
        stations: Stations,
        gaps: GapHistogram,
        after_ns: int,
        step_log: list | None = None,
    ):
        self.env = env
        self.index = index
        self.usage = ReplicaUsage()
        self.on_finish: Callable[[int], None] = lambda row: None
        self._table = table
        self._stations = stations
        self._gaps = gaps
        self._after_ns = after_ns
        self._step_log = step_log
        self._queue: deque[int] = deque()
        self._joined_ns: dict[int, int] = {}
        self._in_station: int | None = None
        self._started_ns = 0
        self._decoding: set[int] = set()
        self._usage_ns = 0

    def submit(self, row: int) -> None:
        """A prompt arrives."""
        self._tally()
        self.usage.requests += 1
        self._joined_ns[row] = self.env.now
        self._queue.append(row)
        self.usage.waiting_peak = max(self.usage.waiting_peak, len(self._queue))
        if self._in_station is None and len(self._queue) == 1:
            clock.At(self.env, self.env.now, clock.FORM + self.index).callbacks.append(lambda _: self._start())

    def report(self) -> tuple[int, int, int]:
        """What the router hears of it: requests waiting, requests running, KV blocks held (there are none)."""
        return len(self._queue), (self._in_station is not None) + len(self._decoding), 0

    def abort(self, row: int) -> None:
        """The client has given up. A prompt in the station is computed to its end, for nobody."""
        self._tally()
        if row in self._queue:
            self._queue.remove(row)
            self._mark(row, wait_step_ns=self.env.now - self._joined_ns.pop(row))
        if row in self._decoding:
            self._decoding.remove(row)
            self.usage.aborted_tokens += int(self._table.prompt_tokens[row])
        self._mark(row, outcome=Outcome.TIMED_OUT)

    def close(self) -> None:
        """The run is over: settle the waits of those who still queue."""
        self._tally()
        if self._in_station is not None:
            self.usage.cut_ns = self.env.now - self._started_ns
        for row in self._queue:
            self._mark(row, wait_step_ns=self.env.now - self._joined_ns[row])

    def _start(self) -> None:
        """The station takes up the next prompt."""
        if self._in_station is not None or not self._queue:
            return
        self._tally()
        now, row = self.env.now, self._queue.popleft()
        self._in_station, self._started_ns, waiting = row, now, len(self._queue)
        self._mark(row, first_scheduled_ns=now, wait_step_ns=now - self._joined_ns.pop(row))
        self.usage.running_peak = 1
        end_ns = now + self._stations.prefill_ns(int(self._table.prompt_tokens[row]))
        clock.At(self.env, end_ns, clock.COMMIT).callbacks.append(lambda _: self._prefilled(row, now, waiting))

    def _prefilled(self, row: int, start_ns: int, waiting: int) -> None:
        """The first token is out; the answer goes on by itself. waiting : prompts behind it when it began."""
        self._tally()
        now, prompt, output = self.env.now, int(self._table.prompt_tokens[row]), int(self._table.output_tokens[row])
        self._in_station = None
        self.usage.steps += 1
        self.usage.tokens += prompt
        self.usage.end_ns = now
        if self._step_log is not None:
            self._step_log.append((self.index, start_ns, now, 0, prompt, 1, waiting, 0))
        if self._table.outcome[row] == Outcome.TIMED_OUT:
            self.usage.aborted_tokens += prompt
        else:
            self._mark(row, first_token_ns=now + self._after_ns, generated_tokens=1)
            self._decoding.add(row)
            end_ns = now + self._stations.decode_ns(output)
            clock.At(self.env, end_ns, clock.COMMIT).callbacks.append(lambda _: self._ended(row, end_ns - now))
        clock.At(self.env, now, clock.FORM + self.index).callbacks.append(lambda _: self._start())

    def _ended(self, row: int, decode_ns: int) -> None:
        """The last token is out. Tokens after the first came evenly; the last gap takes what does not divide."""
        if row not in self._decoding:
            return
        self._tally()
        self._decoding.remove(row)
        gaps = int(self._table.output_tokens[row]) - 1
        if gaps:
            even_ns = decode_ns // gaps
            last_ns = decode_ns - even_ns * (gaps - 1)
            class_id = int(self._table.class_id[row])
            self._gaps.add(class_id, last_ns)
            if gaps > 1:
                self._gaps.add(class_id, even_ns, gaps - 1)
            self._mark(row, max_itl_ns=last_ns)
        self.usage.tokens += gaps
        self._mark(row, finish_ns=self.env.now + self._after_ns, generated_tokens=gaps + 1, outcome=Outcome.COMPLETED)
        self.on_finish(row)

    def _tally(self) -> None:
        """Add the time since the last change to the integrals."""
        elapsed, usage = self.env.now - self._usage_ns, self.usage
        busy = self._in_station is not None
        usage.running_ns += elapsed * busy
        usage.waiting_ns += elapsed * len(self._queue)
        usage.busy_ns += elapsed * busy
        self._usage_ns = self.env.now

    def _mark(self, row: int, **marks: int) -> None:
        for name, value in marks.items():
            self._table.data[INDEX[name], row] = value
