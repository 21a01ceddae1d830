"""Scalar rules of policies, each written once: the policies and their compiled forms both call them."""

from __future__ import annotations

from llmqsim.jit import kernel

FAR_NS = 1 << 59
"""stands for "last of all": no size or deadline is larger; keys stay below 2^60"""


@kernel
def lags(known_tokens, computed_tokens):
    """Has a request more than its next token to compute: is it half-prefilled?"""
    return known_tokens - computed_tokens > 1


@kernel
def predicted_output(predicted_tokens, generated_tokens, max_tokens, re_estimate):
    """Output tokens expected of a request; where it has made them already, so many times as many, if re_estimate > 1."""
    if re_estimate > 1 and predicted_tokens > 0:
        expected = predicted_tokens
        while expected <= generated_tokens:
            expected = int(expected * re_estimate) + 1
        return min(expected, max(max_tokens, predicted_tokens))
    return predicted_tokens


@kernel
def remaining_tokens(predicted_tokens, generated_tokens, max_tokens, re_estimate):
    """Of these, still to come: at least 1."""
    return max(1, predicted_output(predicted_tokens, generated_tokens, max_tokens, re_estimate) - generated_tokens)


@kernel
def remaining_size(remaining, known_tokens, computed_tokens, by_total):
    """SRPT: tokens still to come; by_total: those of the prompt that must still be computed, too."""
    return remaining + max(0, known_tokens - computed_tokens - 1) if by_total else remaining


@kernel
def aged_ns(size, per_unit_ns):
    """A size as the waiting, ns, that makes up for it: per_unit_ns (float) each; 0: the size itself, nobody ages."""
    if per_unit_ns == 0:
        return min(size, FAR_NS)
    return int(min(size * per_unit_ns, float(FAR_NS)))


@kernel
def quantum_ns(first_ns, level):
    """MLFQ: service that a level gives, twice that of the level above; no more than FAR_NS."""
    quantum = first_ns
    for _ in range(level):
        quantum = min(2 * quantum, FAR_NS)
    return quantum


@kernel
def first_level(prefill_ns, first_ns, levels):
    """MLFQ: the first level whose quantum covers a prefill, or the last."""
    level = 0
    while level < levels - 1 and quantum_ns(first_ns, level) < prefill_ns:
        level += 1
    return level


@kernel
def goodput_key(arrival_ns, now_ns, generated_tokens, prefill_ns, cost_ns, ttft_ns, e2e_ns):
    """(0, cost) of who can still meet its targets (-1: none), (1, arrival) of who has none, (2, arrival) of who can't."""
    if ttft_ns < 0 and e2e_ns < 0:
        return 1, arrival_ns
    waited_ns = now_ns - arrival_ns
    late = ttft_ns >= 0 and generated_tokens == 0 and waited_ns + prefill_ns > ttft_ns
    late = late or (e2e_ns >= 0 and waited_ns + cost_ns > e2e_ns)
    return (2, arrival_ns) if late else (0, cost_ns)


@kernel
def reserved_tokens(remaining, margin, max_tokens, generated_tokens, known_tokens):
    """Tokens whose KV an answer will have made, by its prediction `margin` times over and the most that it may be."""
    answer = min(int(remaining * margin), max_tokens - generated_tokens)
    return known_tokens + max(0, answer - 1)


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


@kernel
def expected_answer(predicted_tokens, max_tokens):
    """Output tokens that a router reckons with: as predicted, or (-1: nobody predicts) as many as may come."""
    return predicted_tokens if predicted_tokens >= 0 else max_tokens


@kernel
def work(prompt_weight, prompt_tokens, answer_tokens):
    """Work of requests in output tokens. prompt_weight : of a prompt token; prompts are computed many at a time."""
    return prompt_weight * prompt_tokens + answer_tokens


@kernel
def penalty(affinity_weight, cached, load_weight, ahead):
    """What speaks against a replica. cached : share of the prompt. ahead : of the others, in requests in flight."""
    return load_weight * ahead - affinity_weight * cached


@kernel
def refilled(held, rate, burst, elapsed_ns):
    """What is in a token bucket after so long. rate : a second. burst : most that it holds."""
    return min(burst, held + rate * elapsed_ns / 1e9)


@kernel
def is_in_time(waiting, finished, window_ns, slack, left_ns):
    """Will a place be free before the deadline, behind so many who wait, if they leave as `finished` did in a window?"""
    return waiting * window_ns / finished <= slack * left_ns
