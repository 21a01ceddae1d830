"""Numbers for block hashes: equal for equal hashes, dense whatever the hashes look like."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.engine.compiled.prefix import number_keys
from llmqsim.requests import PrefixTable


def prefixes(rows: list[list[int]], warm: bool = False) -> PrefixTable:
    offsets = np.cumsum([0, *map(len, rows)])
    return PrefixTable(offsets, np.array(sum(rows, []), dtype=np.int64), warm)


@pytest.mark.parametrize(
    "hashes",
    [
        np.arange(50),
        np.arange(50) + (7 << 32),
        (np.arange(50) % 5 + 1 << 32) + np.arange(50) // 5,
        np.arange(50) * 0x123456789ABCD + 1,
    ],
    ids=["small", "one owner", "owners and positions", "anything"],
)
def test_equal_numbers_for_equal_hashes(hashes):
    generator = np.random.default_rng(1)
    rows = [generator.choice(hashes, size).tolist() for size in (0, 5, 40, 3, 0)]
    keys = number_keys(prefixes(rows, warm=True))
    all_hashes = np.array(sum(rows, []))
    same_hash = all_hashes[:, None] == all_hashes[None, :]
    assert (same_hash == (keys.ids[:, None] == keys.ids[None, :])).all()
    assert keys.ids.min() >= 0 and keys.ids.max() < keys.numbers <= 4 * 48 + 1024
    assert keys.kept.tolist() == [0, 0, 5, 45, 48, 48]


def test_what_one_prompt_alone_has_is_private_unless_it_is_cached_beforehand():
    rows = [[1, 2, 3], [1, 2, 4], [1], [5]]
    assert np.diff(number_keys(prefixes(rows)).kept).tolist() == [2, 2, 1, 0]
    assert np.diff(number_keys(prefixes(rows, warm=True)).kept).tolist() == [3, 3, 1, 1]


def test_nobody_shares_anything():
    keys = number_keys(prefixes([[], []]))
    assert keys.kept.tolist() == [0, 0, 0]
