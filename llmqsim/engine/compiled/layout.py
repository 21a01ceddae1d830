"""Where things lie in the arena: one int64 array that holds all state of all replicas of a compiled run.

    globals | next event, outstanding (a word a replica) | gaps | log | turns, answers | replica 0 | replica 1 | ...

    a replica:  scalars | steps in flight, with the slots they sample | order | stack | ... | slots

A request gets a *slot* (SLOT words) when it is first admitted and keeps it until it ends; new requests that wait are rows
of the table and need no slot. `order` lists the slots that run, in admission order; `stack` those that were preempted,
the last one first in line; `swaps` those whose blocks are in the host's memory, by arrival.
"""

# Part of machine code: kernels address the arena by these numbers.
from __future__ import annotations

from llmqsim.engine import rules as _rules

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
    G_STAGES,
    G_RING,
    G_HOST_BLOCKS,
    G_VICTIM,
    G_SWAPS,
    G_CHEAPER,
    G_LINK_RATE,  # two words, see books/kernels.float_at
    _,
    G_RE_ESTIMATE,  # two words
    _,
    G_TARGETS,
    G_PREFILL_NS,
    G_DECODE_NS,
    G_DECODE_TOKEN,
    G_BLOCK_BYTES,
    G_COPY_NS,
    G_LINK,
    G_CACHING,
    G_UNHASHED_FIRST,
    G_KEEPS_SLOTS,
    G_SORTED,
    G_QUEUE,
    G_SLOPE,
    G_LOOKS_AGAIN,
    G_TENANTS,
    G_MARKS,
    G_FRONT,
    G_DRAFT,
    G_SCRATCH,
    G_FAULT,
    G_PREFIX,
    G_PREFIX_IDS,
    G_WARM,
    G_CACHED_PERCENT,
    G_NEAR_ADMISSIONS,
    G_COLD_NS,
    G_LONGEST,
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
    G_ROUTER,
    # clients of all kinds (clients/kernels.py)
    G_EVENTS,
    G_EVENTS_SIZE,
    G_ORDER,
    G_SENT_ROWS,
    G_SENT_ORDER,
    G_ON_THE_WAY,
    G_WATCHED,
    G_WATCH,
    G_TIMEOUT_NS,
    G_CAP,
    G_IN_USE,
    G_OPEN,
    G_OPEN_SIZE,
    G_OPEN_DUE,
    G_OPEN_SENT,
    G_LOOPS,
    G_LOOP_OF,
    G_LAST_CLIENT_NS,
    GLOBALS,
) = range(92)

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
    R_SWAPPED,
    R_HOST_FREE,
    R_FREE_SLOTS,
    R_FREE_BLOCKS,
    R_USABLE_BLOCKS,
    R_STEPS,
    R_OLDEST,
    R_AWAITED_SINCE_NS,
    R_STAGE_FREE_NS,
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
    R_TOP,
    R_FRONTS,
    # orderings that look again (orders/kernels.py): who comes, whose keys are stale, and what one of them remembers
    R_COMING_ROW,
    R_COMING,
    R_REJOINED,
    R_LAST_REJOINED,
    R_STALE,
    R_LATE,
    R_MEMORY,
    R_TAIL,
    R_FIRST,
    R_TIMERS,
    R_STARVED,
    R_ACTIVES,
    R_LAST_SENT,
    R_OLDEST_ROW,
    R_RETRY_NS,
    R_ASKED_NS,
    R_LEFT,
    R_ENDED,
    R_FULL_SINCE,
    R_RATIO_IS_SET,
    R_RATIO,  # two words
    _,
    R_CARRIED,
    R_HOST_CACHED,
    R_SPARE_NODE,
    R_NODES_USED,
    R_ADMISSIONS,
    R_REPEATED,
    R_COLD,
    R_ORDER,
    R_STACK,
    R_SWAPS,
    R_FREE,
    R_HEAP,
    R_GAPS,
    R_ENDING,
    R_KEPT,
    R_PREFILL,
    R_NODES,
    R_KEYS,
    R_HOST_KEYS,
    R_RESIDUES,
    R_CLASSES,
    R_SERVED,
    R_QUEUED_OF,
    R_MEMBERS_OF,
    R_FIRST_OF,
    R_REST_OF,
    R_ACTIVE,
    R_LISTED,
    R_SLOTS,
    # usage, as in records.ReplicaUsage
    U_STEPS,
    U_TOKENS,
    U_RECOMPUTED,
    U_WASTED,
    U_CACHED,
    U_LOADED,
    U_PADDED,
    U_PREEMPTIONS,
    U_SWAPPED_BLOCKS,
    U_SWAP_REFUSED,
    U_RUNNING_PEAK,
    U_WAITING_PEAK,
    U_BLOCKS_PEAK,
    U_REQUESTS,
    U_END_NS,
    U_CUT,
    U_ABORTED,
    _END,
) = range(104)
R_CLOCKS = _END
"""four words, as rules.WAIT_*"""
U_OUTSIDE = R_CLOCKS + 4
"""four words, as cost.kernels.AXES"""
U_BUSY, U_RUNNING, U_WAITING, U_BLOCKS = range(U_OUTSIDE + 4, U_OUTSIDE + 12, 2)
"""integrals: two words each, high and low"""
REPLICA = U_BLOCKS + 2

