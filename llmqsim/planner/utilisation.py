"""Utilisation, and the verdict that follows from it: more hardware, or a queue to mend?

Utilisation is throughput over saturated throughput. That some step is always under way says little: a server that
decodes for one client alone is busy all the time and could carry a hundred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmqsim.errors import UserError
from llmqsim.metrics.latency import completed
from llmqsim.metrics.waiting import WORDS
from llmqsim.planner.vary import at_load, changed, loops
from llmqsim.result import Result
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import simulate

LOW = 0.5
"""utilisation up to which the hardware is not what is missing"""
SATURATED = 0.9
"""utilisation from which it is"""
NO_HARDWARE, QUEUE, MEMORY, STEPS, BOTH, HARDWARE = "no_hardware", "queue", "memory", "steps", "both", "hardware"
CLIENT = "client"
LIMITS = (
    "max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks_override", "kv_cache_memory_bytes",
    "gpu_memory_utilization", "batching", "ordering", "preemption", "long_prefill_token_threshold",
)  # fmt: skip
"""engine options that are the queue's rules, not the hardware's speed"""
GROWTH = 1.02
"""a throughput that twice the load raises by less is saturated"""
MOST_DOUBLINGS = 12
FILLS = 8
"""requests of a saturated run, in full servers"""
QUEUED = {"router": QUEUE, "slots": QUEUE, "token_budget": QUEUE, "step": STEPS, "kv": MEMORY, "preempted": MEMORY}
"""what requests waited for, and whose problem that is"""


@dataclass(frozen=True)
class Diagnosis:
    """problem : NO_HARDWARE (the SLO is kept), QUEUE, MEMORY or STEPS (missed, and the hardware is not full), BOTH
    (missed, and neither idle nor full), HARDWARE (missed, and full), CLIENT (missed, not full, and requests wait
    longest where they are sent). cause : what requests waited for most (a key of metrics.waiting.WORDS), None where the
    SLO is kept or nobody waited.
    """

    problem: str
    cause: str | None
    sentence: str

    @property
    def hardware(self) -> bool:
        """Would more GPUs be the answer? Only where those that there are work."""
        return self.problem == HARDWARE


def diagnose(
    attainment: float, wanted: float, utilisation: float, waiting_for: Mapping[str, Any], held_s: float = 0.0
) -> Diagnosis:
    """The verdict of a run. Pure.

    attainment, wanted : share of arrivals that keep the SLO, and the share asked for. utilisation : throughput over
    saturated throughput. waiting_for : of Result.summary(). held_s : mean time for which a cap of the clients held a
    request back, seconds.
    """
    kept = (
        f"{100 * attainment:.1f} % keep the SLO ({100 * wanted:g} % asked for) at {100 * utilisation:.0f} % utilisation"
    )
    if attainment >= wanted:
        return Diagnosis(NO_HARDWARE, None, f"{kept}: no hardware is missing")
    if utilisation >= SATURATED:
        return Diagnosis(HARDWARE, _cause(waiting_for), f"{kept}: the hardware is full")
    cause = _cause(waiting_for)
    if held_s > sum(waiting_for[name]["mean_s"] or 0.0 for name in WORDS):
        told = f"not a GPU is missing: clients hold a request back for {held_s:.3g} s on average, by their own cap"
        return Diagnosis(CLIENT, cause, f"{kept}: {told}")
    if utilisation > LOW:
        return Diagnosis(BOTH, cause, f"{kept}: {_named(cause)} first, then more GPUs if that is not enough")
    return Diagnosis(
        STEPS if cause is None else QUEUED[cause], cause, f"{kept}: not a GPU is missing, but {_named(cause)}"
    )


def _cause(waiting_for: Mapping[str, Any]) -> str | None:
    """What requests waited for most; the next step, which everybody waits for, only where nothing else counts."""
    means = {name: waiting_for[name]["mean_s"] or 0.0 for name in WORDS}
    queued = {name: mean for name, mean in means.items() if name != "step"}
    largest = max(queued, key=lambda name: queued[name])
    if queued[largest] > means["step"]:
        return largest
    return "step" if means["step"] else None


def _named(cause: str | None) -> str:
    if cause is None or QUEUED[cause] == STEPS:
        return "shorter steps (chunked prefill, another batching rule)"
    return WORDS[cause]


def steady_tokens_per_s(result: Result) -> float:
    """Prompt and output tokens of requests that are completed, per second, in the middle half of the completions.

    Neither the filling nor the draining of the servers counts. 0.0 with fewer than four completions.
    """
    table = result.table
    done = completed(table) & result.measured
    finish, tokens = table.finish_ns[done], (table.prompt_tokens + table.generated_tokens)[done]
    if len(finish) < 4:
        return 0.0
    low, high = np.quantile(finish, (0.25, 0.75))
    inside = (finish > low) & (finish <= high)
    return float(tokens[inside].sum() / (high - low) * 1e9) if high > low else 0.0


def lifted(scenario: Scenario) -> Scenario:
    """The same hardware and model without the limits of its queue: the preset's own, as if nobody had set one."""
    spec = scenario.spec
    routing = type(spec.routing)(policy="least_outstanding")
    admission = type(spec).model_fields["admission"].default
    values: dict[str, Any] = {"engine": _lifted(spec.engine), "routing": routing, "admission": admission}
    if spec.pools is not None:
        values["pools"] = {
            name: pool if pool.engine is None else pool.model_copy(update={"engine": _lifted(pool.engine)})
            for name, pool in spec.pools.items()
        }
    return changed(scenario, {**values, "workload.clients": None})


def _lifted(engine: Any) -> Any:
    fields = type(engine).model_fields
    return engine.model_copy(update={name: fields[name].default for name in LIMITS})


def saturated_tokens_per_s(scenario: Scenario, seed: int | None = None) -> float:
    """What the hardware carries at most: `lifted`, under twice the load again and again until that brings no more.

    Raises UserError for traffic that waits for answers, which has no load to raise.
    """
    scenario = lifted(scenario)
    if loops(scenario):
        told = "clients wait for answers, so there is no load to raise until the hardware is full"
        raise UserError(scenario.fault("workload", told))
    best, factor = 0.0, 1.0
    for _ in range(MOST_DOUBLINGS):
        found = steady_tokens_per_s(_full(scenario, factor, seed))
        if found < GROWTH * best:
            return max(best, found)
        best, factor = max(best, found), 2 * factor
    return best


def _full(scenario: Scenario, factor: float, seed: int | None) -> Result:
    """A run at a load, with enough requests to fill its servers several times."""
    result = simulate(at_load(scenario, factor), seed=seed)
    asked = scenario.spec.workload.requests
    enough = FILLS * sum(usage.running_peak for usage in result.usage)
    if asked is None or asked >= enough:
        return result
    return simulate(at_load(changed(scenario, {"workload.requests": enough}), factor), seed=seed)
