"""Request tables of queues whose load is known, from short numpy recursions that share nothing with the simulator.

`python tests/unit/queue_tables.py [queue ...]` prints the table of docs/metrics.md on how often it errs.
"""

from __future__ import annotations

import heapq
import math
import sys
import zlib
from collections.abc import Sequence

import numpy as np

from llmqsim.metrics.stability import stability
from llmqsim.requests import Outcome, RequestTable

STEP_S, STEP_PER_REQUEST_S, MEAN_OUTPUT = 0.020, 0.0005, 200


def table_of(arrival, start, finish) -> RequestTable:
    """A table of completed one-token requests from times in seconds (float[n] each, arrivals sorted)."""
    ones = np.ones(len(arrival), dtype=np.int64)
    arrival_ns = np.rint(np.asarray(arrival) * 1e9).astype(np.int64)
    table = RequestTable.from_columns(
        arrival_ns=arrival_ns, prompt_tokens=ones, output_tokens=ones, max_tokens=ones
    )
    table.first_scheduled_ns[:] = np.maximum(np.rint(np.asarray(start) * 1e9), arrival_ns)
    table.finish_ns[:] = table.first_token_ns[:] = np.rint(np.asarray(finish) * 1e9)
    table.generated_tokens[:], table.replica[:], table.outcome[:] = 1, 0, Outcome.COMPLETED
    return table


def one_server(arrival, service):
    """First come, first served: start and finish, from d_i = max(a_i, d_{i-1}) + s_i unrolled."""
    work = np.cumsum(service)
    finish = work + np.maximum.accumulate(arrival - (work - service))
    return finish - service, finish


def servers(arrival, service, count):
    """First come, first served by `count` servers."""
    free, start = [0.0] * count, np.empty(len(arrival))
    for i in range(len(arrival)):
        start[i] = max(arrival[i], heapq.heappop(free))
        heapq.heappush(free, start[i] + service[i])
    return start, start + service


def batch_server(arrival, outputs, slots):
    """Continuous batching: every step gives one token to all that run and takes a + b x running."""
    arrival, outputs, n = arrival.tolist(), outputs.tolist(), len(arrival)
    start, finish = [0.0] * n, [0.0] * n
    running: list[tuple[int, int]] = []  # (number of the step that makes the last token, request)
    now, done, head = 0.0, 0, 0
    while running or head < n:
        if not running:
            now = max(now, arrival[head])
        while head < n and len(running) < slots and arrival[head] <= now:
            heapq.heappush(running, (done + outputs[head], head))
            start[head], head = now, head + 1
        # Until somebody ends or can enter, all steps are alike.
        step, steps = STEP_S + STEP_PER_REQUEST_S * len(running), running[0][0] - done
        if head < n and len(running) < slots:
            steps = min(steps, max(math.ceil((arrival[head] - now) / step), 1))
        now, done = now + steps * step, done + steps
        while running and running[0][0] <= done:
            finish[heapq.heappop(running)[1]] = now
    return np.array(start), np.array(finish)


def gaps(random, cv, n):
    """Gaps of mean 1: gamma with the given coefficient of variation."""
    return random.gamma(1 / cv**2, cv**2, n)


def lognormal(random, mean, cv, n):
    sigma2 = np.log1p(cv * cv)
    return random.lognormal(np.log(mean) - sigma2 / 2, np.sqrt(sigma2), n)


def queue(name: str, load: float, requests: int, seed: int) -> RequestTable:
    """One run of a named queue (a key of NAMES) at a load (arrival rate x service time / servers)."""
    random = np.random.default_rng([seed, zlib.crc32(name.encode()), int(load * 1000), requests])
    kind, cv, spread, size = NAMES[name]
    gap = gaps(random, cv, requests) / load
    if kind == "batch":
        outputs = np.maximum(np.rint(lognormal(random, MEAN_OUTPUT, 1.0, requests)), 1).astype(np.int64)
        capacity = size / ((STEP_S + STEP_PER_REQUEST_S * size) * MEAN_OUTPUT)
        arrival = np.cumsum(gap) / capacity
        return table_of(arrival, *batch_server(arrival, outputs, size))
    if kind == "pareto":
        service = (random.pareto(spread, requests) + 1) * (spread - 1) / spread
    elif kind == "lognormal":
        service = lognormal(random, 1.0, spread, requests)
    else:
        service = random.exponential(1.0, requests) if spread else np.ones(requests)
    arrival = np.cumsum(gap) / size
    return table_of(arrival, *(one_server(arrival, service) if size == 1 else servers(arrival, service, size)))


NAMES: dict[str, tuple[str, float, float, int]] = {
    "M/D/1": ("exponential", 1, 0, 1),
    "M/M/1": ("exponential", 1, 1, 1),
    "M/M/8": ("exponential", 1, 1, 8),
    "M/M/64": ("exponential", 1, 1, 64),
    "M/G/1, Pareto 2.2": ("pareto", 1, 2.2, 1),
    "M/G/1, lognormal CV 2": ("lognormal", 1, 2, 1),
    "M/G/1, lognormal CV 3": ("lognormal", 1, 3, 1),
    "bursts (CV 2)/M/1": ("exponential", 2, 1, 1),
    "bursts (CV 3)/M/1": ("exponential", 3, 1, 1),
    "bursts (CV 2)/M/64": ("exponential", 2, 1, 64),
    "LLM, 16 slots": ("batch", 1, 1, 16),
    "LLM, 64 slots": ("batch", 1, 1, 64),
    "LLM, 256 slots": ("batch", 1, 1, 256),
    "LLM, 1,024 slots": ("batch", 1, 1, 1024),
    "LLM, 64 slots, bursts (CV 2)": ("batch", 2, 1, 64),
}
"""name: kind of service, CV of the gaps, spread of the service (CV or tail index), servers or slots"""


def rates(name: str, load: float, requests: int, seeds: int) -> dict[str, float]:
    """Share of seeds with each verdict."""
    everybody = np.ones(requests, dtype=bool)
    said = [stability(queue(name, load, requests, seed), everybody)["verdict"] for seed in range(seeds)]
    return {verdict: said.count(verdict) / seeds for verdict in ("stable", "unsettled", "overloaded")}


LOADS = (0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)
LENGTHS = {300: 100, 1000: 100, 4000: 60, 20_000: 20}
"""requests: seeds"""
SHOWN = (
    "M/M/1", "M/G/1, lognormal CV 2", "bursts (CV 2)/M/1", "M/M/64", "LLM, 64 slots", "LLM, 256 slots",
    "LLM, 64 slots, bursts (CV 2)",
)  # fmt: skip


def main(names: Sequence[str]) -> None:
    """Per cent of runs whose backlog was flat -> that are called stable / that are called overloaded."""
    for name in names:
        for requests, seeds in LENGTHS.items():
            cells = []
            for load in LOADS:
                told = [stability(queue(name, load, requests, s), np.ones(requests, dtype=bool)) for s in range(seeds)]
                said = [one["verdict"] for one in told]
                stable, over = said.count("stable"), said.count("overloaded")
                flat = stable + sum(one["evidence"].startswith("no growing backlog, but") for one in told)
                cells.append("{:.0f} → {:.0f} / {:.0f}".format(*(100 * count / seeds for count in (flat, stable, over))))
            print(f"| {name} | {requests:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or SHOWN)