# A step in flight, G_RING of them in each replica: scalars, then the slots whose rows sample a token (GONE: it has ended).
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
    T_COPIED,
    T_LOADED,
    T_PADDING,
    T_IDLE,
    T_IDLE_KV,
    T_SAVED_NS,
    T_WAITING,
    T_BLOCKS,
    # while it is formed
    T_BUDGET,
    T_ROWS,
    T_PREEMPTED,
    T_EXHAUSTED,
    T_BLOCKED_BY,
    T_LISTED,
    STEP,
) = range(28)
NEWEST, LEAST_URGENT, LEAST_KV, MOST_SLACK = range(4)
"""G_VICTIM: who gives way"""
TTFT, TPOT, E2E, TARGETS = range(4)
"""what a class is promised, ns, at G_TARGETS"""
NO_TARGET = -1
GONE = -1
ABORTED = -2
"""a sampled row whose request was taken back: nobody gets its token"""

# A row of the step that is being formed, in the order of granting. D_SLOT: GONE when it was taken back.
D_SLOT, D_TOKENS, D_SAMPLES, D_QUERY, D_KV, DRAFT = range(6)

# A row of the request table in a queue that is sorted by keys, see queue/kernels.py.
Q_NEXT, Q_LEVEL, Q_BASE, Q_SLOT, Q_RANK, Q_VALUE, Q_CHILD, Q_SIBLING, Q_BEFORE, Q_LATER, ENTRY = range(11)
NOT_IN_LINE, FRONT, IN_ORDER = range(3)
MARKS = 4
"""words that an ordering may keep for each row"""
NO_LIMIT = _rules.NO_LIMIT
NOBODY_IN_LINE = -1
REJOINS = -2
"""in Q_BEFORE: it was preempted and is not in the queue yet"""
NOT_LATE = -2
"""in Q_LATER: it stands where its key puts it"""
NOT_DELIVERED = -2
"""in Q_SLOT: on its way to the replica, or not sent"""

# An event of clients, and a closed loop among them, see clients/kernels.py.
E_TIME_NS, E_ORDER, E_CLIENT, E_KIND, EVENT = range(5)
IS_DUE, IS_FREE, IS_WATCHED, IS_TURN = range(4)
"""IS_TURN + i: clients of loop i"""
IDLE, WOKEN, WATCHING = range(3)
"""the watch over requests whose time is up"""
L_ROWS, L_LEFT, L_CLIENTS, L_STOP_NS, L_HOLD, L_HELD, L_HELD_CLIENTS, LOOP = range(8)
NO_HOLD = -1

# A slot.
(
    S_ROW,
    S_PROMPT,
    S_OUTPUT,
    S_MAX,
    S_CLASS,
    S_TENANT,
    S_ENTERED,
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
    S_HOST_RUN,
    S_SWAPPED_BLOCKS,
    S_WAS_SWAPPED,
    S_HIT,
    S_HOLD,
    S_PADDING,
    S_DRAFT,
    S_PREFIX,
    S_PREFIXED,
    S_SHARED,
    S_HELD,
    S_HELD_SINCE,
    SLOT,
) = range(32)
FREE, WAITING, RUNNING, KEPT, SWAPPED = range(5)
NO_MEMBER, MEMBER, ENDING = 0, 1, 2
"""of the group; ENDING: it is in no step that is formed from now"""
SLOT_BITS = 24
SLOT_MASK = (1 << SLOT_BITS) - 1

# Blocks of which it is known what is cached in them, see blocks/kernels.py. Two nodes are both ends of a list each: of the
# free list, and of what the host keeps.
N_KEY, N_COUNT, N_NEXT, N_PREV, N_LATER, N_EARLIER, N_REPEATS, N_SINCE, NODE = range(9)
ENDS, HOST_ENDS = 0, 1
NO_NODE = 0
UNHASHED, HASHED, OWNED = -1, -2, -3
"""N_KEY of runs: blocks that hold nothing, or something that nobody will look for; OWNED - slot: a request's own"""
GAPS = 4096
"""most gaps that the group remembers"""

# What became of an attempt to form a step.
FORMED, NOBODY, SHORT = range(3)

# What a kernel answers: done so far, or why it stopped early.
DONE, LOG_IS_FULL, STUCK, CACHED_TWICE, TOO_LONG, MORE_SLOTS, ASK = range(7)

LOG_COLUMNS = 9
"""as records.StepLog, and since when the replica waited for the step to end"""
