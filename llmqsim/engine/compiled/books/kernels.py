"""What a replica writes down as it goes: integrals, wait clocks, gaps. What engine/book.py and queue.py do, in arrays.

Arguments as in step/.
"""

from __future__ import annotations

import math

from llmqsim.engine.compiled.columns import ARRIVAL, REPLICA_OF, WAIT_STEP
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.queue.kernels import entry_at
from llmqsim.jit import kernel
from llmqsim.records import GAP_BINS, GAP_BITS

MANTISSA = 1 << 53


@kernel
def add(arena, at, amount):
    """Add to an integral of two words: high x LIMB + low."""
    low = arena[at + 1] + amount
    if low >= LIMB:
        arena[at] += low // LIMB
        low %= LIMB
    arena[at + 1] = low


@kernel
def set_float(arena, at, value):
    """Write a number into two words: its mantissa as a whole number, and its exponent. Exact: a mantissa has 53 bits."""
    mantissa, exponent = math.frexp(value)
    arena[at] = int(mantissa * MANTISSA)
    arena[at + 1] = exponent


@kernel
def float_at(arena, at):
    """The number in two words."""
    return math.ldexp(arena[at] / MANTISSA, int(arena[at + 1]))


@kernel
def all_waiting(arena, base):
    """Requests that wait: new and preempted ones, and those in the host's memory."""
    return arena[base + R_QUEUED] + arena[base + R_PREEMPTED] + arena[base + R_SWAPPED]


@kernel
def tally(arena, base, now):
    """Add the time since the last change to the integrals of slots, waiting, blocks and steps."""
    elapsed = now - arena[base + R_SINCE_NS]
    if elapsed > 0:
        add(arena, base + U_RUNNING, elapsed * arena[base + R_RUNNING])
        add(arena, base + U_WAITING, elapsed * all_waiting(arena, base))
        add(arena, base + U_BLOCKS, elapsed * (arena[base + R_USABLE_BLOCKS] - arena[base + R_FREE_BLOCKS]))
        if arena[base + R_STEPS] > 0:
            add(arena, base + U_BUSY, elapsed)
        arena[base + R_SINCE_NS] = now


@kernel
def look(table, arena, base, now):
    """The scheduler looks at the queue: the clocks go on, and new requests note them (negative) in their wait columns."""
    pass_time(arena, base, now)
    left = arena[base + R_FRESH]
    row = arena[base + R_FRESH_ROW]
    while left > 0:
        if arena[G_SORTED] != 0:
            if arena[entry_at(arena, row) + Q_RANK] != NOT_IN_LINE:
                note_clocks(table, arena, base, row, now)
            left -= 1
            row = arena[entry_at(arena, row) + Q_NEXT]
            continue
        if table[REPLICA_OF, row] == arena[base + R_INDEX]:
            note_clocks(table, arena, base, row, now)
            left -= 1
        row += 1
    arena[base + R_FRESH] = 0


@kernel
def pass_time(arena, base, now):
    """The clock of what keeps the head of the queue out goes on."""
    arena[base + R_CLOCKS + arena[base + R_BLOCKED_BY]] += now - arena[base + R_CLOCK_NS]
    arena[base + R_CLOCK_NS] = now


@kernel
def note_clocks(table, arena, base, row, now):
    """A new request is seen for the first time: its wait columns hold the clocks, negative, and the time since it came."""
    for reason in range(4):
        table[WAIT_STEP + reason, row] = -arena[base + R_CLOCKS + reason]
    table[WAIT_STEP, row] += now - table[ARRIVAL, row] - arena[G_BEFORE_NS]


@kernel
def gap_bin(gap):
    """Bin of a gap, ns: records.gap_bin."""
    rest = gap >> GAP_BITS + 1
    exponent = 0
    while rest >= 256:
        rest >>= 8
        exponent += 8
    while rest > 0:
        rest >>= 1
        exponent += 1
    if exponent == 0:
        return gap
    return ((exponent + 1) << GAP_BITS) + (gap >> exponent) - (1 << GAP_BITS)


@kernel
def count_gap(arena, class_id, gap, weight):
    """Count `weight` tokens of a class that came `gap` ns after the token before them."""
    arena[arena[G_GAPS] + class_id * GAP_BINS + gap_bin(gap)] += weight
    sums = arena[G_GAP_SUMS] + class_id * 3
    add(arena, sums, gap * weight)
    arena[sums + 2] = max(arena[sums + 2], gap)
