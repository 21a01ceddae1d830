"""Where things lie in the arena: one int64 array that holds all state of all replicas of a compiled run.

    globals | next event, outstanding (a word a replica) | gaps | log | turns, answers | replica 0 | replica 1 | ...

    a replica:  scalars | two steps in flight, with the slots they sample | order | stack | ... | slots

A request gets a *slot* (SLOT words) when it is first admitted and keeps it until it ends; new requests that wait are rows
of the table and need no slot. `order` lists the slots that run, in admission order; `stack` those that were preempted,
the last one first in line.
"""

from __future__ import annotations

NEVER = 1 << 62
"""a time, ns, that does not come"""
LAST_TIME = 1 << 61
"""the compiled engine works up to here, ns: 73 years"""
LONGEST_STEP = 1 << 38
"""ns, 275 s: times a count below 2**24 it fits in a word"""
LIMB = 1 << 60
"""integrals are kept as high x LIMB + low, so that they can't overflow"""

# Globals: what all replicas share. Options, sizes, places of regions, the router's progress.
(
    G_REPLICAS,
    G_ROWS,
    G_ROUTED,
    G_NEXT_ROW,
    G_BEFORE_NS,
    G_AFTER_NS,
    G_MAX_NUM_SEQS,
    G_BUDGET,
    G_BLOCK_SIZE,
    G_CHUNKED,
    G_WHOLE_PROMPT,
    G_THRESHOLD,
    G_WATERMARK,
    G_IN_FLIGHT,
    G_NO_PREEMPTION,
    G_CACHING,
    G_UNHASHED_FIRST,
    G_PREFIX,
    G_PREFIX_IDS,
    G_WARM,
    G_CACHED_PERCENT,
    G_NEAR_ADMISSIONS,
    G_COLD_NS,
    G_CLASSES,
    G_SLOTS,
    G_NEXT_NS,
    G_OUTSTANDING,
    G_GAPS,
    G_GAP_SUMS,
    G_LOG,
    G_LOG_ROWS,
    G_LOGGED,
    G_FIRST_REPLICA,
    G_STRIDE,
    # a closed loop: turns of clients to come, requests that have just ended, and its parameters
    G_TURNS,
    G_TURNS_SIZE,
    G_DUE,
    G_SENT,
    G_ANSWERS,
    G_ANSWERED,
    G_STOP_NS,
    G_TURNAROUND_NS,
    G_LAST_TURN_NS,
    G_IN_TURN,
    GLOBALS,
) = range(45)

# Scalars of a replica.
(
    R_INDEX,
    R_FORM_NS,
    R_DELIVER_NS,
    R_DELIVER_ROW,
    R_HEAD_ROW,
    R_QUEUED,
    R_FRESH_ROW,
    R_FRESH,
    R_RUNNING,
    R_PREEMPTED,
    R_FREE_SLOTS,
    R_FREE_BLOCKS,
    R_USABLE_BLOCKS,
    R_STEPS,
    R_OLDEST,
    R_LAST_COMMIT_NS,
    R_SINCE_NS,
    R_CLOCK_NS,
    R_BLOCKED_BY,
    R_LONGEST_NS,
    R_OPEN,
    R_MEMBERS,
    R_CONTEXT,
    R_MIXED,
    R_HEAP_SIZE,
    R_GAPS_SIZE,
    R_ENDINGS,
    R_PREFILLING,
    R_ORDER_END,
    R_SPARE_NODE,
    R_NODES_USED,
    R_ADMISSIONS,
    R_REPEATED,
    R_COLD,
    R_ORDER,
    R_STACK,
    R_FREE,
    R_HEAP,
    R_GAPS,
    R_ENDING,
    R_PREFILL,
    R_NODES,
    R_KEYS,
    R_RESIDUES,
    R_CLASSES,
    R_SLOTS,
    # usage, as in records.ReplicaUsage
    U_STEPS,
    U_TOKENS,
    U_RECOMPUTED,
    U_WASTED,
    U_CACHED,
    U_PADDED,
    U_PREEMPTIONS,
    U_RUNNING_PEAK,
    U_WAITING_PEAK,
    U_BLOCKS_PEAK,
    U_REQUESTS,
    U_END_NS,
    U_CUT,
    _END,
) = range(60)
R_CLOCKS = _END
"""four words, as rules.WAIT_*"""
U_OUTSIDE = R_CLOCKS + 4
"""four words, as cost.kernels.AXES"""
U_BUSY, U_RUNNING, U_WAITING, U_BLOCKS = range(U_OUTSIDE + 4, U_OUTSIDE + 12, 2)
"""integrals: two words each, high and low"""
REPLICA = U_BLOCKS + 2

# A step in flight, twice in each replica: scalars, then the slots whose rows sample a token (GONE: it has ended).
(
    T_START_NS,
    T_END_NS,
    T_DURATION_NS,
    T_DECODES,
    T_KV,
    T_PREFILL,
    T_CHUNKS,
    T_CONTEXT,
    T_RECOMPUTED,
    T_RUNNING,
    T_SAMPLED,
    T_GONE,
    T_CACHED,
    STEP,
) = range(14)
GONE = -1

# A slot.
(
    S_ROW,
    S_PROMPT,
    S_OUTPUT,
    S_MAX,
    S_CLASS,
    S_COMPUTED,
    S_KNOWN,
    S_GENERATED,
    S_HIGH_WATER,
    S_LAST_NS,
    S_MAX_GAP_NS,
    S_PREEMPTED_NS,
    S_STAGE,
    S_PLACE,
    S_STEP,
    S_MEMBER,
    S_RUN,
    S_PREFIX,
    S_PREFIXED,
    S_SHARED,
    S_HELD,
    S_HELD_SINCE,
    SLOT,
) = range(23)
FREE, WAITING, RUNNING = 0, 1, 2
NO_MEMBER, MEMBER, ENDING = 0, 1, 2
"""of the group; ENDING: it is in no step that is formed from now"""
SLOT_BITS = 24
SLOT_MASK = (1 << SLOT_BITS) - 1

# Blocks of which it is known what is cached in them, see blocks/kernels.py. Node 0 is both ends of the free list.
N_KEY, N_COUNT, N_NEXT, N_PREV, N_LATER, N_EARLIER, N_REPEATS, N_SINCE, NODE = range(9)
ENDS = 0
NO_NODE = 0
GAPS = 4096
"""most gaps that the group remembers"""

# What became of an attempt to form a step.
FORMED, NOBODY, SHORT = range(3)

# What a kernel answers: done so far, or why it stopped early.
DONE, LOG_IS_FULL, STUCK, PREEMPTS, TOO_LONG = range(5)

LOG_COLUMNS = 8
