"""Random small clusters with prefill and decode pools: ties in time on purpose, pools a block too small, links too slow."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from llmqsim import registry
from llmqsim.clients import Clients, Loop
from llmqsim.cluster.cluster import Cluster
from llmqsim.cluster.fleet import DECODE, PREFILL, Fleet, Pool
from llmqsim.cost import lower
from llmqsim.engine.handoff import HandoffTerms
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.options import HostCost
from llmqsim.requests import INDEX, UNSET, RequestTable
from tests.laws.cases import GRID_NS, RECOMPUTE, Case
from tests.support import deployment

LANE = KvLane(block_bytes=4000, lane_bytes=2000, fragments=6, layers=3)
DECODING = ["continuous", "continuous", "partial_prefills", "vllm_v0", "sarathi", "sglang", "trtllm_max_utilization"]
DECODING += ["trtllm_guaranteed_no_evict", "orca"]
PARAMETERS = {"partial_prefills": {"n": 3, "long": 1, "long_tokens": 20}, "static": {"size": 2, "max_wait_s": 0.02}}


@dataclass(frozen=True)
class SplitCase:
    """A request list and two pools, plain values so that a failing case prints as something to read."""

    requests: tuple[tuple[int, int, int, int], ...]
    """(arrival ns, prompt, output, max_tokens)"""
    prefill: dict
    decode: dict
    step: tuple[int, int, int]
    terms: HandoffTerms
    link: KvLink
    placement: dict = field(default_factory=dict)
    host_ns: tuple[int, int] = (0, 0)
    groups: tuple[tuple[int, int], ...] = ()
    timeout_ns: int | None = None
    loop: tuple[int, int, int | None] | None = None
    """clients of a closed loop, ns over which they start, ns at which they stop; None: an open loop"""
    pauses_ns: tuple[int, int] = (0, 0)
    """turnaround and longest think time of its clients"""
    classes: int = 1
    """of the requests, in turn"""
    cap: int | None = None
    """most requests in flight of an open loop"""

    def table(self) -> RequestTable:
        """A fresh table."""
        table = Case(self.requests, self.decode, self.step, self.host_ns, self.groups).table()
        if self.classes > 1:
            plain, table = table, RequestTable(len(table), tuple(f"class {i}" for i in range(self.classes)))
            table.data[:] = plain.data
            table.data[INDEX["class_id"]] = np.arange(len(plain)) % self.classes
        if self.loop is not None:
            table.data[[INDEX["arrival_ns"], INDEX["intended_ns"]]] = UNSET
            table.data[INDEX["think_ns"]] = np.arange(len(table)) % 3 * self.pauses_ns[1] // 2
        return table

    def clients(self) -> Clients:
        """Who sends the requests."""
        if self.loop is None:
            return Clients(timeout_ns=self.timeout_ns, max_in_flight=self.cap, turnaround_ns=self.pauses_ns[0])
        clients, ramp_up, stop = self.loop
        return Clients((Loop(np.arange(len(self.requests)), clients, ramp_up, stop),), turnaround_ns=self.pauses_ns[0])

    def fleet(self) -> Fleet:
        """Both pools."""
        base, prefill, decode = self.step
        cost = lower.affine(base_s=base / 1e9, per_prefill_token_s=prefill / 1e9, per_decode_request_s=decode / 1e9)
        host = HostCost(request_before_s=self.host_ns[0] / 1e9, request_after_s=self.host_ns[1] / 1e9)
        pools = (
            Pool("prefill", PREFILL, deployment(cost=cost, host=host, **self.prefill)),
            Pool("decode", DECODE, deployment(cost=cost, host=host, **self.decode)),
        )
        placement = registry.make("placement", "split", self.placement)
        return Fleet(pools, placement, self.terms, self.link, {("prefill", "decode"): LANE})

    def run(self, table: RequestTable | None = None, until_ns: int | None = None) -> Cluster:
        """Simulate to the end."""
        cluster = Cluster(table or self.table(), self.fleet(), keep_steps=True, clients=self.clients())
        cluster.run(until_ns)
        return cluster


@st.composite
def pools(draw, batching: list[str], block_size: int, **fixed) -> dict:
    """Server settings of one pool."""
    name = draw(st.sampled_from(batching))
    return dict(
        batching=name,
        policy=PARAMETERS.get(name, {}),
        preemption=draw(st.sampled_from(RECOMPUTE)),
        ordering=draw(st.sampled_from(["fcfs", "fcfs", "priority"])),
        block_bytes=1000,
        enable_prefix_caching=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 5])),
        replicas=draw(st.integers(1, 3)),
        routing=draw(st.sampled_from(["round_robin", "least_outstanding"])),
        blocks=draw(st.sampled_from([None, 8, 14, 40])),
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from([1, 2, 4, 64])),
        max_num_batched_tokens=draw(st.sampled_from([4, 7, 16, 64])),
        enable_chunked_prefill=draw(st.sampled_from([True, True, False])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        in_flight=draw(st.sampled_from([1, 2])),
        stages=draw(st.sampled_from([1, 1, 1, 2])),
        **fixed,
    )


@st.composite
def requests(draw, grid: int, most: int) -> tuple[tuple[int, int, int, int], ...]:
    """Arrivals in ties or at random."""
    count = draw(st.integers(0, most))
    span = draw(st.sampled_from([0, 10, 60])) * (GRID_NS // grid)
    arrivals = sorted(draw(st.lists(st.integers(0, span), min_size=count, max_size=count)))
    foreseen = draw(st.booleans())
    rows = []
    for arrival in arrivals:
        prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 12))
        rows.append((arrival * grid, prompt, output, output if foreseen else draw(st.integers(output, 30))))
    return tuple(rows)


@st.composite
def terms(draw) -> HandoffTerms:
    """Any protocol that makes sense."""
    transfer = draw(st.sampled_from(["pull", "pull", "push", "layerwise"]))
    first = draw(st.sampled_from(["prefill", "decode"] + (["transfer"] if transfer != "pull" else [])))
    lease = draw(st.sampled_from([None, None, 1, GRID_NS, 10 * GRID_NS])) if transfer == "pull" else None
    share = draw(st.sampled_from([None, None, 0.05, 0.5]))
    return HandoffTerms(transfer, first, lease, draw(st.sampled_from([0, 0, 6])), share)


@st.composite
def split_cases(draw, most: int = 20, timeouts: bool = False) -> SplitCase:
    """Small pools, small budgets, slow links; times random or on a grid on which everything coincides."""
    on_grid = draw(st.booleans())
    grid = GRID_NS if on_grid else 1
    rows = draw(requests(grid, most))
    step = draw(st.tuples(st.integers(1, 4), st.sampled_from([0, 1]), st.sampled_from([0, 1])))
    if not on_grid:
        step, grid = draw(st.tuples(st.integers(1, 10**7), st.integers(0, 10**6), st.integers(0, 10**6))), 1
    size = draw(st.sampled_from([1, 4, 16]))
    # 2,000 bytes a block: 1 byte per us is 2 ms a block, and 5 ms a grid step
    link = KvLink(
        "test",
        bytes_per_us=draw(st.sampled_from([1, 400, 10**6])),
        latency_ns=draw(st.sampled_from([0, 0, GRID_NS, 777])),
        per_fragment_ns=draw(st.sampled_from([0, 0, 1000])),
        shared=draw(st.booleans()),
    )
    placement = draw(
        st.sampled_from([{}, {}, {"min_prompt_tokens": 15}, {"min_uncached_tokens": 8}, {"min_uncached_share": 0.5}])
    )
    groups = ()
    if draw(st.booleans()):
        groups = tuple((draw(st.integers(0, 2)), draw(st.sampled_from([8, 32]))) for _ in rows)
    return SplitCase(
        rows,
        draw(pools(DECODING + ["static"], size)),
        draw(pools(DECODING, size)),
        tuple(part * grid for part in step),
        draw(terms()),
        link,
        placement,
        draw(st.sampled_from([(0, 0), (GRID_NS, 2 * GRID_NS), (123, 4567)])),
        groups,
        draw(st.sampled_from([GRID_NS, 12 * GRID_NS, 20 * GRID_NS + 3])) if timeouts else None,
    )
