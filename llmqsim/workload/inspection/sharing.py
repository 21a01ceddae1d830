"""What requests have in common: blocks of prompts that a prefix cache would find, and sessions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmqsim.workload.inspection.lengths import quantile
from llmqsim.workload.trace import Trace

HASH_TOKENS = 512
"""tokens of a block where the trace's format does not say: Mooncake's"""
CACHES = (100_000, 1_000_000, 10_000_000)
"""tokens of the caches that are tried where none is asked for"""
MOST_BLOCKS = 20_000_000


@dataclass(frozen=True)
class CacheHits:
    """Share of all prompt tokens that a cache of so many tokens holds already; None tokens: it never forgets."""

    tokens: int | None
    hit_share: float


@dataclass(frozen=True)
class Prefixes:
    """Reuse of prompts by their block ids: least recently used blocks are forgotten first, answers are not cached."""

    block_tokens: int
    blocks: int
    distinct: int
    rows: int
    """requests that were looked at"""
    hits: tuple[CacheHits, ...]


@dataclass(frozen=True)
class Sessions:
    """Requests that follow one another. Gaps are from one arrival to the next of a session, the answer included."""

    sessions: int
    requests: int
    turns_mean: float
    turns_p50: int
    turns_p95: int
    turns_max: int
    gap_p50_s: float | None
    gap_p95_s: float | None
    reusable_share: float
    """of prompt tokens in the prompt and answer before: what a cache that never forgets would find, at most"""
    cached_share: float | None
    """of prompt tokens that the provider served from its cache, where the trace says so"""


def chain(ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Block ids to numbers of whole prefixes: equal where everything before is equal, too."""
    nodes: dict[tuple[int, int], int] = {}
    chains = []
    for row in ids:
        parent, path = 0, []
        for content in row:
            parent = nodes.setdefault((parent, content), len(nodes) + 1)
            path.append(parent)
        chains.append(path)
    return chains


def lru_hits(chains: Sequence[Sequence[int]], capacity: int | None) -> list[int]:
    """Leading blocks of each row that are cached. capacity : blocks; None: unlimited.

    The end of a prompt is forgotten before its beginning, which more requests share.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    found = []
    for row in chains:
        hits = 0
        for block in row:
            if block not in cache:
                break
            hits += 1
        found.append(hits)
        for block in reversed(row):
            cache[block] = None
            cache.move_to_end(block)
        while capacity is not None and len(cache) > capacity:
            cache.popitem(last=False)
    return found


def of_prefixes(trace: Trace, caches: Sequence[int] = ()) -> Prefixes | None:
    """Reuse at an unlimited cache and at the given ones, tokens; None where the trace has no block ids."""
    if trace.prefix_ids is None:
        return None
    size = trace.hash_tokens or HASH_TOKENS
    ids, total = [], 0
    for row in trace.prefix_ids:
        total += len(row)
        if total > MOST_BLOCKS:
            break
        ids.append(row)
    chains = chain(ids)
    prompt = trace.prompt_tokens[: len(ids)]
    hits = []
    for tokens in (None, *(caches or CACHES)):
        leading = np.array(lru_hits(chains, None if tokens is None else max(1, tokens // size)), dtype=np.int64)
        hits.append(CacheHits(tokens, float(np.minimum(leading * size, prompt).sum() / max(prompt.sum(), 1))))
    distinct = len({block for row in chains for block in row})
    return Prefixes(size, sum(map(len, chains)), distinct, len(ids), tuple(hits))


def of_sessions(trace: Trace) -> Sessions | None:
    """Sessions by the column session_id; None where there is none."""
    if trace.session is None or not (trace.session >= 0).any():
        return None
    mine = np.flatnonzero(trace.session >= 0)
    turns = np.bincount(trace.session[mine])
    turns = turns[turns > 0]
    order = mine[np.argsort(trace.session[mine], kind="stable")]
    same = trace.session[order][1:] == trace.session[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    prompt, output = trace.prompt_tokens, trace.output_tokens
    reusable = np.minimum(prompt[before] + output[before], prompt[after])
    gaps = trace.arrival_s[after] - trace.arrival_s[before] if trace.has_times and len(after) else None
    cached = trace.numbers.get("cached_tokens")
    known = None if cached is None else np.isfinite(cached)
    return Sessions(
        sessions=len(turns),
        requests=len(mine),
        turns_mean=float(turns.mean()),
        turns_p50=quantile(turns, 0.5),
        turns_p95=quantile(turns, 0.95),
        turns_max=int(turns.max()),
        gap_p50_s=None if gaps is None else float(np.quantile(gaps, 0.5)),
        gap_p95_s=None if gaps is None else float(np.quantile(gaps, 0.95)),
        reusable_share=float(reusable.sum() / prompt[mine].sum()),
        cached_share=None if cached is None or known is None else float(cached[known].sum() / prompt[known].sum()),
    )
