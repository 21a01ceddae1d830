"""Numbers for the block hashes of a run, 0, 1, ..., so that the cache of a compiled replica is an array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.requests import PrefixTable

GAPS_ALLOWED = 4
"""numbers for each hash of the table, at most, that a cheap numbering may use up"""


@dataclass(frozen=True)
class Keys:
    """Keys of the rows' leading blocks. Row i has ids[offsets[i] :][: kept[i + 1] - kept[i]]; int64 arrays.

    kept : blocks up to each row, those left out that no other row has and nothing brings into the cache beforehand: they
    are as private as the blocks behind them. numbers : ids are below this.
    """

    offsets: np.ndarray
    ids: np.ndarray
    kept: np.ndarray
    numbers: int
    warm: bool


def number_keys(prefixes: PrefixTable) -> Keys:
    """Number the hashes of a run."""
    from llmqsim.engine.compiled.prefix import numbering

    offsets, hashes = np.ascontiguousarray(prefixes.offsets), np.ascontiguousarray(prefixes.hashes)
    ids, counts = _dense(hashes, numbering)
    kept = np.zeros(len(offsets), dtype=np.int64)
    if prefixes.warm:
        kept[:] = offsets
    else:
        numbering.count_shared(offsets, ids, counts, kept)
        np.cumsum(kept, out=kept)
    return Keys(offsets, ids, kept, len(counts), prefixes.warm)


def _dense(hashes: np.ndarray, numbering) -> tuple[np.ndarray, np.ndarray]:
    """(number of each hash, how often each number occurs)."""
    owners = int(hashes.max(initial=0) >> numbering.POSITION_BITS) + 1
    most = GAPS_ALLOWED * len(hashes) + 1024
    if owners <= most:
        low, high = np.full(owners, np.iinfo(np.int64).max), np.full(owners, -1)
        numbering.spans(hashes, low, high)
        used = high >= 0
        sizes = np.where(used, high - np.where(used, low, 0) + 1, 0)
        if int(sizes.sum()) <= most:
            ids, counts = np.empty(len(hashes), dtype=np.int64), np.zeros(int(sizes.sum()), dtype=np.int64)
            numbering.number(hashes, np.cumsum(sizes) - sizes - np.where(used, low, 0), ids, counts)
            return ids, counts
    _, ids, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return ids.astype(np.int64), counts.astype(np.int64)
