"""Tasks on a Dask cluster that runs already. A worker or the scheduler may be killed: what was under way is sent again.

Dask itself gives the tasks of a dead worker to another one. When the scheduler goes, all futures are cancelled; they are
sent again when it, or another one at its address, has workers. Results reach the store once: it knows each by its key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from llmqsim.errors import UserError
from llmqsim.sweep.points import Task
from llmqsim.sweep.work import Outcome, run_task

CONNECT_S = 10.0
PATIENCE_S = 120.0
"""how long a sweep waits for a scheduler with workers to come back"""
WINDOW = 64
"""tasks under way for each worker thread: enough to keep it busy, few enough to lose little"""
RETRIES = 2
"""of a task whose worker died while it held it"""


class DaskWorkers:
    """Runs tasks on the cluster whose scheduler is at `address`. Raises UserError when nobody answers there."""

    def __init__(self, address: str, patience_s: float = PATIENCE_S):
        self._address, self._patience_s = address, patience_s
        self._dask: Any = _dask()
        self._client = self._connect(CONNECT_S)

    def close(self) -> None:
        """Let go of the cluster; it goes on."""
        if self._client is not None:
            self._client.close(timeout=CONNECT_S)

    def run(self, tasks: list[Task]) -> Iterator[Outcome]:
        """Outcomes as they come, each once. Raises UserError when the scheduler stays away."""
        left = {task.key: task for task in tasks}
        while left:
            for outcome in self._try(list(left.values())):
                if left.pop(outcome.key, None) is not None:
                    yield outcome
            if left:
                self._reconnect(len(left))

    def _try(self, tasks: list[Task]) -> Iterator[Outcome]:
        """Send tasks, a window at a time; stop when one of them is lost with the scheduler."""
        waiting = list(reversed(tasks))
        first = [waiting.pop() for _ in range(min(len(waiting), self._window()))]
        under_way = self._dask.as_completed(map(self._send, first))
        for future in under_way:
            if future.status in ("cancelled", "lost"):
                return
            if future.status == "error":
                yield Outcome(future.key.rpartition("-")[2], broke=f"the cluster gave up on it: {future.exception()}")
            else:
                outcome = self._result(future)
                if outcome is None:
                    return
                yield outcome
            if waiting and self._client.status == "running":
                under_way.add(self._send(waiting.pop()))

    def _result(self, future: Any) -> Outcome | None:
        """What a finished task gave; None when it was lost before it reached us."""
        from concurrent.futures import CancelledError

        try:
            return future.result(timeout=CONNECT_S)
        except (CancelledError, OSError, TimeoutError, self._dask.TimeoutError):
            return None

    def _send(self, task: Task) -> Any:
        return self._client.submit(run_task, task, key=f"llmqsim-{task.key}", retries=RETRIES, pure=True)

    def _window(self) -> int:
        return max(1, sum(self._client.nthreads().values())) * WINDOW

    def _connect(self, timeout_s: float) -> Any:
        try:
            client = self._dask.Client(self._address, timeout=timeout_s, name="llmqsim sweep")
        except (OSError, ValueError, TypeError, self._dask.TimeoutError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"--dask: no scheduler answers at {self._address} ({why}); start one with `dask scheduler`, workers with "
                "`dask worker ADDRESS`; finished points are in the store"
            ) from None
        if not client.nthreads():
            try:
                client.wait_for_workers(1, timeout=timeout_s)
            except (TimeoutError, self._dask.TimeoutError):
                client.close(timeout=CONNECT_S)
                told = f"--dask: the scheduler at {self._address} has no workers; start some with `dask worker ADDRESS`"
                raise UserError(f"{told}; finished points are in the store") from None
        return client

    def _reconnect(self, left: int) -> None:
        """A new client, as soon as a scheduler with workers answers at the address."""
        self.close()
        self._client = None
        end = time.monotonic() + self._patience_s
        while True:
            try:
                self._client = self._connect(min(CONNECT_S, self._patience_s))
                return
            except UserError as error:
                if time.monotonic() >= end:
                    told = f"{error.faults[0]}; {left:,} runs are left, the same command goes on from here"
                    raise UserError(told) from None
                time.sleep(0.5)


def _dask() -> Any:
    try:
        import distributed
    except ImportError:
        raise UserError("--dask: needs the package distributed: pip install 'llmqsim[dask]'") from None
    return distributed
