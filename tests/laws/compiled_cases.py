"""Random small clusters that the compiled engine knows, run by both engines and compared word by word."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from unittest import mock

import numpy as np

from llmqsim.clients import Clients, Loop
from llmqsim.cluster.cluster import Cluster
from llmqsim.cluster.compiled import CompiledCluster, why_not
from llmqsim.cost import kernels, lower
from llmqsim.engine.compiled import NotCompiled
from llmqsim.engine.deployment import Deployment
from llmqsim.hardware import serving
from llmqsim.hardware.gpu import gpu
from llmqsim.hardware.model import model
from llmqsim.kv import prefix
from llmqsim.options import HostCost
from llmqsim.policies.protocol import FixedKeys, Ordering
from llmqsim.registry import register
from llmqsim.requests import COLUMNS, INDEX, UNSET, RequestTable, Targets
from tests.laws.cases import GRID_NS, Case
from tests.laws.crowd import Crowd
from tests.support import deployment

TARGETS = (
    Targets(ttft_ns=8 * GRID_NS, tpot_ns=2 * GRID_NS),
    Targets(e2e_ns=50_000_000),
    Targets(tpot_ns=3 * GRID_NS, e2e_ns=40 * GRID_NS),
)
"""of the classes, in turn"""


@dataclass(frozen=True)
class Compared:
    """A case for both engines. kv_ns : step cost per token of context, ns. classes : of the requests, in turn."""

    case: Case
    kv_ns: float = 0.0
    classes: int = 1
    calibrated: bool = False
    until_ns: int | None = None
    loop: tuple[int, int, int | None] | None = None
    """clients of a closed loop, ns over which they start, ns at which they stop; None: an open loop"""
    pauses_ns: tuple[int, int] = (0, 0)
    """turnaround and longest think time of clients"""
    warm: bool = False
    """is what prompts share cached before the first arrives?"""
    cached_read_percent: int = 100
    near_admissions: int = 64
    """of kv/prefix.py"""
    cold_steps: int = 0

    priorities: tuple[int, ...] = (0,)
    """of the requests, in turn"""

    crowd: Crowd | None = None
    """other clients than those of `loop`"""

    def clients(self) -> Clients:
        """Who sends the requests."""
        if self.crowd is not None:
            return self.crowd.clients(len(self.case.requests), self.pauses_ns[0])
        if self.loop is None:
            return Clients()
        clients, ramp_up, stop = self.loop
        rows = np.arange(len(self.case.requests))
        return Clients((Loop(rows, clients, ramp_up, stop),), turnaround_ns=self.pauses_ns[0])

    def table(self) -> RequestTable:
        """A fresh table."""
        plain = self.case.table()
        table = RequestTable(len(plain), tuple(f"class {i}" for i in range(self.classes)))
        table.data[:] = plain.data
        table.targets = tuple(TARGETS[i % len(TARGETS)] for i in range(self.classes))
        table.re_estimate = plain.re_estimate
        if plain.prefixes is not None:
            table.prefixes = replace(plain.prefixes, warm=self.warm)
        table.data[INDEX["class_id"]] = np.arange(len(plain)) % self.classes
        table.data[[INDEX["priority"], INDEX["tenant_id"]]] = np.resize(self.priorities, len(plain))
        if self.crowd is not None:
            closed = np.arange(len(plain)) % 4 < self.crowd.closed
            table.data[np.ix_([INDEX["arrival_ns"], INDEX["intended_ns"]], np.flatnonzero(closed))] = UNSET
            table.data[INDEX["think_ns"]] = np.arange(len(plain)) % 3 * self.pauses_ns[1] // 2
        elif self.loop is not None:
            table.data[[INDEX["arrival_ns"], INDEX["intended_ns"]]] = UNSET
            table.data[INDEX["think_ns"]] = np.arange(len(plain)) % 3 * self.pauses_ns[1] // 2
        return table

    def servers(self) -> Deployment:
        """The deployment: affine step costs, or those of a real GPU with padding, host time and a measured box."""
        before, after = self.case.host_ns
        base, prefill, decode = self.case.step
        cost = (
            _calibrated()
            if self.calibrated
            else lower.affine(
                base_s=base / 1e9,
                per_prefill_token_s=prefill / 1e9,
                per_decode_request_s=decode / 1e9,
                per_kv_token_s=self.kv_ns / 1e9,
            )
        )
        cost = replace(cost, cached_read_percent=self.cached_read_percent)
        cold = {"cold_step_s": 0.031, "cold_steps": self.cold_steps}
        host = HostCost(per_step_s=0.003, request_before_s=before / 1e9, request_after_s=after / 1e9, **cold)
        return deployment(cost=cost, host=host, cold_start=self.cold_steps > 0, **self.case.servers)


@register("ordering", "test_newest_first")
@dataclass(frozen=True)
class NewestFirst(Ordering):
    """Last come, first served, short prompts first; a preempted request is sorted in again."""

    preempted_go_first = False

    def key(self, request):
        return request.prompt_tokens // 8, -request.arrival_ns

    def late_key(self, request, now_ns):
        return request.prompt_tokens // 8, now_ns

    def fixed_keys(self, table):
        return FixedKeys(table.prompt_tokens // 8, np.zeros(len(table), np.int64), slope=-1)


@cache
def _calibrated() -> lower.StepCost:
    card, network = gpu("a100-sxm-80gb"), model("llama-3.1-8b")
    options, host, _ = serving.engine_options("vllm-0.19", card, network, 1, {})
    cost = lower.lower(network, card, 1, options, host, 200)
    cost.params[kernels.P_BOX :][: len(kernels.AXES)] = [20, 3, 15, 20]  # a box that small cases leave
    return cost


def compared(seed: int) -> Compared:
    """Case number `seed`: ties on a coarse grid or times at random; short and long answers; pools from tight to roomy."""
    random = np.random.default_rng([20261129, seed])

    def pick(*options):
        return options[random.integers(len(options))]

    on_grid, long_answers = pick(True, False), pick(True, False)
    light = pick(True, False, False, False)  # requests end while others still arrive
    starved = not light and pick(True, False)  # of memory, so that requests are preempted
    grid = GRID_NS if on_grid else 1
    count = int(random.integers(2, pick(5, 16, 50)))
    span = (100 if light else pick(0, 10, 30) if starved else pick(0, 10, 60, 60, 300)) * (GRID_NS // grid)
    longest_prompt = 6 if light or starved and pick(True, False) else pick(6, 40, 40, 90)
    longest_answer = 4 if light else pick(60, 150) if long_answers or starved else pick(3, 12)
    prompts, outputs = random.integers(1, longest_prompt + 1, count), random.integers(1, longest_answer + 1, count)
    spare = pick(0, 0, 1, 20)
    limits = outputs + (random.integers(0, spare + 1, count) if spare else 0)
    arrivals = np.sort(random.integers(0, span + 1, count)) * grid
    longest = int((prompts + outputs).max())
    size = pick(1, 4, 16, 16)
    least = -(-longest // size) + 1
    chunked = pick(True, True, False)
    step = random.integers(0, 4, 3) if on_grid else random.integers(0, (10**7, 10**6, 10**6))
    servers = {
        "batching": "continuous",
        "policy": {},
        "preemption": pick("recompute_newest", "recompute_newest", "recompute_least_urgent", "swap_newest"),
        "block_bytes": 1000,
        "enable_prefix_caching": pick(False, False, True, True),
        "kv_offloading_bytes": pick(0, 0, 5000, 30_000),
        "swap_space_bytes": pick(0, 3000, 10_000, 10**6),
        "swap_block_s": pick(0.0, GRID_NS / 1e9, 0.000123457),
        "host_link_bytes_per_s": pick(1000e9 / GRID_NS, 1.3e6),
        "watermark": pick(0.0, 0.0, 0.1),
        "long_prefill_token_threshold": pick(0, 0, 2, 5),
        "replicas": pick(2, 3) if light else pick(1, 1, 2, 3, 7),
        "routing": "least_outstanding" if light else pick("round_robin", "least_outstanding"),
        "blocks": pick(None, least, least + 1, least + 3, 2 * least, 4 * least, least - 1 if least > 2 else least),
        "block_size": size,
        "max_num_seqs": pick(1, 2, 4, 8, 64, 64),
        "max_num_batched_tokens": pick(1, 3, 7, 16, 64, 256) if chunked else pick(longest - 1, longest, 2 * longest),
        "enable_chunked_prefill": chunked,
        "scheduler_reserve_full_isl": pick(True, False),
        "in_flight": pick(1, 2),
        "max_model_len": pick(None, None, None, max(2, longest - 3)),
    }
    if starved:
        servers |= {
            "preemption": pick("recompute_newest", "recompute_least_urgent", "swap_newest", "swap_newest"),
            "swap_space_bytes": pick(3000, 10_000, 10**6, 10**6),
            "replicas": pick(1, 1, 2),
            "blocks": least + pick(0, 1, 5, least),
            "scheduler_reserve_full_isl": pick(True, False, False, False),
            "max_num_seqs": pick(4, 8, 64),
            "max_num_batched_tokens": max(servers["max_num_batched_tokens"], pick(3, 16, 64)),
        }
    step = tuple(int(part) * grid for part in (step[0] + (not on_grid), step[1] // 2, step[2] // 2))
    requests = tuple(zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), limits.tolist(), strict=True))
    groups = tuple((int(random.integers(0, 1 + pick(0, 1, 3))), pick(8, 8, 32, 90)) for _ in range(count))
    groups = groups if pick(True, False) else ()
    servers["unhashed_blocks_first"] = pick(False, True)
    if servers["preemption"] == "swap_newest":
        servers["kv_offloading_bytes"] = 0
    until = pick(None, None, None, 0.3, 0.9, 1.5)
    servers["ordering"] = pick("fcfs", "fcfs", "priority", "test_newest_first")
    loop = (int(random.integers(1, 9)), int(pick(0, 0, 6) * grid), pick(None, None, int(40 * grid)))
    return Compared(
        Case(requests, servers, step, pick((0, 0), (0, 0), (GRID_NS, 2 * GRID_NS), (123, 4567)), groups),
        kv_ns=pick(0.0, 0.0, GRID_NS) if on_grid else pick(0.0, 1000.0, 123.25),
        classes=pick(1, 1, 3),
        calibrated=not on_grid and pick(False, True),
        loop=pick(None, None, loop),
        priorities=tuple(random.integers(0, 3, 5).tolist()),
        pauses_ns=pick((0, 0), (0, 2 * grid), (grid, 4 * grid)),
        warm=pick(False, False, True),
        cached_read_percent=pick(100, 50, 0),
        near_admissions=pick(64, 0, 1, 3),
        until_ns=None if until is None else max(grid, int((span * grid + 30 * step[0]) * until) // grid * grid),
        cold_steps=pick(0, 0, 0, 1, 3),
    )


def rare() -> list[Compared]:
    """Cases that chance finds too rarely. One replica, steps of 10 ns, blocks of one token."""
    servers = {"enable_prefix_caching": True, "block_size": 1, "max_num_seqs": 8}
    # what the head of the queue would hit is reused while it waits for memory:
    whole = servers | {"blocks": 35, "max_num_batched_tokens": 20, "enable_chunked_prefill": False}
    # the first leaves 10 blocks behind; two grow and take them from the last, whose prompt is too long for the step then
    requests = ((0, 12, 1, 1), (0, 5, 3, 3), (0, 1, 17, 17), (0, 1, 17, 17), (80, 20, 1, 1))
    missing = Case(requests, whole, (10, 0, 0), (0, 0), ((0, 10), (1, 0), (1, 0), (1, 0), (0, 10)))
    chunks = servers | {
        "blocks": 46,
        "replicas": 2,
        "max_num_batched_tokens": 64,
        "enable_chunked_prefill": True,
        "scheduler_reserve_full_isl": False,
        "long_prefill_token_threshold": 2,
    }
    # warmed: the short prompt's blocks go first, and then the last hits only those before them, and needs less at once
    requests = ((0, 8, 1, 1), (0, 1, 40, 40), (0, 1, 1, 1), (115, 40, 1, 1))
    hole = Case(requests, chunks, (10, 0, 0), (0, 0), ((0, 8), (1, 0), (1, 0), (0, 32)))
    # the fourth, least urgent, fills shared blocks in the very step in which a later one takes them
    urgent = servers | {
        "preemption": "recompute_least_urgent",
        "blocks": 29,
        "max_num_batched_tokens": 64,
        "long_prefill_token_threshold": 3,
        "scheduler_reserve_full_isl": False,
    }
    requests = (*[(0, 1, 1, 1)] * 3, (0, 20, 1, 1), *[(0, 1, 10, 10)] * 3, (200, 20, 1, 1))
    filled = Case(requests, urgent, (10, 0, 0), (0, 0), tuple((0, 20 * (row in (3, 7))) for row in range(8)))
    # the third comes back from the host with its 8 blocks, needs 9 more, has 7, and goes again; so the last stays out
    swaps = {
        "preemption": "swap_newest",
        "block_bytes": 1000,
        "swap_space_bytes": 10**6,
        "block_size": 1,
        "blocks": 32,
        "max_num_batched_tokens": 10,
        "scheduler_reserve_full_isl": False,
    }
    requests = ((0, 2, 30, 30), (0, 1, 14, 14), (95, 20, 1, 1), (140, 1, 1, 1))
    again = Case(requests, swaps, (10, 0, 0), (0, 0))
    # two end together; what is left of whoever was freed first is gone when their prompts come again
    requests = ((0, 5, 3, 3), (0, 5, 3, 3), (40, 17, 1, 1), (100, 5, 1, 1), (100, 5, 1, 1))
    together = servers | {"blocks": 25, "max_num_batched_tokens": 64}
    ended = Case(requests, together, (10, 0, 0), (0, 0), ((0, 5), (1, 5), (2, 0), (0, 5), (1, 5)))
    # the second hits one block of the first, whose other one is a token short of full
    short = servers | {"block_size": 4, "max_num_batched_tokens": 64, "long_prefill_token_threshold": 7, "blocks": 40}
    almost = Case(((0, 8, 1, 1), (0, 12, 1, 1)), short, (10, 0, 0), (0, 0), ((0, 8), (0, 8)))
    # the second ends before the third, padded to the first's 40 tokens, which would make it longer than max_model_len
    static = {
        "batching": "static",
        "block_size": 1,
        "max_num_seqs": 8,
        "max_model_len": 42,
        "enable_chunked_prefill": False,
    }
    padded = Case(((0, 40, 2, 2), (0, 4, 20, 20), (0, 4, 30, 30)), static, (10, 0, 0), (0, 0))
    # both would fit, but not above the watermark: so the first is not padded to the second
    wet = {"batching": "static", "block_size": 1, "blocks": 25, "watermark": 0.3, "enable_chunked_prefill": False}
    apart = Case(((0, 4, 4, 4), (0, 6, 4, 4)), wet, (10, 1, 0), (0, 0))
    plain = [Compared(case) for case in (ended, almost, missing, again, apart)]
    return [
        Compared(padded, kv_ns=10.0),
        *plain,
        Compared(hole, warm=True),
        Compared(filled, priorities=(0, 1, 2, 3, 0)),
    ]


def differences(compared: Compared, keep_steps: bool) -> list[str]:
    """What the two engines disagree on, in words; empty if on nothing. `fell back` alone: only one of them ran."""
    with mock.patch.object(prefix, "NEAR_ADMISSIONS", compared.near_admissions):
        return _differences(compared, keep_steps)


def _differences(compared: Compared, keep_steps: bool) -> list[str]:
    servers = compared.servers()
    slow, fast = compared.table(), compared.table()
    clients = compared.clients()
    assert why_not(fast, servers, clients) is None
    specification = Cluster(slow, servers, keep_steps=True, clients=clients)
    specified_end = specification.run(compared.until_ns)
    given = fast.data.copy()
    compiled = CompiledCluster(fast, servers, keep_steps=keep_steps, clients=clients)
    try:
        end = compiled.run(compared.until_ns)
    except NotCompiled:
        assert servers.options.enable_prefix_caching and sum(r.usage.preemptions for r in specification.replicas)
        door = [INDEX[name] for name in ("outcome", "reason", "max_tokens")]
        given[door] = fast.data[door]  # refused or cut at the door, by both engines alike
        return ["fell back"] if (fast.data == given).all() else ["fell back, and left the table changed"]
    told = [c.name for c in COLUMNS if (slow.data[INDEX[c.name]] != fast.data[INDEX[c.name]]).any()]
    if end != specified_end:
        told.append(f"end: {end} instead of {specified_end}")
    if tuple(r.usage for r in specification.replicas) != compiled.usage:
        told.append("usage")
    if keep_steps and specification.step_log != compiled.step_log:
        told.append("step log")
    gaps, specified = compiled.gaps, specification.gaps
    if (gaps.counts != specified.counts).any() or gaps.sum_ns != specified.sum_ns or gaps.max_ns != specified.max_ns:
        told.append("gaps")
    return told
