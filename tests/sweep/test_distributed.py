"""Sweeps on a real Dask cluster of several processes on loopback: workers and the scheduler are killed under way."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from llmqsim.errors import UserError
from llmqsim.sweep import sweep, table
from llmqsim.sweep.local import LocalWorkers
from tests.cli.commands import llmqsim, python_environment
from tests.sweep.scenarios import SCENARIO, write_grid

pytest.importorskip("distributed", reason="needs the package distributed")

from llmqsim.sweep.distributed import DaskWorkers  # noqa: E402

GRID = "scenario: scenario.yaml\naxes:\n  workload.arrivals.rate: {from: 1, to: 5, steps: 40}\n  engine.max_num_seqs: [2, 4]\n"
LONGER = SCENARIO.replace("requests: 200", "requests: 20000")
"""a run takes some 50 ms, so that a sweep can be met under way"""


class Cluster:
    """A scheduler and workers, each a process; `stop` ends them."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers: list[subprocess.Popen] = []
        self.start()

    def start(self) -> None:
        self.scheduler = self._process("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        for _ in range(2):
            self.add_worker()

    def add_worker(self) -> None:
        self.workers.append(
            self._process("worker", self.address, "--nworkers", "1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        )

    def _process(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments],
            env=python_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, *processes: subprocess.Popen) -> None:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        self.kill(*self.workers, self.scheduler)
        self.workers.clear()


@pytest.fixture
def cluster():
    running = Cluster()
    yield running
    running.stop()


def _connected(cluster: Cluster) -> DaskWorkers:
    """The cluster, once it is up; a process of Dask takes seconds to start on a busy machine."""
    end = time.monotonic() + 60
    while True:
        try:
            return DaskWorkers(cluster.address, patience_s=60)
        except UserError:
            if time.monotonic() > end:
                raise


def test_nobody_at_the_address(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        said = llmqsim("sweep", write_grid(tmp_path), "--store", tmp_path / "s.sqlite", "--dask", address)
    assert said.code == 2 and address in said.err and "no scheduler answers" in said.err


@pytest.mark.parametrize("address", ["", "nowhere", "tcp://", "http://127.0.0.1:1"])
def test_what_is_no_address(tmp_path, address):
    said = llmqsim("sweep", write_grid(tmp_path), "--store", tmp_path / "s.sqlite", f"--dask={address}")
    assert said.code == 2 and "--dask" in said.err


@pytest.mark.long
def test_a_worker_and_the_scheduler_are_killed_and_nothing_is_lost_or_double(tmp_path, cluster):
    path = write_grid(tmp_path, GRID, LONGER)
    events: list[tuple[int, str]] = []
    busy = threading.Lock()

    def disturb(done: int, total: int) -> None:
        if done == 10 and busy.acquire(blocking=False):
            cluster.kill(cluster.workers.pop())
            events.append((done, "a worker was killed"))
        if done == 30:
            cluster.stop()
            cluster.start()
            events.append((done, "the scheduler came anew"))

    with contextlib.closing(_connected(cluster)) as workers:
        swept = sweep(path, tmp_path / "dask.sqlite", workers, disturb)
    assert [what for _, what in events] == ["a worker was killed", "the scheduler came anew"]
    assert swept.ran == len(swept.rows) == 80
    here = sweep(path, tmp_path / "here.sqlite", LocalWorkers(1))
    assert table.told(swept) == table.told(here) and table.as_csv(swept) == table.as_csv(here)


@pytest.mark.long
def test_a_scheduler_that_stays_away_is_told_and_the_same_command_goes_on(tmp_path, cluster):
    path, store = write_grid(tmp_path, GRID, LONGER), tmp_path / "s.sqlite"
    with contextlib.closing(_connected(cluster)) as workers:
        workers._patience_s = 1.0

        def leave(done: int, total: int) -> None:
            if done == 5:
                cluster.stop()

        with pytest.raises(UserError, match="the same command goes on"):
            sweep(path, store, workers, leave)
    rest = sweep(path, store)
    assert rest.found >= 5 and rest.found + rest.ran == 80
