"""The same latencies from measured events: one row a chunk that a client received. Defined as in metrics/names.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, describe_ns, describe_weighted_ns, exact_sum
from llmqsim.metrics.events_file import Events, read
from llmqsim.metrics.names import NAMES
from llmqsim.stamps import AUTO

SHORT = 100
"""samples of at most this many entries are listed as well"""


def read_events(path: str | Path, time_unit: str = AUTO) -> dict[str, Any]:
    """Read a file of events and measure it. time_unit : of its times, one of stamps.CHOICES.

    Raises DataError naming file, line, column and value.
    """
    return measure(read(path, time_unit))


def measure(events: Events) -> dict[str, Any]:
    """Counts, and each latency of names.NAMES as {mean, p50, p90, p95, p99, max, n} in seconds.

    Samples of at most SHORT entries add `values` (one entry a request, or a chunk after the first for chunk_gap_s and
    itl_s). itl_s counts every token: its n is of tokens, and `tokens` beside `values` says how many each entry holds.
    """
    first, last = events.start[:-1], events.start[1:] - 1
    total = np.add.reduceat(events.tokens, first) if len(first) else np.zeros(0, dtype=np.int64)
    ttft, e2e = events.time_ns[first] - events.arrival_ns, events.time_ns[last] - events.arrival_ns
    several, again = total >= 2, last > first
    follows = np.ones(len(events.time_ns), dtype=bool)
    follows[first] = False
    gap = np.diff(events.time_ns, prepend=events.time_ns[:1])[follows]
    held = events.tokens[follows]
    samples = {
        "ttft_s": ttft,
        "e2e_s": e2e,
        "tpot_s": (e2e - ttft)[several] / (total[several] - 1),
        "ntpot_s": e2e / total,
        "chunk_gap_s": gap,
        "ttsc_s": events.time_ns[first[again] + 1] - events.time_ns[first[again]],
    }
    shown = {key: _with_values(describe_ns(sample), sample) for key, sample in samples.items()}
    per_token = gap / held
    shown["itl_s"] = _with_values(describe_weighted_ns(per_token, held), per_token)
    if len(held) <= SHORT:
        shown["itl_s"]["tokens"] = held.tolist()
    counts = {
        "requests": len(first),
        "chunks": len(events.time_ns),
        "tokens": int(exact_sum(events.tokens)),
        "one_token_requests": int((~several).sum()),
    }
    return counts | {name.key: shown[name.key] for name in NAMES}


def _with_values(figures: dict[str, Any], sample: np.ndarray) -> dict[str, Any]:
    if len(sample) <= SHORT:
        figures["values"] = [value / NS_PER_S for value in sample.tolist()]
    return figures
