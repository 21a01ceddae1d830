"""Collectives and send/recv: one worker process a device, told by this one what to run; the slowest one counts."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ..backend import CannotMeasure, Variant

WORKER = Path(__file__).with_name("worker.py")
MARK = "@@"
"""begins a worker's answers; NCCL and others may print lines of their own"""
ANSWER_S = 120.0
OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


class Pool:
    """Worker processes for one number of devices at a time."""

    def __init__(self, env):
        self._env = env
        self._workers: list[subprocess.Popen] = []

    def kernels(self) -> list:
        """NCCL on GPUs, Gloo between processes on the CPU (two of them; only to test the kit)."""
        from . import Kernel

        torch = self._env.torch
        if self._env.device.count < 2 or not torch.distributed.is_available():
            return []
        if self._env.is_cpu:
            labels = ("gloo-torch", torch.__version__, "bfloat16", "gloo(torch.distributed)")
            # Gloo has no all-to-all of its own, and reduce-scatter only in some builds.
            ops = ("all_reduce", "all_gather")
        else:
            nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
            labels, ops = ("nccl-torch", nccl, "bfloat16", "nccl(torch.distributed)"), OPS
        tables = (("collectives", ops), ("p2p", ("send_recv",)))
        return [Kernel(Variant(table, *labels, ops=own), None) for table, own in tables]

    def prepare(self, variant: Variant, shape) -> PooledCall:
        """A collective on `num_gpus` devices."""
        self._sized(shape["num_gpus"])
        graph = not self._env.is_cpu and shape["op"] != "send_recv"
        self.ask({"do": "prepare", "op": shape["op"], "size": shape["message_bytes"], "graph": graph})
        return PooledCall(self, "graph" if graph else "eager")

    def ask(self, order: dict) -> list[dict]:
        """Give all workers an order and collect their answers. Raises CannotMeasure when one fails or stays silent."""
        line = json.dumps(order) + "\n"
        try:
            for worker in self._workers:
                worker.stdin.write(line.encode())
                worker.stdin.flush()
            answers = [_answer(worker) for worker in self._workers]
        except (OSError, TimeoutError) as error:
            self.close()
            raise CannotMeasure(f"a worker process ended or did not answer: {error}") from None
        faults = [answer["fault"] for answer in answers if "fault" in answer]
        if faults:
            self.close()  # the others may wait for the one that failed, for ever
            raise CannotMeasure(faults[0])
        return answers

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
            worker.stdin.close()
            worker.stdout.close()
        self._workers = []

    def _sized(self, count: int) -> None:
        if len(self._workers) == count:
            return
        self.close()
        port, place = _free_port(), self._env.place.type
        for rank in range(count):
            command = [sys.executable, str(WORKER), str(rank), str(count), str(port), place]
            self._workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0))
        self.ask({"do": "nothing"})


class PooledCall:
    """A collective that can be timed in windows; see backend.Prepared."""

    copies = 1

    def __init__(self, pool: Pool, how: str):
        self._pool, self.how = pool, how

    def window(self, calls: int) -> Callable[[], float]:
        """Windows of the last number of calls asked for are the ones that run."""
        said = self._pool.ask({"do": "window", "calls": calls})
        self.how = "graph" if all(answer["how"] == "graph" for answer in said) else "eager"

        def run() -> float:
            return max(answer["seconds"] for answer in self._pool.ask({"do": "run"}))

        return run

    def close(self) -> None:
        """Workers keep their buffers until the next order."""


def _answer(worker: subprocess.Popen) -> dict:
    """The next answer of a worker; its stdout is unbuffered and watched, so that silence ends."""
    deadline, line = time.monotonic() + ANSWER_S, b""
    with selectors.DefaultSelector() as selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"silent for {ANSWER_S:g} s")
            line = worker.stdout.readline()
            if not line:
                raise TimeoutError("it ended")
            if line.startswith(MARK.encode()):
                return json.loads(line[len(MARK) :])


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
