"""C05: swapping KV to the host and back, beside computing it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.claims.figure import Figure, Setting
from llmqsim.engine.costs import ProfiledCosts
from llmqsim.engine.deployment import Deployment
from llmqsim.simulation import prepare

CASES = {
    "13B, 2,048 tokens": (None, "per_block", 2048),
    "13B, 4,096 tokens": (None, "per_block", 4096),
    "8B with grouped KV heads, 8,192 tokens": ("gqa_8b", "gqa_8b_per_block", 8192),
}
"""variant with merged copies, variant with one copy a piece, tokens"""
LAUNCH_S = 5e-6
"""of one copy, from memory"""


def measure(setting: Setting) -> list[Figure]:
    """Milliseconds there and back, and how much longer it takes to compute the same again alone."""
    figures = []
    for name, (merged, pieces, tokens) in CASES.items():
        swap_ms, again_ms = _times_ms(setting, merged, tokens)
        pieces_ms, _ = _times_ms(setting, pieces, tokens)
        figures += [
            Figure(
                f"{name}: there and back, ms", swap_ms, None, "merged copies over PCIe 4 at 25 GB/s, nothing else on it"
            ),
            Figure(
                f"{name}: the same block by block, ms",
                pieces_ms,
                None,
                "a launch of 5 µs for each block, layer, key or value",
            ),
            Figure(f"{name}: computing it again, ms", again_ms, None, "one A100-80GB that does nothing else meanwhile"),
        ]
    return figures


def _times_ms(setting: Setting, variant: str | None, tokens: int) -> tuple[float, float]:
    """There and back, and computing it again, milliseconds."""
    swap_s, again_s = times_s(prepare(setting.load("c05", variant)).servers.deployment, tokens)
    return 1e3 * swap_s, 1e3 * again_s


def times_s(deployment: Deployment, tokens: int) -> tuple[float, float]:
    """Seconds to copy a request's blocks to the host and back, and to compute them again alone, in the engine's own costs."""
    options = deployment.options
    costs = ProfiledCosts(deployment.cost, deployment.link, options.max_num_batched_tokens)
    blocks = -(-tokens // options.block_size)
    return 2 * costs.copy_ns(blocks) / 1e9, costs.prefill_ns(tokens) / 1e9


def per_block_s(block_bytes: int, layers: int, bytes_per_s: float) -> float:
    """A block copied in pieces: one a layer, key or value; a launch each, and their bytes."""
    return 2 * layers * LAUNCH_S + block_bytes / bytes_per_s


def ratios(setting: Setting, sets: Mapping[str, Any], tokens: list[int], pieces: bool) -> list[float | None]:
    """Time to compute so many tokens again over the time to swap them; above 1 swapping is faster.

    sets : model, GPU, TP and link. pieces : copies block by block. None where model or KV pool don't take so many.
    """
    servers = prepare(setting.load("c05", sets=sets)).servers
    if pieces:
        link = servers.deployment.link
        each = per_block_s(link.block_bytes, servers.model.layers, link.bytes_per_s)
        servers = prepare(setting.load("c05", sets={**sets, "engine.host_link.per_block": each})).servers
    found: list[float | None] = []
    for number in tokens:
        swap_s, again_s = times_s(servers.deployment, number)
        found.append(again_s / swap_s if number <= servers.longest_request_tokens else None)
    return found
