"""What a replica writes down as it goes: integrals, wait clocks, gaps. What engine/book.py and queue.py do, in arrays.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL, REPLICA_OF, WAIT_STEP
from llmqsim.engine.compiled.world.books import LIMB
from llmqsim.engine.compiled.world.queue import NOT_IN_LINE, entry_at
from llmqsim.engine.compiled.world.run import gap_sum_at
from llmqsim.jit import kernel
from llmqsim.records import GAP_BINS, GAP_BITS


@kernel
def add(whole, amount):
    """Add to a sum that may be larger than a word."""
    low = whole.low + amount
    if low >= LIMB:
        whole.high += low // LIMB
        low %= LIMB
    whole.low = low


@kernel
def all_waiting(replica):
    """Requests that wait: new and preempted ones, and those in the host's memory."""
    return replica.queued + replica.preempted + replica.swapped


@kernel
def tally(replica, now):
    """Add the time since the last change to the integrals of slots, waiting, blocks and steps."""
    elapsed = now - replica.since_ns
    if elapsed > 0:
        add(replica.usage.running_ns, elapsed * replica.running)
        add(replica.usage.waiting_ns, elapsed * all_waiting(replica))
        add(replica.usage.kv_block_ns, elapsed * (replica.usable_blocks - replica.free_blocks))
        if replica.steps > 0:
            add(replica.usage.busy_ns, elapsed)
        replica.since_ns = now


@kernel
def look(table, run, arena, replica, now):
    """The scheduler looks at the queue: the clocks go on, and new requests note them (negative) in their wait columns."""
    pass_time(replica, now)
    left = replica.fresh
    row = replica.fresh_row
    while left > 0:
        if run.sorted != 0:
            if entry_at(arena, run.queue, row).rank != NOT_IN_LINE:
                note_clocks(table, run, replica, row, now)
            left -= 1
            row = entry_at(arena, run.queue, row).next_row
            continue
        if table[REPLICA_OF, row] == replica.index:
            note_clocks(table, run, replica, row, now)
            left -= 1
        row += 1
    replica.fresh = 0


@kernel
def pass_time(replica, now):
    """The clock of what keeps the head of the queue out goes on."""
    replica.clocks[replica.blocked_by] += now - replica.clock_ns
    replica.clock_ns = now


@kernel
def note_clocks(table, run, replica, row, now):
    """A new request is seen for the first time: its wait columns hold the clocks, negative, and the time since it came."""
    for reason in range(4):
        table[WAIT_STEP + reason, row] = -replica.clocks[reason]
    table[WAIT_STEP, row] += now - table[ARRIVAL, row] - run.before_ns


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
def count_gap(run, arena, class_id, gap, weight):
    """Count `weight` tokens of a class that came `gap` ns after the token before them."""
    arena[run.gaps + class_id * GAP_BINS + gap_bin(gap)] += weight
    sums = gap_sum_at(arena, run.gap_sums, class_id)
    add(sums.sum_ns, gap * weight)
    sums.largest_ns = max(sums.largest_ns, gap)
