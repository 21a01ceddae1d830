"""The random clusters of compiled_cases.py under every batching policy, and with clients of every kind.

`python -m tests.laws.kind_cases FROM TO` compares the engines on these cases and prints the first difference. With
NUMBA_DISABLE_JIT=1 the compiled engine is plain Python, so that nothing has to be compiled for nine policies.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from tests.laws.cases import GRID_NS, SWAPPING
from tests.laws.compiled_cases import Compared, compared, differences
from tests.laws.crowd import Crowd

OTHER_BATCHING = [
    ("partial_prefills", {"n": 3, "long": 1, "long_tokens": 20}),
    ("partial_prefills", {"n": 1}),
    ("vllm_v0", {}),
    ("sarathi", {}),
    ("continuous", {}),
    ("sglang", {"decay_steps": 6, "clip_tokens": 20}),
    ("trtllm_guaranteed_no_evict", {}),
    ("trtllm_max_utilization", {}),
    ("orca", {}),
    ("static", {"size": 3, "max_wait_s": 0.02}),
    ("static", {}),
    ("reserve_predicted", {"margin": 1.5}),
    ("prefill_share", {"share": 0.4}),
    ("slo_chunk", {"least": 2}),
    ("multi_step", {"n": 3, "saved": 0.7}),
    ("reserve_predicted", {"margin": 0.3}),
    ("slo_chunk", {"least": 1, "margin": 3.0}),
]


VICTIMS = [
    ("newest", {"kv": "swap"}),
    ("newest", {"kv": "cheaper"}),
    ("least_urgent", {"kv": "cheaper"}),
    ("least_kv", {}),
    ("least_kv", {"kv": "cheaper"}),
    ("most_slack", {}),
    ("most_slack", {"kv": "swap", "batch": 3}),
]


def of_any_victims(seed: int) -> Compared:
    """Case number `seed` under another preemption policy; of three, one under another batching policy, too."""
    case = of_any_batching(seed // 3) if seed % 3 == 0 else compared(seed)
    servers = case.case.servers
    preemption, victims = VICTIMS[seed % len(VICTIMS)]
    if victims.get("kv", "recompute") != "recompute" and servers["batching"] not in SWAPPING:
        preemption, victims = "least_kv", {}
    changed = {"preemption": preemption, "victims": victims}
    if "kv" in victims:
        changed["kv_offloading_bytes"] = 0
    return replace(case, case=replace(case.case, servers=servers | changed))


ORDERS = [
    ("srpt", {"preempt": False}),
    ("srpt", {"preempt": False, "by": "total", "ageing": 20.0}),
    ("goodput_first", {"review_steps": 2}),
    ("goodput_first", {"review_steps": 5, "batch": 3}),
    ("vtc", {}),
    ("vtc", {"prompt_weight": 3, "output_weight": 7}),
    ("longest_prefix", {"most_waiting": 5}),
    ("longest_prefix", {}),
    ("learned_rank", {"preempt": False, "starvation": 4, "period": 2}),
]
"""that look again"""


PREEMPTIVE = [
    ("priority", {"preempt": True}),
    ("edf", {"preempt": True}),
    ("srpt", {}),
    ("srpt", {"by": "total", "ageing": 20.0}),
    ("mlfq", {"quantum_s": 0.01, "starvation_s": 0.1}),
    ("mlfq", {"quantum_s": 0.003, "levels": 3, "starvation_s": 3.0}),
    ("learned_rank", {"starvation": 4, "period": 2}),
    ("learned_rank", {"starvation": 30, "period": 5}),
]


def of_any_rank(seed: int) -> Compared:
    """Case number `seed` under an ordering that preempts: other victims or clients, pipeline stages now and then."""
    case = (compared, of_any_victims, compared, of_any_clients)[seed % 4](seed // 4)
    ordering, order = PREEMPTIVE[seed // 4 % len(PREEMPTIVE)]
    changed = {
        "ordering": ordering,
        "order": order,
        "batching": "continuous",
        "policy": {},
        "stages": 1 + (seed % 11 == 3),
    }
    return replace(case, case=replace(case.case, servers=case.case.servers | changed))


def of_any_order(seed: int) -> Compared:
    """Case number `seed` under an ordering that looks again, and under other batching policies, clients or both."""
    case = (compared, of_any_batching, compared, of_any_clients)[seed % 4](seed // 4)
    ordering, order = ORDERS[seed // 4 % len(ORDERS)]
    return replace(case, case=replace(case.case, servers=case.case.servers | {"ordering": ordering, "order": order}))


def of_any_clients(seed: int) -> Compared:
    """Case number `seed` with time-outs, caps, several closed loops, loops beside other traffic, drained warm-up."""
    case = of_any_batching(seed // 2) if seed % 2 else compared(seed)
    random = np.random.default_rng([20261130, seed])

    def pick(*options):
        return options[random.integers(len(options))]

    grid = pick(GRID_NS, GRID_NS, 1_234_567)
    sizes = pick((), (), (1,), (2,), (4,), (1, 2), (3, 2))
    crowd = Crowd(
        closed=pick(1, 2, 4) if sizes else 0,
        sizes=sizes,
        ramp_up_ns=pick(0, 0, 6 * grid),
        stop_ns=pick(None, None, None, 40 * grid),
        drain=pick(False, True),
        cap=pick(None, 1, 2, 5),
        timeout_ns=pick(None, 0, grid, 4 * grid, 12 * grid, 40 * grid),
    )
    return replace(case, crowd=crowd, pauses_ns=pick((0, 0), (0, 2 * grid), (grid, 4 * grid)))


def of_any_batching(seed: int) -> Compared:
    """Case number `seed` under another batching policy than vLLM V1's, or that over pipeline stages."""
    case = compared(seed)
    batching, policy = OTHER_BATCHING[seed % len(OTHER_BATCHING)]
    stages = 1 + (seed % 4 > 1) * (1 + seed % 3)
    changed = {"batching": batching, "policy": policy, "stages": max(2, stages) if batching == "continuous" else stages}
    if batching in ("prefill_share", "slo_chunk"):
        changed["enable_chunked_prefill"] = True
    if case.case.servers["preemption"] == "swap_newest" and batching not in SWAPPING:
        changed["preemption"] = "recompute_newest"
    if batching == "static" and seed % 3:  # so many rows fit, but not if they were as long as their batch would have them
        longest = max((prompt + output for _, prompt, output, _ in case.case.requests), default=1)
        blocks = (2 + seed % 4) * -(-longest // case.case.servers["block_size"])
        changed |= {"max_model_len": longest, "blocks": 1 + blocks, "max_num_seqs": 8, "watermark": 0.0}
        case = replace(case, kv_ns=1000.0, calibrated=False)
    if batching == "slo_chunk":  # some are promised more than others, and the step leaves a choice
        case = replace(case, case=replace(case.case, step=(1_000_000, 300_000, 400_000)), classes=3, calibrated=False)
    return replace(case, case=replace(case.case, servers=case.case.servers | changed))


def rare_clients() -> list[Compared]:
    """What chance finds too rarely: two steps end together, and the one that began first is the second replica's.

    The clients of two loops then send at once, in the order in which they heard of it, and go to replicas in turn.
    """
    ms, prompts = 1_000_000, (1, 3, 1, 5, 1, 1)
    case = compared(0)
    servers = {"batching": "continuous", "block_size": 16, "replicas": 2, "routing": "round_robin", "blocks": None}
    requests = tuple((0, prompt, 1, 1) for prompt in prompts)
    case = replace(case.case, requests=requests, servers=servers, step=(5 * ms, 5 * ms, 0), host_ns=(0, 0), groups=())
    crowd = Crowd(closed=4, sizes=(1, 1), ramp_up_ns=0, stop_ns=None, drain=False, cap=None, timeout_ns=None)
    return [Compared(case, crowd=crowd)]


def first_difference(seeds: range) -> str | None:
    """The first case in which the engines differ, in words."""
    for case in rare_clients():
        if told := differences(case, keep_steps=True):
            return f"{told}: {case}"
    for seed in seeds:
        for case in (
            of_any_batching(seed),
            of_any_victims(seed),
            of_any_order(seed),
            of_any_rank(seed),
            of_any_clients(seed),
        ):
            told = differences(case, keep_steps=seed % 3 > 0)
            if told not in ([], ["fell back"]):
                return f"case {seed}: {told}: {case}"
    return None


if __name__ == "__main__":
    found = first_difference(range(int(sys.argv[1]), int(sys.argv[2])))
    print(found or "the engines agree")
