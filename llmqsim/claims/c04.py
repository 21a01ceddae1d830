"""C04: what the KV of a 13B model weighs, and how many requests that leaves room for."""

from __future__ import annotations

from llmqsim.claims.figure import Figure, Setting
from llmqsim.simulation import prepare

LENGTHS = {512: 33, 2048: 8}
"""tokens of a request to how many of them are said to fit"""
ROUNDED = {512: 27, 2048: 6}
"""the same at the megabyte a token that is quoted"""
MEGABYTE = 10**6


def measure(setting: Setting) -> list[Figure]:
    """Arithmetic of kv/capacity.py alone: no request is run."""
    servers = prepare(setting.load("c04")).servers
    capacity = servers.deployment.capacity
    pool = servers.deployment.options.kv_cache_memory_bytes
    exact = f"{capacity.formula}; {pool / 1e9:g} GB in blocks of {capacity.block_size}, of which vLLM keeps one"
    rounded = f"{pool / 1e9:g} GB at 1 MB a token, as quoted: 22 % more than it is"
    return [
        Figure("bytes of KV a token", capacity.bytes_per_token, 819_200, capacity.formula),
        *(
            Figure(f"requests of {tokens:,} tokens in 14 GB", capacity.usable_tokens // tokens, told, exact)
            for tokens, told in LENGTHS.items()
        ),
        *(
            Figure(f"requests of {tokens:,} tokens at a rounded 1 MB", pool // (MEGABYTE * tokens), told, rounded)
            for tokens, told in ROUNDED.items()
        ),
    ]
