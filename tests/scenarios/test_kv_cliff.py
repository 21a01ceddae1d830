"""User case S04: shrinking the KV pool gives nothing, nothing, then a cliff.

Four replicas at 70 % of capacity, prompts about 512, answers about 256. The pool shrinks in 20 equal ratios from ample
(1.25 of the highest need) to a fifth of it.
"""

from __future__ import annotations

import itertools
from functools import cache

import pytest

from llmqsim import from_mapping, simulate

POINTS = 20
REQUESTS = 2500
"""enough to tell a load of 70 % from overload"""
AMPLE, SMALLEST = 1.25, 0.2


def servers(arrivals: dict, blocks: int, seed: int) -> dict:
    """Summary of one run; steps cost what an 8B model's roughly do."""
    return simulate(
        from_mapping(
            {
                "workload": {
                    "requests": REQUESTS,
                    "arrivals": arrivals,
                    "lengths": {
                        "prompt": {"lognormal": {"mean": 512, "cv": 0.5}, "max": 2000},
                        "output": {"exponential": {"mean": 256}, "max": 1500},
                    },
                },
                "cost": {"model": "affine", "base": "8 ms", "per_prefill_token": "40 us", "per_decode_request": "0.25 ms"},
                "replicas": 4,
                "routing": "least_outstanding",
                "engine": {
                    "max_num_seqs": 128,
                    "num_gpu_blocks_override": blocks,
                    "enable_prefix_caching": False,
                    "scheduler_reserve_full_isl": False,
                },
                "run": {"seed": seed},
            }
        )
    ).summary()


@cache
def load_and_need(seed: int) -> tuple[float, int]:
    """70 % of the rate that a burst is served at, and the most blocks that a replica holds at that load."""
    ample = 100_000
    rate = 0.7 * servers({"process": "burst"}, ample, 0)["throughput"]["requests_per_s"]
    usage = servers({"process": "poisson", "rate": rate}, ample, seed)["kv"]["usage_peak"]
    return rate, round(usage * (ample - 1))


def point(index: int, seed: int) -> tuple[float, int, str]:
    """P99 TTFT, preemptions and verdict at one pool size; every arrival is accounted for."""
    rate, need = load_and_need(seed)
    blocks = int(need * AMPLE * (SMALLEST / AMPLE) ** (index / (POINTS - 1)))
    summary = servers({"process": "poisson", "rate": rate}, blocks, seed)
    counts = summary["requests"]
    assert counts["arrived"] == counts["completed"] + counts["rejected"] + counts["unfinished"] == REQUESTS
    return summary["ttft_s"]["p99"], summary["preemptions"], summary["stability"]["verdict"]


def check(found: list[tuple[float, int, str]]) -> None:
    """The plateau, the cliff, and what lies below it."""
    tails, preemptions, verdicts = zip(*found, strict=True)
    # seed noise moves a tail by a few per cent, never by more
    assert all(later >= 0.9 * earlier for earlier, later in itertools.pairwise(tails))
    assert preemptions[0] == preemptions[1] == 0
    first = next(i for i, tail in enumerate(tails) if tail > 2 * tails[0])
    assert preemptions[first] > 0
    assert verdicts[0] == "stable" and verdicts[-1] == "overloaded"


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_s04_nothing_nothing_cliff(seed):
    found = [point(index, seed) for index in range(POINTS)]
    check(found)
    tails, preemptions, _ = zip(*found, strict=True)
    # one step of the sweep is 9.2 % of the pool; somewhere it doubles the tail at least
    assert max(later / earlier for earlier, later in itertools.pairwise(tails)) >= 2
    # preemptions rise from nothing and level off: the last third of the sweep is within a quarter of its mean
    last = preemptions[-POINTS // 3 :]
    assert max(last) - min(last) <= 0.5 * sum(last) / len(last)


def test_s04_in_five_points():
    check([point(index, 0) for index in (0, 1, 5, 10, 16)])
