"""Scalar rules of batching policies, each written once: the policies and their compiled forms both call them."""

from __future__ import annotations

from llmqsim.jit import kernel


@kernel
def lags(known_tokens, computed_tokens):
    """Has a request more than its next token to compute: is it half-prefilled?"""
    return known_tokens - computed_tokens > 1


@kernel
def expected_tokens(max_tokens, generated_tokens, clip_tokens):
    """SGLang: output tokens that a request may still produce, as far as they are reckoned with."""
    return min(max_tokens - generated_tokens, clip_tokens)


@kernel
def ratio_after_retraction(made, allowed, staying, steps):
    """SGLang: share of the remaining output that is reserved once requests were sent back.

    made, allowed : output tokens of the `staying` requests, so far and at most. steps : decode steps to get through.
    """
    return min(1.0, (made + steps * staying) / max(1, allowed))


@kernel
def ratio_after_decode(ratio, start, floor, steps):
    """SGLang: the share falls, over `steps` decode steps from `start` to `floor` of it."""
    return max(start * floor, ratio - start * (1 - floor) / steps)
