"""Looking up the duration of a step: scalar kernels over the arena that cost/lower.py fills.

`costs` is float64: the scalars `C_*` in nanoseconds, then the tables. `params` is int64: where the tables lie, the
CUDA-graph sizes and the measured box. Grid axes have 8 points an octave (every whole number below 16), so that a cell
is found with shifts alone; between points everything is linear, and beyond a table its last cell goes on.
"""

from __future__ import annotations

from llmqsim.jit import kernel

C_BASE = 0
"""ns of every step: the host's fixed time, or an affine model's base"""
C_PER_TOKEN = 1
C_PER_PREFILL_TOKEN = 2
C_PER_DECODE_REQUEST = 3
C_PER_KV_TOKEN = 4
C_PER_RUNNING = 5
C_MIXED = 6
"""ns of a step that holds a prefill chunk: host time, and the launch of prefill attention in every layer"""
C_EAGER = 7
"""ns that the token-dependent part takes at least in a step that no CUDA graph covers"""
COST_SCALARS = 8

P_LINEAR = 0
"""first entry of the table of everything that depends on the tokens of a step alone"""
P_LINEAR_SIZE = 1
P_HEAD = 2
"""LM head and sampler by sampled rows"""
P_HEAD_SIZE = 3
P_DECODE = 4
"""decode attention by (requests, mean context), row by row"""
P_DECODE_ROWS = 5
P_DECODE_COLUMNS = 6
P_PREFILL = 7
"""prefill attention by (tokens of the chunk, tokens before it), row by row"""
P_PREFILL_ROWS = 8
P_PREFILL_COLUMNS = 9
P_PADDED_SIZE = 10
"""token counts below this one are padded as the table at PARAM_SCALARS says"""
P_BOX = 11
"""highest step tokens, decode requests, decode context and prefill context that were measured"""
AXES = ("step tokens", "decode batch", "decode context", "prefill context")
P_DECODE_GRAPHS = P_BOX + len(AXES)
"""1: only steps without a prefill chunk are captured"""
PARAM_SCALARS = P_DECODE_GRAPHS + 1

LONGEST_STEP_NS = float(2**62)
"""what an impossible step is cut to; the clock refuses to go that far, and int64 holds the sum"""

_SHIFT = 3


@kernel
def octave(value):
    """Shift that brings a whole number >= 0 below 16 = 2 x 8 points."""
    shift = 0
    if value >= 1 << 20:
        shift = 16
    if value >> shift >= 1 << 12:
        shift += 8
    if value >> shift >= 1 << 8:
        shift += 4
    while value >> shift >= 2 << _SHIFT:
        shift += 1
    return shift


@kernel
def grid_index(value):
    """Index of the last grid point that is not above `value` (whole number >= 0)."""
    shift = octave(value)
    return (shift << _SHIFT) + (value >> shift)


@kernel
def grid_point(index):
    """The whole number at a grid index: the inverse of `grid_index`."""
    if index < 2 << _SHIFT:
        return index
    shift = (index >> _SHIFT) - 1
    return (index - (shift << _SHIFT)) << shift


@kernel
def _line(costs, start, size, value):
    """Entry `value` of a dense table; its last slope goes on beyond it."""
    if value < size:
        return costs[start + value]
    last = costs[start + size - 1]
    return last + (last - costs[start + size - 2]) * (value - size + 1)


@kernel
def _grid(costs, start, rows, columns, row_value, column_value, column_rest):
    """Bilinear value of a grid at (row_value, column_value + column_rest), column_rest in [0, 1)."""
    row = min(grid_index(row_value), rows - 2)
    column = min(grid_index(column_value), columns - 2)
    row_point = grid_point(row)
    column_point = grid_point(column)
    u = (row_value - row_point) / (grid_point(row + 1) - row_point)
    v = (column_value - column_point + column_rest) / (grid_point(column + 1) - column_point)
    at = start + row * columns + column
    low = costs[at] + v * (costs[at + 1] - costs[at])
    high = costs[at + columns] + v * (costs[at + columns + 1] - costs[at + columns])
    return low + u * (high - low)


