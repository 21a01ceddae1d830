"""One run of a sweep, as a worker does it: plain data in, plain data out, nothing kept, nothing written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from llmqsim.errors import UserError
from llmqsim.scenario.load import from_mapping
from llmqsim.simulation import simulate
from llmqsim.sweep.points import Task
from llmqsim.version import __version__

LEFT_OUT = ("scenario",)
"""parts of a summary that the store already has"""


@dataclass(frozen=True)
class Outcome:
    """What came of a task: `summary` (JSON text), or why it was refused, or what broke in the simulator."""

    key: str
    summary: str | None = None
    refused: str | None = None
    broke: str | None = None


def run_task(task: Task) -> Outcome:
    """Simulate one point. Never raises: what went wrong is in the outcome."""
    if task.version != __version__:
        told = f"this worker has llmqsim {__version__}, the sweep is led by {task.version}; install the same version"
        return Outcome(task.key, broke=told)
    try:
        scenario = from_mapping(task.scenario, folder=task.folder)
        told = simulate(scenario, seed=task.seed, replication=task.replication).summary()
    except UserError as error:
        return Outcome(task.key, refused="; ".join(error.faults))
    except Exception as error:  # a bug of ours must not take the other points with it
        return Outcome(task.key, broke=f"{type(error).__name__}: {error}")
    return Outcome(task.key, summary=json.dumps(_figures(told)))


def _figures(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without what the store has, with the number of GPUs."""
    scenario = summary["scenario"]
    sizes = ("replicas", "tensor_parallel_size", "pipeline_parallel_size")
    gpus = 1
    for name in sizes:
        gpus *= scenario.get(name) or 1
    return {**{key: value for key, value in summary.items() if key not in LEFT_OUT}, "gpus": gpus}
