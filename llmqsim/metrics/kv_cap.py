"""A cap on running requests that spares a KV pool its preemptions, and what it assumes about lengths."""

from __future__ import annotations

import math

import numpy as np

from llmqsim.requests import RequestTable

SURE = 2.326
"""standard normal quantile of 99 %"""


def suggested_cap(table: RequestTable, rows: np.ndarray, pool: dict | None, preemptions: int) -> dict | None:
    """How many full-length requests fit at once; None where nothing was preempted or there is no pool.

    rows : bool[rows], requests whose lengths count. A running request is taken to hold the blocks of its whole prompt
    and answer, lengths to be independent draws of this workload, and their sum to fit with 99 % certainty (normal
    approximation); with one length for all that is the plain quotient.
    """
    if not preemptions or not pool or not pool.get("blocks") or not rows.any():
        return None
    size, usable = pool["block_size"], pool["blocks"] - 1
    tokens = (table.prompt_tokens + table.output_tokens - 1)[rows]  # the last token's KV is never written
    blocks = -(-tokens // size)
    mean, spread = float(blocks.mean()), float(blocks.std())
    # n mean + SURE spread sqrt(n) <= usable, solved for sqrt(n)
    root = (-SURE * spread + math.sqrt((SURE * spread) ** 2 + 4 * mean * usable)) / (2 * mean)
    cap = max(1, math.floor(root * root + 1e-9))
    if spread:
        lengths = f"lengths as drawn (mean {tokens.mean() + 1:,.0f}, CV {tokens.std() / tokens.mean():.2g})"
    else:
        lengths = f"{int(tokens[0]) + 1:,} tokens a request"
    return {
        "max_num_seqs": cap,
        "assumes": lengths,
        "rule": f"prompt and whole answer of each held at once, 99 % sure to fit in {usable:,} blocks of {size}",
    }
