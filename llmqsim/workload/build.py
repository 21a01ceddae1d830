"""The whole workload, drawn before the clock starts: `build` makes the request table of a run, and what its clients do.

Request i has the same lengths whatever the rate, the number of requests or the duration; class, prompt and output
length and think time come from one uniform number each, so that variants of a scenario serve the same rows (common
random numbers). Classes with arrivals of their own have streams of their own: one more class shifts no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim import rng
from llmqsim.clients import Clients, Retries
from llmqsim.errors import ScenarioError
from llmqsim.memory import require
from llmqsim.requests import RequestTable
from llmqsim.units import NS_PER_S
from llmqsim.workload import predict, prefix
from llmqsim.workload.generate import generate
from llmqsim.workload.lengths import MAX_TOKENS
from llmqsim.workload.rows import Rows

BYTES_PER_KEPT_REQUEST = 800
"""peak memory of a run whose requests are all kept and written as CSV, measured on a million of them"""
LONGEST_PAUSE_S = 1e7
"""116 days: what a pause that doubles too often is cut to"""
TRACE_HASH_BLOCK_TOKENS = 512
"""of Mooncake's published traces"""


@dataclass(frozen=True)
class Workload:
    """The requests of a run, what a reader should know about them, where they come from, and their rate."""

    table: RequestTable
    notes: tuple[str, ...]
    source: str
    offered_rate_per_s: float
    """requests per second: the process's rate, a trace's mean; inf when all arrive at once, NaN in a closed loop"""
    clients: Clients = field(default=Clients())
    doubt: str = ""
    """why a trace's times may be in another unit than the one in which they were read"""


def build(
    workload: dict[str, Any],
    *,
    seed: int,
    replication: int,
    base_folder: str | Path,
    max_model_len: int | None,
    block_size: int = 16,
    streamed: bool = False,
) -> Workload:
    """Draw or read all requests of a run.

    workload : the scenario's `workload` as plain values in SI units (keys absent or None where not given).
    base_folder : where relative file names start. max_model_len : tokens; limits answers when `max_tokens` is 'model'.
    block_size : tokens of a KV block, in which shared prefixes are told. streamed : see requests.RequestTable.
    Raises ScenarioError for a workload that can't be made, DataError for a file that can't be read.
    """
    given = {k: v for k, v in workload.items() if v is not None}
    notes: list[str] = []
    folder = Path(base_folder)
    if "trace" in given:
        from llmqsim.workload.replay import replay  # with all that reads traces

        rows = replay(given, folder, notes, seed, replication)
    else:
        rows = generate(given, seed, replication, folder, notes)
    if not len(rows.arrival_ns):
        raise ScenarioError(_nobody(given.get("duration")))
    shared = given.get("prefix") or {}
    which, rows.prompt = prefix.recur(shared, rows.prompt, seed, replication)
    if not streamed:
        require(
            len(rows.prompt) * BYTES_PER_KEPT_REQUEST,
            f"workload: {len(rows.prompt):,} requests that are all kept",
            "keep the summary only (--keep summary), or simulate fewer",
        )
    output, max_tokens = limit(rows, given.get("max_tokens", "model"), max_model_len, notes)
    table = RequestTable.from_columns(
        rows.classes,
        rows.tenants,
        streamed,
        arrival_ns=rows.arrival_ns,
        prompt_tokens=rows.prompt,
        output_tokens=output,
        max_tokens=max_tokens,
        class_id=rows.class_id,
        tenant_id=rows.tenant_id,
        priority=rows.priority,
        think_ns=rows.think_ns,
    )
    table.prefixes = _prefixes(shared, rows, which, block_size, seed, replication)
    if "predictor" in given:
        predict.fill(table, given["predictor"], folder, seed, replication)
    clients = _clients(given.get("clients") or {}, rows, seed, replication)
    return Workload(table, tuple(notes), rows.source, rows.rate, clients, rows.doubt)


