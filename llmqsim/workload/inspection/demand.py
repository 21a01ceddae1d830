"""What requests ask of a server: KV-time, and waiting in a reference queue that makes traces and models comparable.

KV-time of a request: tokens in the cache, summed over its decode steps: output · (prompt + (output + 1) / 2).
The reference queue has one server, first come first served; a request's service is proportional to its work, prompt
plus OUTPUT_WEIGHT tokens for each token of the answer. It is a yardstick for traffic and no model of an LLM server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim import rng

OUTPUT_WEIGHT = 5.0
"""prompt tokens that a token of an answer weighs, a convention (prices of public services differ by such a factor)"""
LOAD, LIGHT_LOAD = 0.8, 0.4
"""shares of its time that the reference server works: waits at the second are of short bursts alone"""
TWIN_ROWS = 200_000
"""rows of the Poisson twin at most, of which its waits are known within a few per cent"""


@dataclass(frozen=True)
class Demand:
    """KV-time, token·steps, and work, tokens, of a request."""

    kv_mean: float
    kv_p50: float
    kv_p95: float
    kv_p99: float
    kv_top_share: float
    """share of all KV-time that the heaviest 1 % of the requests hold"""
    kv_at_means: float
    """KV-time of one request of mean lengths, over the mean of all: below 1, a plan on means is too small"""
    work_mean: float
    work_cv: float


@dataclass(frozen=True)
class Waits:
    """P99 wait in the reference queue at LOAD, s: of the trace, and with parts of it replaced by their means."""

    load: float
    service_s: float
    """mean service of the reference server"""
    trace: float
    poisson_arrivals: float
    """the trace's lengths in their order, arrivals Poisson at its mean rate"""
    mean_lengths: float
    """the trace's arrivals, every request of mean work"""
    means_only: float
    """Poisson arrivals and mean work: what a plan on means alone expects"""


def kv_time(prompt: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Token·steps of each request, float64[n]."""
    output = output.astype(float)
    return output * (prompt + (output + 1) / 2)


def work(prompt: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Tokens, an answer's weighing more, float64[n]."""
    return prompt + OUTPUT_WEIGHT * output


def waits(arrival_s: np.ndarray, service_s: np.ndarray) -> np.ndarray:
    """Waits in one queue of one server, float64[n] s (Lindley's recursion, as running sums less their least so far)."""
    steps = np.concatenate([[0.0], service_s[:-1] - np.diff(arrival_s)])
    sums = np.cumsum(steps)
    return sums - np.minimum.accumulate(sums)


def p99_wait(arrival_s: np.ndarray, service_s: np.ndarray) -> float:
    """P99 of `waits`, s."""
    return float(np.quantile(waits(arrival_s, service_s), 0.99, method="inverted_cdf"))


def service_per_work(arrival_s: np.ndarray, amount: np.ndarray) -> float:
    """Seconds a token of work at which the reference server works LOAD of the time."""
    return LOAD * float(arrival_s[-1] - arrival_s[0]) / float(amount[:-1].sum())


def of_demand(prompt: np.ndarray, output: np.ndarray) -> Demand:
    """int64[n] tokens, n >= 1."""
    held, amount = kv_time(prompt, output), work(prompt, output)
    top = np.sort(held)[-max(1, len(held) // 100) :]
    at_means = float(output.mean() * (prompt.mean() + (output.mean() + 1) / 2))
    p50, p95, p99 = (float(np.quantile(held, level, method="inverted_cdf")) for level in (0.5, 0.95, 0.99))
    return Demand(float(held.mean()), p50, p95, p99, float(top.sum() / held.sum()), at_means / float(held.mean()),
                  float(amount.mean()), float(amount.std() / amount.mean()))  # fmt: skip


def of_waits(arrival_s: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> Waits | None:
    """Waits with and without what varies; None without two different times."""
    if len(arrival_s) < 100 or np.isnan(arrival_s[0]) or arrival_s[-1] <= arrival_s[0]:
        return None
    amount = work(prompt, output)
    per = service_per_work(arrival_s, amount)
    span, rows = float(arrival_s[-1] - arrival_s[0]), len(arrival_s)
    draw = rng.stream(0, 0, "inspect")
    poisson = np.cumsum(draw.exponential(span / (rows - 1), rows))
    long = max(rows, TWIN_ROWS)
    twin = np.cumsum(draw.exponential(span / (rows - 1), long))
    even = np.full(long, amount.mean() * per)
    return Waits(LOAD, float(amount.mean() * per), p99_wait(arrival_s, amount * per), p99_wait(poisson, amount * per),
                 p99_wait(arrival_s, even[:rows]), p99_wait(twin, even))  # fmt: skip


