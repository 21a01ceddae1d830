"""Step times as a scheduler could have profiled them: the rules that `ProfiledCosts` and the compiled engine both call.

costs float64[:], params int64[:] : the step costs (cost/kernels.py). All times in nanoseconds.
"""

from __future__ import annotations

from llmqsim.cost.kernels import prefill_attention_ns, step_ns
from llmqsim.engine import rules
from llmqsim.jit import kernel

FINE = 1 << 20
"""`per_token` of `decode_span_ns` is in 1 / FINE ns"""
LONGEST_NS = 1 << 58
"""sums of times stay far below what a word holds"""


@kernel
def profiled_step_ns(costs, params, cached_percent, decodes, decode_kv_tokens, chunk_tokens, context_tokens):
    """A step of so many decodes and (unless chunk_tokens is 0) one prefill chunk, which attends to context_tokens."""
    chunks = 1 if chunk_tokens > 0 else 0
    attention_ns = prefill_attention_ns(costs, params, chunk_tokens, context_tokens) if chunks > 0 else 0.0
    read = rules.read_kv_tokens(decode_kv_tokens, decodes, 0, cached_percent)
    rows = max(1, decodes + chunks)
    return step_ns(costs, params, decodes, read, chunk_tokens, chunks, attention_ns, rows, rows)


def decode_span_ns(base_ns, per_token, prompt_tokens, steps):
    """`steps` decode steps of a request in a batch like it, each base_ns and per_token / FINE for a token of context.

    Plain numbers, or arrays of them: `decode_ns` is the same as a kernel.
    """
    return steps * (base_ns + per_token * (prompt_tokens + steps // 2) // FINE)


_span_ns = kernel(decode_span_ns)


@kernel
def decode_ns(base_ns, per_token, prompt_tokens, output_tokens):
    """From the first token of an answer to its last."""
    return _span_ns(base_ns, per_token, prompt_tokens, max(output_tokens - 1, 0))


@kernel
def fill_prefill_ns(costs, params, cached_percent, budget, times):
    """Write into times int64[n] what prompts of 0, 1, ... tokens take alone, in chunks of `budget`; False: too long."""
    times[0] = profiled_step_ns(costs, params, cached_percent, 0, 0, 0, 0)
    for tokens in range(1, len(times)):
        begun = (tokens - 1) // budget * budget
        times[tokens] = profiled_step_ns(costs, params, cached_percent, 0, 0, tokens - begun, tokens)
        if times[tokens] > LONGEST_NS:
            return False
        if begun > 0:
            times[tokens] += times[begun]
        if times[tokens] > LONGEST_NS:
            return False
    return True