def _nobody(duration: float | None) -> str:
    """The sentence for a workload without a request."""
    if duration is None:
        return "workload.arrivals: no request arrives in its stages; raise a rate or a duration"
    hint = "raise the duration or the rate, or give workload.requests"
    return f"workload.duration: no request arrives before {duration:g} s; {hint}"


def _prefixes(spec: dict, rows: Rows, which: np.ndarray, block_size: int, seed: int, replication: int):
    """Shared KV blocks, from the trace's own ids or as the spec says; None when nothing is shared."""
    if rows.prefix_ids is not None:
        tokens = spec.get("hash_block_tokens") or rows.hash_tokens or TRACE_HASH_BLOCK_TOKENS
        key = "workload.prefix.hash_block_tokens"
        made = prefix.trace_blocks(rows.prefix_ids, rows.prompt, tokens, block_size, key)
    else:
        made = prefix.shared_blocks(spec, which, rows.prompt, block_size, seed, replication)
    return made if made is None else replace(made, warm=bool(spec.get("warm")))


def _clients(spec: dict, rows: Rows, seed: int, replication: int) -> Clients:
    timeout = spec.get("timeout")
    return Clients(
        loops=rows.loops,
        max_in_flight=spec.get("max_in_flight"),
        turnaround_ns=round((spec.get("turnaround") or 0.0) * NS_PER_S),
        timeout_ns=None if timeout is None else max(1, round(timeout * NS_PER_S)),
        retries=_retries(spec.get("retries"), len(rows.arrival_ns), seed, replication),
    )


def _retries(spec: dict | None, rows: int, seed: int, replication: int) -> Retries | None:
    """Pauses before each attempt of each request, drawn now, so that variants of a run share them."""
    if spec is None:
        return None
    even = rng.stream(seed, replication, "retries").random((rows, spec["attempts"]))
    pause_s = spec["backoff"] * spec["multiplier"] ** np.arange(spec["attempts"])
    pause_s = pause_s * (1 + spec["jitter"] * (2 * even - 1))
    delays_ns = np.rint(np.minimum(pause_s, LONGEST_PAUSE_S) * NS_PER_S).astype(np.int64)
    return Retries(delays_ns, spec["after"] != "timeout", spec["after"] != "refusal")


def limit(rows: Rows, max_tokens: Any, max_model_len: int | None, notes: list[str]):
    """Output tokens as served and the limit that the server is told, int64[n] each."""
    output, own = rows.output, rows.max_tokens
    if max_tokens == "output":
        if own is not None:
            notes.append("workload.max_tokens: output replaces the trace's own column max_tokens")
        return output, output
    if max_tokens == "model":
        longest = np.full(len(output), MAX_TOKENS, dtype=np.int64)
        limit = longest if max_model_len is None else np.maximum(max_model_len - rows.prompt, output)
    elif isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or not 1 <= max_tokens <= MAX_TOKENS:
        raise ScenarioError(
            f"workload.max_tokens: must be 'output', 'model' or a number of at least 1 (got {max_tokens!r})"
        )
    else:
        if cut := int(np.count_nonzero(output > max_tokens)):
            notes.append(f"{cut:,} outputs cut at max_tokens {max_tokens:,}")
        output, limit = np.minimum(output, max_tokens), np.full(len(output), max_tokens, dtype=np.int64)
    if own is None:
        return output, limit
    notes.append(_own_limits(own, output))
    return output, np.where(own > 0, np.minimum(own, limit), limit)


def _own_limits(own: np.ndarray, output: np.ndarray) -> str:
    """What a trace's column max_tokens says, in words. own : int64[n], 0 where a cell is empty."""
    stated, reached = int((own > 0).sum()), int(((own > 0) & (own == output)).sum())
    return (
        f"{stated:,} of {len(own):,} requests carry a max_tokens of their own; {reached:,} answers reach it, and the "
        "server foresees their end"
    )
