"""Random small clusters for the laws: ties in time on purpose, pools a block too small, one-token answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from llmqsim.clients import Clients
from llmqsim.cluster.cluster import Cluster
from llmqsim.cost import lower
from llmqsim.options import HostCost
from llmqsim.requests import INDEX, PrefixTable, RequestTable, Targets
from tests.support import deployment

GRID_NS = 5_000_000

BATCHING = [
    ("continuous", {}),
    ("continuous", {}),
    ("partial_prefills", {"n": 3, "long": 1, "long_tokens": 20}),
    ("reserve_predicted", {"margin": 1.5}),
    ("prefill_share", {"share": 0.4}),
    ("slo_chunk", {"least": 2}),
    ("multi_step", {"n": 3}),
    ("vllm_v0", {}),
    ("sarathi", {}),
    ("sglang", {}),
    ("trtllm_guaranteed_no_evict", {}),
    ("trtllm_max_utilization", {}),
    ("orca", {}),
    ("static", {"size": 3, "max_wait_s": 0.02}),
    ("static", {}),
]
ORDERING = [
    ("fcfs", {}),
    ("fcfs", {}),
    ("priority", {}),
    ("lifo", {}),
    ("random", {}),
    ("sjf", {"ageing": 50.0}),
    ("shortest_cost", {}),
    ("edf", {}),
    ("least_slack", {}),
    ("goodput_first", {"review_steps": 2}),
    ("vtc", {}),
    ("longest_prefix", {"most_waiting": 5}),
    ("learned_rank", {"preempt": False, "starvation": 4, "period": 2}),
    ("srpt", {"preempt": False}),
]
PREEMPTIVE = [
    ("priority", {"preempt": True}),
    ("srpt", {}),
    ("srpt", {"by": "total", "ageing": 20.0}),
    ("edf", {"preempt": True}),
    ("mlfq", {"quantum_s": 0.01, "starvation_s": 0.1}),
    ("learned_rank", {"starvation": 4, "period": 2}),
]
RECOMPUTE = ["recompute_newest", "recompute_newest", "recompute_least_urgent", "least_kv", "most_slack"]
SWAPPING = ("continuous", "partial_prefills", "vllm_v0", "reserve_predicted", "prefill_share", "multi_step")


@dataclass(frozen=True)
class Case:
    """A request list and server settings, plain values so that a failing case prints as something to read."""

    requests: tuple[tuple[int, int, int, int], ...]
    """(arrival ns, prompt, output, max_tokens)"""
    servers: dict
    step: tuple[int, int, int]
    """affine step cost in ns: base, per prefill token, per decode request"""
    host_ns: tuple[int, int]
    """before and after the engine"""
    groups: tuple[tuple[int, int], ...] = ()
    """(prefix group, tokens that its members share) of each request; empty: nobody shares"""

    def table(self) -> RequestTable:
        """A fresh table."""
        columns = np.array(self.requests, dtype=np.int64).reshape(-1, 4).T
        names = ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens")
        table = RequestTable.from_columns(**dict(zip(names, columns, strict=True)))
        table.data[INDEX["priority"]] = [group for group, _ in self.groups] or 0
        table.data[INDEX["tenant_id"]] = table.priority
        table.data[INDEX["predicted_tokens"]] = 1 + (7 * table.prompt_tokens + 5 * np.arange(len(table))) % 13
        table.data[INDEX["deadline_ns"]] = np.where(table.prompt_tokens % 5 > 0, table.prompt_tokens * GRID_NS, -1)
        table.targets = (Targets(ttft_ns=8 * GRID_NS, tpot_ns=2 * GRID_NS),)
        table.re_estimate = 2.0
        size = self.servers["block_size"]
        rows = [
            [1000 * (group + 1) + i for i in range(min(tokens, prompt) // size)]
            for (group, tokens), (_, prompt, _, _) in zip(self.groups, self.requests, strict=False)
        ]
        if rows:
            offsets = np.cumsum([0, *map(len, rows)])
            table.prefixes = PrefixTable(offsets, np.array(sum(rows, []), dtype=np.int64))
        return table

    def run(self, table: RequestTable | None = None, clients: Clients = Clients()) -> Cluster:
        """Simulate to the end."""
        base, prefill, decode = self.step
        cost = lower.affine(base_s=base / 1e9, per_prefill_token_s=prefill / 1e9, per_decode_request_s=decode / 1e9)
        host = HostCost(request_before_s=self.host_ns[0] / 1e9, request_after_s=self.host_ns[1] / 1e9)
        servers = deployment(cost=cost, host=host, **self.servers)
        cluster = Cluster(table or self.table(), servers, keep_steps=True, clients=clients)
        cluster.run()
        return cluster


@st.composite
def cases(draw, max_requests: int = 25) -> Case:
    """Small pools, small budgets; times random or on a grid on which arrivals and step ends coincide."""
    on_grid = draw(st.booleans())
    grid = GRID_NS if on_grid else 1
    count = draw(st.integers(0, max_requests))
    span = draw(st.sampled_from([0, 10, 60])) * (GRID_NS // grid)
    arrivals = sorted(draw(st.lists(st.integers(0, span), min_size=count, max_size=count)))
    foreseen = draw(st.booleans())
    requests = []
    for arrival in arrivals:
        prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 12))
        requests.append((arrival * grid, prompt, output, output if foreseen else draw(st.integers(output, 30))))
    step = draw(st.tuples(st.integers(1, 4), st.sampled_from([0, 1]), st.sampled_from([0, 1])))
    if not on_grid:
        step = draw(st.tuples(st.integers(1, 10**7), st.integers(0, 10**6), st.integers(0, 10**6)))
        grid = 1
    budget = draw(st.sampled_from([4, 7, 16, 64]))
    name, policy = draw(st.sampled_from(BATCHING))
    ordering, order = draw(st.sampled_from(ORDERING + PREEMPTIVE if name == "continuous" else ORDERING))
    servers = dict(
        batching=name,
        policy=policy,
        ordering=ordering,
        order=order,
        preemption=draw(st.sampled_from(RECOMPUTE + ["swap_newest"] if name in SWAPPING else RECOMPUTE)),
        block_bytes=1000,
        swap_space_bytes=draw(st.sampled_from([0, 3000, 10**6])),
        swap_block_s=draw(st.sampled_from([0.0, 0.001])),
        host_link_bytes_per_s=1e6,
        enable_prefix_caching=draw(st.booleans()),
        kv_offloading_bytes=draw(st.sampled_from([0, 0, 5000])),
        unhashed_blocks_first=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 5])),
        replicas=draw(st.integers(1, 3)),
        routing=draw(st.sampled_from(["round_robin", "least_outstanding"])),
        blocks=draw(st.sampled_from([None, 5, 8, 14, 40])),
        block_size=draw(st.sampled_from([1, 4, 16])),
        max_num_seqs=draw(st.sampled_from([1, 2, 4, 64])),
        max_num_batched_tokens=budget,
        enable_chunked_prefill=name in ("prefill_share", "slo_chunk") or draw(st.sampled_from([True, True, False])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        in_flight=draw(st.sampled_from([1, 2])),
        max_model_len=draw(st.sampled_from([None, 30])),
    )
    host = draw(st.sampled_from([(0, 0), (GRID_NS, 2 * GRID_NS), (123, 4567)]))
    groups = tuple((draw(st.integers(0, 2)), draw(st.sampled_from([8, 32]))) for _ in requests) if draw(st.booleans()) else ()
    return Case(tuple(requests), servers, tuple(part * grid for part in step), host, groups)
