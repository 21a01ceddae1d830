"""What several claims read off a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from llmqsim.metrics.latency import completed
from llmqsim.metrics.stats import CONFIDENCE
from llmqsim.metrics.student import t_quantile
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


def jackknife(statistic: Callable[[Sequence[int]], float], number: int) -> tuple[float, tuple[float, float] | None]:
    """A statistic of all of `number` runs, and its interval from leaving each of them out in turn (Tukey 1958).

    statistic : of runs by number. None for the interval of a single run.
    """
    everybody = range(number)
    whole = statistic(everybody)
    if number < 2:
        return whole, None
    without = [statistic([run for run in everybody if run != left_out]) for left_out in everybody]
    error = (number - 1) * float(np.std(without, ddof=1)) / math.sqrt(number)
    half = t_quantile(CONFIDENCE, number - 1) * error
    return whole, (whole - half, whole + half)


def overloaded(result: Result) -> bool:
    """Did the backlog of a run grow for as long as requests came? Then its latencies depend on how long that was."""
    return result.summary()["stability"]["verdict"] == "overloaded"
