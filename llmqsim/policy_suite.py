"""check_policy: one public suite that every policy must pass, yours too. Run it in a notebook or a test.

    from llmqsim import check_policy
    check_policy("batching", "my_policy", {"size": 3})

It simulates small random clusters that force ties in time, full pools, preemptions and one-token answers, and names the
first check that fails. The laws are those of docs/laws.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from llmqsim import policies, registry
from llmqsim.cluster.cluster import Cluster
from llmqsim.cost import lower
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.sequence import Sequence
from llmqsim.errors import InvariantError, UserError
from llmqsim.kv.capacity import KvCapacity
from llmqsim.options import EngineOptions, HostCost
from llmqsim.policies.protocol import OrderingTable
from llmqsim.requests import UNSET, Outcome, RequestTable, Targets

assert policies, "imported to register the built-in policies"

STEP_NS = 5_000_000
CLASSES = ("soon", "later", "whenever")
TARGETS = (Targets(ttft_ns=5 * STEP_NS), Targets(tpot_ns=STEP_NS, e2e_ns=20 * STEP_NS), Targets())
KINDS = {"admission": "all", "batching": "continuous", "ordering": "fcfs", "preemption": "recompute_newest", "routing": "round_robin"}


class PolicyFault(UserError):
    """A policy breaks one of the rules that all policies keep."""


@dataclass(frozen=True)
class _Trial:
    """A small random cluster: arrivals on the grid of the step times, a tight pool."""

    arrival_ns: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    limit: np.ndarray
    priority: np.ndarray
    predicted: np.ndarray
    servers: Deployment

    def table(self) -> RequestTable:
        table = RequestTable.from_columns(
            CLASSES,
            ("a", "b", "c"),
            arrival_ns=self.arrival_ns,
            prompt_tokens=self.prompt,
            output_tokens=self.output,
            max_tokens=self.limit,
            priority=self.priority,
            class_id=self.priority,
            tenant_id=self.priority,
            predicted_tokens=self.predicted,
            deadline_ns=np.array([t.ttft_ns or t.e2e_ns or UNSET for t in TARGETS])[self.priority],
        )
        table.targets = TARGETS
        return table

    def run(self) -> Cluster:
        cluster = Cluster(self.table(), self.servers, keep_steps=True)
        cluster.run()
        return cluster


def check_policy(kind: str, name: str, params: dict[str, Any] | None = None, trials: int = 40) -> None:
    """Raise PolicyFault, naming the check, when a registered policy breaks a rule; return None when it keeps all.

    kind : "admission", "batching", "ordering", "preemption" or "routing". trials : random clusters for each check.
    """
    if kind not in KINDS:
        raise UserError(f"check_policy: unknown kind (got '{kind}'); known: {', '.join(KINDS)}")
    policy = registry.make(kind, name, params)
    checks = [_conserves, _is_deterministic, _starves_nobody_when_alone, _is_blind_to_output_lengths]
    if kind == "ordering":
        checks.append(_has_the_fixed_keys_it_states)
    for check in checks:
        for seed in range(trials):
            _run_check(check, kind, name, _trial(kind, policy, np.random.default_rng(seed)), seed)


def _run_check(check: Callable[[_Trial], str | None], kind: str, name: str, trial: _Trial, seed: int) -> None:
    words = check.__name__.strip("_").replace("_", " ")
    try:
        fault = check(trial)
    except InvariantError as error:
        fault = str(error)
    if fault:
        raise PolicyFault(f"{kind} '{name}' fails '{words}' (trial {seed}): {fault}")


def _trial(kind: str, policy: Any, random: np.random.Generator) -> _Trial:
    count = int(random.integers(1, 20))
    output = random.integers(1, 10, count)
    blocks = int(random.choice([8, 14, 60]))
    options = EngineOptions(
        preset="check_policy",
        max_num_seqs=int(random.choice([1, 3, 16])),
        max_num_batched_tokens=int(random.choice([16, 64])),
        max_model_len=48,
        block_size=int(random.choice([4, 16])),
        gpu_memory_utilization=0.9,
        kv_cache_dtype="auto",
        num_gpu_blocks_override=blocks,
        kv_cache_memory_bytes=None,
        enable_chunked_prefill=True,
        scheduler_reserve_full_isl=bool(random.integers(2)),
        in_flight=int(random.integers(1, 3)),
        cudagraph_capture_sizes=(),
        enable_prefix_caching=bool(random.integers(2)),
        swap_space_bytes=int(random.choice([0, 10_000])),
    )
    chosen = {other: registry.make(other, default) for other, default in KINDS.items()} | {kind: policy}
    servers = Deployment(
        replicas=int(random.integers(1, 4)),
        options=options,
        host=HostCost(),
        cost=lower.constant(STEP_NS / 1e9),
        capacity=KvCapacity(blocks, options.block_size, None, 1000, (), "check_policy", ""),
        **chosen,
    )
    arrivals = np.sort(random.integers(0, 12, count)) * STEP_NS
    prompt, limit = random.integers(1, 30, count), output + random.integers(0, 8, count)
    predicted = np.maximum(1, output + random.integers(-4, 5, count))
    return _Trial(arrivals, prompt, output, limit, random.integers(0, 3, count), predicted, servers)


def _conserves(trial: _Trial) -> str | None:
    cluster = trial.run()
    table = cluster.table
    done = table.outcome == Outcome.COMPLETED
    if (table.outcome == Outcome.UNFINISHED).any():
        return f"{int((table.outcome == Outcome.UNFINISHED).sum())} requests never finished"
    if (table.generated_tokens[done] != table.output_tokens[done]).any():
        return "a completed request has more or fewer tokens than it asked for"
    if any(replica.pool.held_blocks for replica in cluster.replicas):
        return "KV blocks are still held after everybody has left"
    return None


def _is_deterministic(trial: _Trial) -> str | None:
    first, second = trial.run(), trial.run()
    same = first.table.data.tobytes() == second.table.data.tobytes() and first.step_log == second.step_log
    return None if same else "two runs of the same trial differ"


def _starves_nobody_when_alone(trial: _Trial) -> str | None:
    """With arrivals far apart there is nobody to wait for."""
    apart = replace(trial, arrival_ns=np.arange(len(trial.prompt)) * 10_000 * STEP_NS)
    table = apart.run().table
    done = table.outcome == Outcome.COMPLETED
    waited = (table.first_scheduled_ns - table.arrival_ns)[done]
    late = int(waited.max(initial=0))
    return f"a request that was alone waited {late / 1e9:g} s" if late > 1000 * STEP_NS else None


def _is_blind_to_output_lengths(trial: _Trial) -> str | None:
    """Longer true answers under the same max_tokens change nothing before the first answer ends."""
    roomy = replace(trial, limit=trial.output + 9)
    one, other = roomy.run(), replace(roomy, output=roomy.output + 1).run()
    done = one.table.outcome == Outcome.COMPLETED
    if not done.any() or (one.table.outcome != other.table.outcome).any():
        return None
    first_end = int(one.table.finish_ns[done].min())
    seen = [[log[:5] for log in cluster.step_log if log[2] <= first_end] for cluster in (one, other)]
    return None if seen[0] == seen[1] else "what it does depends on output lengths that nobody can know"


def _has_the_fixed_keys_it_states(trial: _Trial) -> str | None:
    """`fixed_keys`, where an ordering has them, sort requests as `key` does, and as `late_key` those sent to the back."""
    table, ordering, now_ns = trial.table(), trial.servers.ordering, 7 * STEP_NS
    keys = ordering.fixed_keys(OrderingTable(table.columns()))
    if keys is None:
        return None
    if keys.slope not in (-1, 0, 1):
        return f"the slope must be -1, 0 or 1 (got {keys.slope})"
    for name in ("level", "base_ns"):
        column = np.asarray(getattr(keys, name))
        if column.dtype != np.int64 or column.shape != (len(table),):
            return f"{name} must be int64, one a row (got {column.dtype}, shape {column.shape})"
    entries = []
    for row in range(len(table)):
        request, level, base = Sequence(table, row), int(keys.level[row]), int(keys.base_ns[row])
        entries.append((ordering.key(request), (level, base + keys.slope * request.arrival_ns), f"key of {request}"))
        entries.append((ordering.late_key(request, now_ns), (level, base + now_ns), f"late_key of {request}"))
    entries.sort(key=lambda entry: entry[0])
    for (one, fixed, first), (other, fixed_other, second) in itertools.pairwise(entries):
        if (one == other) != (fixed == fixed_other) or fixed > fixed_other:
            return f"fixed_keys and {first} ({one}: {fixed}) or {second} ({other}: {fixed_other}) sort differently"
    return None
