"""A GPU for tests of the measuring kit: it runs nothing, and its clock says what a roofline would.

As a script it measures into a folder until it is killed: `python fake_gpu.py FOLDER LOG [SECONDS A CALL]`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from llmqsim.cli_measure import load_kit

backend, plan, schema, work = (load_kit(name) for name in ("backend", "plan", "schema", "work"))
session, shapes, store, timer = (load_kit(name) for name in ("session", "shapes", "store", "timer"))

QUICK = timer.Effort(window_s=1e-4, warm_up_s=0.0, repeats=3, most_repeats=5)
GIB = 2**30


def device(**changes):
    """An H100, more or less."""
    usual = {"gpu": "H100-SXM-80GB", "l2_bytes": 50 * 2**20, "memory_bytes": 80 * GIB, "count": 2}
    return backend.Device(**usual | changes)


def variant(table: str, **changes):
    """A kernel of vLLM 9.9."""
    labels = {"backend": "vllm", "backend_version": "9.9", "dtype": "bfloat16", "kernel": f"fake_{table}"}
    return backend.Variant(table, **labels | changes)


class FakePrepared:
    """Calls that take what `seconds` says, each."""

    def __init__(self, seconds: float, copies: int = 2, how: str = "graph", advance=lambda seconds: None):
        self.seconds, self.copies, self.how, self.advance = seconds, copies, how, advance
        self.windows: list[int] = []
        self.ran: list[int] = []
        self.closed = False

    def window(self, calls: int):
        self.windows.append(calls)

        def run() -> float:
            self.ran.append(calls)
            self.advance(self.seconds * calls)
            return self.seconds * calls

        return run

    def close(self) -> None:
        self.closed = True


class FakeBackend:
    """A device on which every kernel takes its rough roofline time; `breaks(variant, shape)` may raise."""

    def __init__(self, gpu=None, tables=("gemm", "attention_decode"), breaks=lambda variant, shape: None):
        self.device = gpu or device()
        self.tables, self.breaks = tables, breaks
        self.now = 0.0
        self.prepared: list[tuple] = []
        self.open: list[FakePrepared] = []

    def variants(self, table: str):
        return (variant(table),) if table in self.tables else ()

    def prepare(self, chosen, shape):
        self.now += 0.2
        self.breaks(chosen, shape)
        self.prepared.append((chosen, dict(shape)))
        self.open.append(FakePrepared(work.call_seconds(chosen.table, shape, work.GPU), advance=self.advance))
        return self.open[-1]

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now

    def versions(self):
        return {"torch": "9.9"}

    def conditions(self):
        return {"sm_mhz": 1980.0}

    def warnings(self):
        return ["nothing here is real"]

    def close(self):
        pass


def all_tasks(fake: FakeBackend, what=None):
    """The fake's whole plan."""
    variants = {table: fake.variants(table) for table in schema.TABLES}
    return plan.tasks(variants, what or shapes.Deployments(), fake.device, QUICK)


def measure_into(folder: Path, fake: FakeBackend, seconds: float, tasks=None):
    """One session on the fake's own clock; returns (outcome, rows in the store)."""
    kept = store.Store(folder)
    try:
        going = session.Session(fake, kept, QUICK, seconds, clock=fake.clock, tell=lambda line: None)
        return going.run(all_tasks(fake) if tasks is None else tasks), dict(kept.rows)
    finally:
        kept.close()


class SlowBackend(FakeBackend):
    """Takes real time and writes down what it measures."""

    def __init__(self, log: Path):
        super().__init__()
        self.log = log

    def prepare(self, chosen, shape):
        time.sleep(0.01)
        with self.log.open("a") as file:
            file.write(schema.key(chosen.table, shape | {"gpu": self.device.gpu}) + "\n")
        return super().prepare(chosen, shape)


if __name__ == "__main__":
    session.FLUSH_S = 0.1
    slow = SlowBackend(Path(sys.argv[2]))
    session.Session(slow, store.Store(Path(sys.argv[1])), QUICK, 600.0, tell=lambda line: None).run(all_tasks(slow))
