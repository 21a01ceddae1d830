"""Builders that the tests share: a table from tuples, and a small cluster with a step cost of one's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import llmqsim.policies.batching  # noqa: F401  (registers the built-in policies)
from llmqsim import registry
from llmqsim.cluster.cluster import Cluster
from llmqsim.cost import lower
from llmqsim.engine.deployment import Deployment
from llmqsim.kv.capacity import KvCapacity
from llmqsim.options import EngineOptions, HostCost
from llmqsim.requests import RequestTable

OPTIONS = EngineOptions(
    preset="test",
    max_num_seqs=256,
    max_num_batched_tokens=2048,
    max_model_len=None,
    block_size=16,
    gpu_memory_utilization=0.9,
    kv_cache_dtype="auto",
    num_gpu_blocks_override=None,
    kv_cache_memory_bytes=None,
    enable_chunked_prefill=True,
    scheduler_reserve_full_isl=True,
    in_flight=1,
    cudagraph_capture_sizes=(),
)


def table(*requests: tuple) -> RequestTable:
    """Rows of (arrival seconds, prompt tokens, output tokens[, max_tokens])."""
    rows = [(*r, r[2]) if len(r) == 3 else r for r in requests]
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return RequestTable.from_columns(
        arrival_ns=np.rint(np.array(columns[0], dtype=float) * 1e9).astype(np.int64),
        prompt_tokens=np.array(columns[1], dtype=np.int64),
        output_tokens=np.array(columns[2], dtype=np.int64),
        max_tokens=np.array(columns[3], dtype=np.int64),
    )


def deployment(
    replicas: int = 1,
    cost: lower.StepCost | None = None,
    blocks: int | None = None,
    host: HostCost | None = None,
    routing: str = "round_robin",
    batching: str = "continuous",
    preemption: str = "recompute_newest",
    victims: dict | None = None,
    ordering: str = "fcfs",
    policy: dict | None = None,
    order: dict | None = None,
    route: dict | None = None,
    signal_age_ns: int = 0,
    admission: tuple[str, dict] = ("all", {}),
    block_bytes: int | None = None,
    stages: int = 1,
    **options,
) -> Deployment:
    """Servers with step cost `cost` (default: every step takes 1 s) and `blocks` KV blocks (default: unlimited).

    policy, order, route, victims : parameters of the batching, the ordering, the routing and the preemption policy.
    admission : policy and parameters. block_bytes : of a KV block, for host pools. stages : of a pipeline.
    """
    merged = replace(OPTIONS, **options)
    cost = cost or lower.constant(1.0)
    capacity = None
    if blocks is not None:
        capacity = KvCapacity(blocks, merged.block_size, None, block_bytes, (), "test", "")
    return Deployment(
        replicas=replicas,
        options=merged,
        host=host or HostCost(),
        cost=replace(cost, pipeline_stages=stages) if stages > 1 else cost,
        capacity=capacity,
        routing=registry.make("routing", routing, route),
        signal_age_ns=signal_age_ns,
        admission=registry.make("admission", *admission),
        batching=registry.make("batching", batching, policy),
        ordering=registry.make("ordering", ordering, order),
        preemption=registry.make("preemption", preemption, victims),
    )


def run(requests: RequestTable, servers: Deployment | None = None, until_s: float | None = None, **kwargs) -> Cluster:
    """Simulate and return the cluster, finished."""
    cluster = Cluster(requests, servers or deployment(**kwargs), keep_steps=True)
    cluster.run(None if until_s is None else round(until_s * 1e9))
    return cluster


def seconds(column: np.ndarray) -> list[float]:
    """A column of ns marks as a list of seconds."""
    return (column / 1e9).tolist()
