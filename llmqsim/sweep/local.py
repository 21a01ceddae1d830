"""Tasks on this machine, or on any backend that joblib knows (Ray registers its own)."""

from __future__ import annotations

from collections.abc import Iterator

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool

from llmqsim.errors import UserError
from llmqsim.sweep.points import Task
from llmqsim.sweep.work import Outcome, run_task

TRIES = 3
"""how often a pool of workers is built anew after one of its processes was killed"""


class LocalWorkers:
    """Runs tasks in `jobs` processes; one runs in this process. backend : a name that joblib knows."""

    def __init__(self, jobs: int = 1, backend: str | None = None):
        if backend not in (None, "loky"):
            _check_backend(backend)
        self._jobs, self._backend = jobs, backend

    def run(self, tasks: list[Task]) -> Iterator[Outcome]:
        """Outcomes as they come, each once. Raises UserError when workers keep being killed."""
        if self._jobs == 1 and self._backend is None:
            yield from map(run_task, tasks)
            return
        left = {task.key: task for task in tasks}
        for _ in range(TRIES):
            try:
                for outcome in self._pool()(joblib.delayed(run_task)(task) for task in list(left.values())):
                    if left.pop(outcome.key, None) is not None:
                        yield outcome
                return
            except BrokenProcessPool:
                continue
        raise UserError(
            f"--jobs: worker processes were killed {TRIES} times, probably for want of memory; {len(left):,} runs are "
            f"left; use fewer than {self._jobs} jobs, or smaller runs; the same command goes on from here"
        )

    def _pool(self) -> joblib.Parallel:
        return joblib.Parallel(
            n_jobs=self._jobs, backend=self._backend, return_as="generator_unordered", pre_dispatch="3*n_jobs"
        )


def _check_backend(name: str) -> None:
    """Make Ray's backend known, and refuse what joblib does not know."""
    from joblib.parallel import BACKENDS

    if name == "ray" and name not in BACKENDS:
        try:
            from ray.util.joblib import register_ray
        except ImportError:
            raise UserError("--backend: ray needs the package ray: pip install ray") from None
        register_ray()
    if name not in BACKENDS:
        raise UserError(
            f"--backend: unknown backend of joblib (got {name!r}); one of: {', '.join(sorted(BACKENDS))}, ray"
        )
