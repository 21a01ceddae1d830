"""One measuring session: go down the plan until the time is up, keeping every row as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from . import work
from .backend import Backend, CannotMeasure, Device, DeviceLost, Variant
from .plan import Task
from .schema import EAGER, SOURCE, TABLES
from .store import Store
from .timer import Effort, Timing, measure

FLUSH_S = 10.0
"""a kill loses at most this much"""
TELL_S = 30.0
HOPELESS = 3
"""shapes that a kernel may fail before its first success; then it is left out for the session"""


@dataclass
class Outcome:
    """What a session did."""

    measured: int = 0
    known: int = 0
    """planned rows that earlier sessions had measured or given up"""
    ended: str = "everything planned is measured"
    spreads: list[float] = field(default_factory=list)
    left_out: dict[Variant, str] = field(default_factory=dict)
    """kernels that never worked here, and why; a later session tries them again"""


@dataclass
class Session:
    """Backend, store, effort, and the clocks and voices that tests replace."""

    backend: Backend
    store: Store
    effort: Effort
    seconds: float
    clock: Callable[[], float] = time.monotonic
    tell: Callable[[str], None] = print

    def run(self, tasks: Iterable[Task]) -> Outcome:
        """Measure until the plan or the time ends, or the user interrupts; what was measured is on disk afterwards."""
        self.outcome = Outcome()
        self._worked: set[Variant] = set()
        self._pending: dict[Variant, list[tuple[Task, str]]] = {}
        self._start = self._flushed = self._told = self.clock()
        try:
            self._go(tasks)
        except KeyboardInterrupt:
            self.outcome.ended = "interrupted"
        finally:
            self.store.flush(self._conditions())
        return self.outcome

    def _go(self, tasks: Iterable[Task]) -> None:
        for number, task in enumerate(tasks):
            if number == 0:
                self._start = self.clock()  # planning is not measuring
            if self.clock() - self._start >= self.seconds:
                self.outcome.ended = "the time is up"
                return
            if task.key in self.store:
                self.outcome.known += 1
                if task.key in self.store.rows:
                    self._worked.add(task.variant)
            elif task.variant not in self.outcome.left_out:
                self._one(task)
                self._now_and_then()

    def _one(self, task: Task) -> None:
        try:
            timing, how = self._timed(task)
        except CannotMeasure as error:
            self._doubt(task, str(error))
        except DeviceLost as error:
            self.store.fail(task.table, task.key, str(error))
            raise
        else:
            self.store.add(task.table, task.key, row(task, self.backend.device, timing, how))
            self.outcome.measured += 1
            self.outcome.spreads.append(timing.rep_spread)
            self._worked.add(task.variant)
            for earlier, reason in self._pending.pop(task.variant, ()):
                self.store.fail(earlier.table, earlier.key, reason)

    def _timed(self, task: Task) -> tuple[Timing, str]:
        prepared = self.backend.prepare(task.variant, task.shape)
        try:
            return measure(prepared, self.effort), prepared.how
        finally:
            prepared.close()

    def _doubt(self, task: Task, reason: str) -> None:
        """A shape that fails is given up; a kernel that never worked is rather broken here, and its shapes are not."""
        if task.variant in self._worked:
            self.store.fail(task.table, task.key, reason)
            return
        pending = self._pending.setdefault(task.variant, [])
        pending.append((task, reason))
        if len(pending) >= HOPELESS:
            self.outcome.left_out[task.variant] = reason
            self.tell(f"{task.table}: {task.variant.kernel} ({task.variant.dtype}) left out: {reason}")

    def _now_and_then(self) -> None:
        now = self.clock()
        if now - self._flushed >= FLUSH_S:
            self.store.flush(self._conditions())
            self._flushed = now
        if now - self._told >= TELL_S:
            self.tell(f"{(now - self._start) / 60:.1f} min: {self.outcome.measured} rows")
            self._told = now

    def _conditions(self) -> dict:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {"time": stamp, **self.backend.conditions()}


def row(task: Task, device: Device, timing: Timing, how: str) -> dict:
    """A finished row of the task's table."""
    values = dict(task.shape)
    values |= {"gpu": device.gpu, "timing": how, "mode": how, "flag": _flag(task, device, timing), "source": SOURCE}
    values |= {"latency_us": timing.latency_us, "n_rep": timing.n_rep, "rep_spread": timing.rep_spread}
    values |= {"lat_min_us": timing.lat_min_us}
    if "timing" not in TABLES[task.table] and "mode" not in TABLES[task.table] and how == "eager" and not device.is_cpu:
        values["kernel"] += EAGER  # the table has no other column to say so
    return {column: values[column] for column in TABLES[task.table]}


def _flag(task: Task, device: Device, timing: Timing) -> str:
    if device.is_cpu:
        return "cpu"
    beyond = device.peaks and work.super_peak(task.table, task.shape, timing.latency_us * 1e-6, device.peaks)
    return "super_peak" if beyond else ""
