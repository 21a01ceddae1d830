"""The scalar rules of an engine, each written once: what fits, how much, who is blocked by what, when it ends.

The loops that call them differ in data structures, never in rules. All arguments and results are plain integers.
Behaviour: vLLM V1's scheduler, as described in docs/engine_semantics.md.
"""

from __future__ import annotations

from llmqsim.jit import kernel

# What keeps the head of the waiting queue out. ADMITTED is none; the others index the wait clocks of a replica.
WAIT_STEP = 0
WAIT_SLOTS = 1
WAIT_KV = 2
WAIT_TOKEN_BUDGET = 3
ADMITTED = -1


@kernel
def blocks_for(tokens, block_size):
    """KV blocks that hold this many tokens."""
    return (tokens + block_size - 1) // block_size


@kernel
def want_tokens(known_tokens, computed_tokens, prompt_tokens, max_tokens, budget):
    """Tokens that a running request gets in a step: the gap between what is known and what is computed, within budget.

    There is no prefill and no decode here: a request wants to catch up. Once `max_tokens` answers are under way its
    end is foreseen, and it wants nothing.
    """
    if known_tokens - prompt_tokens >= max_tokens:
        return 0
    return min(known_tokens - computed_tokens, budget)


@kernel
def new_blocks(computed_tokens, want, held_blocks, block_size):
    """Blocks to take so that the KV of `want` more tokens has a place."""
    return blocks_for(computed_tokens + want, block_size) - held_blocks


@kernel
def admission(running, max_num_seqs, budget, known_tokens, chunked_prefill, reserve_full_isl, block_size, free_blocks):
    """May the head of the waiting queue enter this step? ADMITTED, or the wait reason that keeps it out.

    reserve_full_isl: the blocks of the whole known sequence must be free, not only those of the first chunk.
    Slots are named before the budget: with both spent, a larger budget alone would admit nobody.
    """
    if running >= max_num_seqs:
        return WAIT_SLOTS
    if budget <= 0 or (not chunked_prefill and known_tokens > budget):
        return WAIT_TOKEN_BUDGET
    must_fit = known_tokens if reserve_full_isl else min(known_tokens, budget)
    if blocks_for(must_fit, block_size) > free_blocks:
        return WAIT_KV
    return ADMITTED


@kernel
def is_decode(computed_tokens, want):
    """One new token on top of existing KV costs a decode, whatever brought it there."""
    return want == 1 and computed_tokens > 0
