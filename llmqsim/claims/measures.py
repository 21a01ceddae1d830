"""What several claims read off a run."""

from __future__ import annotations

import numpy as np

from llmqsim.metrics.latency import completed
from llmqsim.result import Result
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import simulate


def tokens_per_s(scenario: Scenario, seed: int) -> float:
    """Prompt and output tokens per second of one run, from the first arrival to the last answer."""
    return simulate(scenario, seed=seed, keep="summary").summary()["throughput"]["total_tokens_per_s"]


def e2e_s(result: Result) -> np.ndarray:
    """E2E latency of each completed request of a run, float64[n], seconds."""
    table = result.table
    done = completed(table)
    return (table.finish_ns[done] - table.arrival_ns[done]) / 1e9


def overloaded(result: Result) -> bool:
    """Did the backlog of a run grow for as long as requests came? Then its latencies depend on how long that was."""
    return result.summary()["stability"]["verdict"] == "overloaded"