@kernel
def captured(params, tokens, prefill_chunks):
    """Does a CUDA graph cover a step of `tokens`, with or without prefill chunks?"""
    return tokens < params[P_PADDED_SIZE] and (prefill_chunks == 0 or params[P_DECODE_GRAPHS] == 0)


@kernel
def padded_tokens(params, tokens, prefill_chunks=0):
    """Tokens that a step of `tokens` is padded to: the next captured CUDA-graph size, unpadded where none covers it."""
    if captured(params, tokens, prefill_chunks):
        return params[PARAM_SCALARS + tokens]
    return tokens


@kernel
def prefill_attention_ns(costs, params, query_tokens, kv_tokens):
    """Nanoseconds (float) of one prefill chunk's attention in all layers.

    query_tokens : tokens of the chunk. kv_tokens : tokens it attends to, itself included. The launch is not in it: one
    call serves all chunks of a step, and `step_ns` charges it once.
    """
    if params[P_PREFILL_ROWS] == 0:
        return 0.0
    return _grid(
        costs,
        params[P_PREFILL],
        params[P_PREFILL_ROWS],
        params[P_PREFILL_COLUMNS],
        query_tokens,
        kv_tokens - query_tokens,
        0.0,
    )


@kernel
def _linear(costs, params, tokens, prefill_chunks):
    """Everything that depends on the tokens of a step alone: padded where a CUDA graph covers it, else launch-bound."""
    padded = padded_tokens(params, tokens, prefill_chunks)
    linear = _line(costs, params[P_LINEAR], params[P_LINEAR_SIZE], padded)
    if captured(params, tokens, prefill_chunks):
        return linear
    return max(linear, costs[C_EAGER])


@kernel
def step_ns(
    costs,
    params,
    decode_requests,
    decode_kv_tokens,
    prefill_tokens,
    prefill_chunks,
    attention_ns,
    sampled_rows,
    running,
):
    """Nanoseconds (int, at least 1) of one step: the one place where durations are rounded.

    decode_requests : requests that make one token each. decode_kv_tokens : tokens whose KV they read together, the
    current ones included. prefill_tokens, prefill_chunks : prompt tokens in the step, and requests they belong to.
    attention_ns : sum of `prefill_attention_ns` over the chunks. sampled_rows : requests that get a token.
    running : requests that hold a slot.
    """
    tokens = decode_requests + prefill_tokens
    total = costs[C_BASE] + costs[C_PER_TOKEN] * tokens + costs[C_PER_PREFILL_TOKEN] * prefill_tokens
    total += costs[C_PER_DECODE_REQUEST] * decode_requests + costs[C_PER_KV_TOKEN] * decode_kv_tokens
    total += costs[C_PER_RUNNING] * running + attention_ns
    if prefill_chunks > 0:
        total += costs[C_MIXED]
    if params[P_LINEAR_SIZE] > 0:
        total += _linear(costs, params, tokens, prefill_chunks)
        total += _line(costs, params[P_HEAD], params[P_HEAD_SIZE], sampled_rows)
        if decode_requests > 0:
            mean = decode_kv_tokens // decode_requests
            rest = (decode_kv_tokens - mean * decode_requests) / decode_requests
            total += _grid(
                costs,
                params[P_DECODE],
                params[P_DECODE_ROWS],
                params[P_DECODE_COLUMNS],
                decode_requests,
                mean,
                rest,
            )
    return max(1, int(min(total + 0.5, LONGEST_STEP_NS)))


@kernel
def outside_box(params, decode_requests, decode_kv_tokens, prefill_tokens, prefill_context):
    """Bits of the axes (in the order of AXES, first is 1) on which a step is beyond what was measured.

    prefill_context : longest context that a prefill chunk of the step attends to, 0 without one.
    """
    mask = 0
    if decode_requests + prefill_tokens > params[P_BOX]:
        mask |= 1
    if decode_requests > params[P_BOX + 1]:
        mask |= 2
    if decode_kv_tokens > params[P_BOX + 2] * decode_requests:
        mask |= 4
    if prefill_context > params[P_BOX + 3]:
        mask |= 8
    return mask
