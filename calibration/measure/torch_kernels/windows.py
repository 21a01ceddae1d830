"""Windows of calls on a device: a CUDA graph between two events, or a loop under the CPU's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SPIN_CYCLES = 2_000_000
"""the GPU spins about 1 ms before the first event, so that the CPU has launched the whole graph by then"""


class TorchPrepared:
    """Calls of one shape that can be timed in windows. A window goes round all sets of buffers."""

    def __init__(self, env, calls: list[Callable[[], Any]], graph: bool = True):
        self._env, self._calls = env, calls
        self.copies = len(calls)
        self.how = "graph" if graph and not env.is_cpu else "eager"

    def window(self, calls: int) -> Callable[[], float]:
        """See backend.Prepared. Falls back to eager launches where a kernel can't be captured."""
        from . import translated_errors

        with translated_errors():
            run = self._cpu(calls) if self._env.is_cpu else self._cuda(calls)

        def checked() -> float:
            with translated_errors():
                return run()

        return checked

    def close(self) -> None:
        """Drop the buffers."""
        self._calls = []

    def _cpu(self, calls: int) -> Callable[[], float]:
        todo = [self._calls[i % self.copies] for i in range(calls)]

        def run() -> float:
            start = time.perf_counter()
            for call in todo:
                call()
            return time.perf_counter() - start

        return run

    def _cuda(self, calls: int) -> Callable[[], float]:
        torch = self._env.torch
        todo = [self._calls[i % self.copies] for i in range(calls)]
        launch = self._captured(todo) if self.how == "graph" else None
        if launch is None:
            self.how = "eager"

            def launch():
                for call in todo:
                    call()

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def run() -> float:
            if self.how == "graph":  # an eager time is to hold what launching costs
                torch.cuda._sleep(SPIN_CYCLES)
            start.record()
            launch()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / 1e3

        return run

    def _captured(self, todo: list[Callable[[], Any]]) -> Callable[[], None] | None:
        """A graph of all calls, or None when one of them can't be captured."""
        torch = self._env.torch
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            todo[0]()  # compiles and tunes: both are forbidden while capturing
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for call in todo:
                    call()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if "captur" not in str(error).lower():
                raise
            torch.cuda.synchronize()
            return None
        return graph.replay
