"""What prompts have in common: groups with a shared start, prompts that recur, or block hashes from a trace.

The result is a hash for each leading KV block of a prompt that some other prompt may have, too. Equal hashes mean equal
content from the start of the prompt on: a hash stands for the whole chain before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.errors import ScenarioError
from llmqsim.memory import require
from llmqsim.requests import PrefixTable
from llmqsim.rng import stream

BYTES_PER_BLOCK = 24
"""memory while the hash of a block is made"""
GROUP_SHIFT = 32
"""a shared block's hash is (number of its group or prompt, plus one) << 32 | position"""


def recur(spec: dict[str, Any], prompt: np.ndarray, seed: int, replication: int) -> tuple[np.ndarray, np.ndarray]:
    """Which distinct prompt each row asks with, and the prompt lengths with recurring ones made equal (int64[n] each).

    Row i asks with prompt i mod n in round-robin order, else with one at random; prompt p is as long as row p's was.
    Without distinct_prompts every row has a prompt of its own.
    """
    rows = len(prompt)
    distinct = spec.get("distinct_prompts")
    if not distinct or not rows:
        return np.arange(rows), prompt
    which = _in_order(spec, rows, min(distinct, rows), stream(seed, replication, "prompts"))
    return which, prompt[which]


def shared_blocks(
    spec: dict[str, Any], which: np.ndarray, prompt: np.ndarray, block_size: int, seed: int, replication: int
) -> PrefixTable | None:
    """Hashes by row; None when the spec shares nothing. Only blocks that lie wholly within what is shared have one."""
    shared, groups = spec.get("shared_tokens") or 0, spec.get("groups") or 1
    recurring = bool(spec.get("distinct_prompts"))
    if not shared and not recurring:
        return None
    if recurring:
        group = which % groups
    else:
        group = _in_order(spec, len(which), groups, stream(seed, replication, "prefix_groups"))
    in_group = np.minimum(shared, prompt) // block_size
    alone = np.maximum(prompt // block_size - in_group, 0) if recurring else np.zeros(len(prompt), dtype=np.int64)
    return PrefixTable(*_counted_up(group + 1, in_group, groups + which + 1, alone))


def _counted_up(first: np.ndarray, in_first: np.ndarray, second: np.ndarray, in_second: np.ndarray) -> tuple:
    """Offsets and hashes of rows that each begin with blocks of one owner, then have blocks of another (int64[n] each)."""
    blocks = in_first + in_second
    _fit(int(blocks.sum()))
    offsets = np.concatenate([[0], np.cumsum(blocks)])
    owners, counts = np.stack([first, second], axis=1).ravel(), np.stack([in_first, in_second], axis=1).ravel()
    # a hash is owner << GROUP_SHIFT plus position, and position is the place in the array less where the row begins
    hashes = np.repeat((owners << GROUP_SHIFT) - np.repeat(offsets[:-1], 2), counts)
    hashes += np.arange(len(hashes))
    return offsets, hashes


def trace_blocks(
    ids: list[list[int]], prompt: np.ndarray, hash_block_tokens: int, block_size: int, key: str
) -> PrefixTable:
    """Hashes of KV blocks from a trace's own block ids, each of `hash_block_tokens` tokens (the last may be cut short).

    Raises ScenarioError when neither size divides the other.
    """
    if hash_block_tokens % block_size and block_size % hash_block_tokens:
        raise ScenarioError(
            f"{key}: {hash_block_tokens:,} tokens and engine.block_size {block_size:,} don't divide one another; "
            "choose a block_size that does"
        )
    covered = np.minimum(prompt, np.array([len(row) for row in ids], dtype=np.int64) * hash_block_tokens)
    _fit(int((covered // block_size).sum()))
    nodes: dict[tuple[int, int], int] = {}
    hashes: list[int] = []
    offsets = [0]
    for row, tokens in zip(ids, prompt.tolist(), strict=True):
        parent = 0
        chain = []
        for content in row:
            parent = nodes.setdefault((parent, content), len(nodes) + 1)
            chain.append(parent)
        for position in range(min(tokens, len(chain) * hash_block_tokens) // block_size):
            last_token = (position + 1) * block_size - 1
            hashes.append(chain[last_token // hash_block_tokens] << GROUP_SHIFT | position)
        offsets.append(len(hashes))
    return PrefixTable(np.array(offsets), np.array(hashes, dtype=np.int64))


def _fit(blocks: int) -> None:
    """Raises ScenarioError where so many hashes don't fit into memory."""
    hint = "simulate fewer requests, or share fewer tokens"
    require(blocks * BYTES_PER_BLOCK, f"workload.prefix: hashes of {blocks:,} KV blocks that prompts share", hint)


def _in_order(spec: dict[str, Any], rows: int, choices: int, generator: np.random.Generator) -> np.ndarray:
    """Round robin, or one number a row at random (row i's choice does not depend on how many rows there are)."""
    if (spec.get("order") or "random") == "round_robin":
        return np.arange(rows) % choices
    return (generator.random(rows) * choices).astype(np.int64)
