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
NO_LIMIT = 1 << 60
"""tokens: more than any sequence or step has"""
REASONS = {"slots": WAIT_SLOTS, "kv": WAIT_KV, "token_budget": WAIT_TOKEN_BUDGET}
"""what a policy may name when it holds everybody back itself"""


@kernel
def blocks_for(tokens, block_size):
    """KV blocks that hold this many tokens."""
    return (tokens + block_size - 1) // block_size


@kernel
def want_tokens(known_tokens, computed_tokens, prompt_tokens, max_tokens, at_most):
    """Tokens that a running request gets in a step: the gap between what is known and what is computed, within limits.

    There is no prefill and no decode here: a request wants to catch up. Once `max_tokens` answers are under way its
    end is foreseen, and it wants nothing.
    """
    if known_tokens - prompt_tokens >= max_tokens:
        return 0
    return min(known_tokens - computed_tokens, at_most)


@kernel
def new_blocks(computed_tokens, want, held_blocks, block_size):
    """Blocks to take so that the KV of `want` more tokens has a place."""
    return max(0, blocks_for(computed_tokens + want, block_size) - held_blocks)


@kernel
def has_place(running, max_num_seqs, budget):
    """Is there a slot and a token for one more? ADMITTED, or the wait reason that keeps it out.

    Slots are named before the budget: with both spent, a larger budget alone would admit nobody.
    """
    if running >= max_num_seqs:
        return WAIT_SLOTS
    return ADMITTED if budget > 0 else WAIT_TOKEN_BUDGET


@kernel
def first_tokens(missing_tokens, budget, at_most, chunked_prefill):
    """Tokens that a newcomer gets in its first step; 0 when its prompt must be whole and the budget is too small."""
    if chunked_prefill:
        return min(missing_tokens, at_most)
    return missing_tokens if missing_tokens <= budget else 0


@kernel
def has_memory(must_fit_tokens, hit_blocks, hit_free_blocks, block_size, free_blocks, watermark_blocks):
    """Are the blocks of `must_fit_tokens` there, above the watermark?

    hit_blocks : of these, cached already; hit_free_blocks : cached, but held by nobody, so that taking them uses up a
    free block (every vLLM V1 counts them as needed; a hit block in use costs nothing).
    """
    need = blocks_for(must_fit_tokens, block_size) - hit_blocks + hit_free_blocks
    return need <= free_blocks - watermark_blocks


@kernel
def may_return(swapped_blocks, free_blocks, watermark_blocks, running):
    """Is there room on the GPU for a swapped request's blocks, and, beside others, for one more above the watermark?"""
    if running > 0 and swapped_blocks + 1 > free_blocks - watermark_blocks:
        return False
    return swapped_blocks <= free_blocks


@kernel
def read_kv_tokens(decode_kv_tokens, decode_requests, repeated_tokens, cached_percent):
    """KV tokens that decode attention has to bring from memory: what several requests share comes once.

    repeated_tokens : tokens that requests read beside another that brought them already. cached_percent : time of a
    token that is in the GPU's cache, per cent of one that is not; 100 for step costs that know no cache. Reading all of
    them from the cache is a bound of its own, as both go on at once.
    """
    if cached_percent >= 100:
        return decode_kv_tokens
    once = max(decode_kv_tokens - repeated_tokens, decode_requests)
    return max(once, decode_kv_tokens * cached_percent // 100)


@kernel
def padded_context(tokens, padding_tokens, longest):
    """Tokens that a row reads, padded to the longest prompt of its batch: no row is longer than `longest`."""
    return min(tokens + padding_tokens, longest) if padding_tokens > 0 else tokens


@kernel
def is_decode(computed_tokens, want):
    """One new token on top of existing KV costs a decode, whatever brought it there."""
    return want == 1 and computed_tokens > 0


@kernel
def carry_ns(size_bytes, fragments, bytes_per_us, per_fragment_ns):
    """Nanoseconds that a link is taken up by so many bytes in so many fragments, each of which has to be posted."""
    return max((size_bytes * 1000 + bytes_per_us - 1) // bytes_per_us, fragments * per_fragment_ns)


@kernel
def layerwise_body(size_bytes, layers):
    """Bytes of a chunk that can be sent while it is computed: all layers but the last."""
    return size_bytes - (size_bytes + layers - 1) // layers
