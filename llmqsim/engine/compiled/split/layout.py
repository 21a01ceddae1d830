"""Where things lie in the arenas of a split run: globals and replicas in `arena`, a request's words in `state`.

    arena:  globals | links | rings, heaps and lists | replica 0 | replica 1 | ...   replicas of the prefill pool come first
    a replica:  scalars | two steps in flight | running | heap of the queue | fresh | stack | incoming | to begin | nodes

A request is its row everywhere; its words are one row of `state`, int64[requests, S_WORDS].
"""

# Part of machine code: kernels address the arena by these numbers.
from __future__ import annotations

from llmqsim.engine.compiled.world.books import Usage

NEVER = 1 << 62
"""a time, ns, that does not come"""
LAST_TIME = 1 << 61
LONGEST_STEP = 1 << 38
"""ns; limits of the compiled engine, see compiled/world/limits.py"""

# Globals. Two words each for what prefill and decode pool have for themselves; a ring is its place, head and tail, a heap
# or a list its place and size.
(
    G_REPLICAS,
    G_PREFILLS,
    G_ROWS,
    G_NEXT_ROW,
    G_NOW,
    G_LAST_CLIENT_NS,
    G_TURN,
    _TURN,
    G_IN_TURN,
    _IN_TURN,
    G_BEFORE_NS,
    _BEFORE,
    G_AFTER_NS,
    _AFTER,
    G_CLASSES,
    G_GAP_SUMS,
    G_TRANSFER,
    G_FIRST_TOKEN,
    G_LEAST_PROMPT,
    G_CHOOSES_EARLY,
    G_LEASE_NS,
    G_RESERVE_BLOCKS,
    G_MOST_WAITING,
    G_BLOCK_BYTES,
    G_LANE_BYTES,
    G_FRAGMENTS,
    G_LAYERS,
    G_BYTES_PER_US,
    G_PER_FRAGMENT_NS,
    G_LATENCY_NS,
    G_SHARED,
    G_LINKS,
    G_SENT,
    _SENT_HEAD,
    _SENT_TAIL,
    G_ANSWERED,
    _ANSWERED_HEAD,
    _ANSWERED_TAIL,
    G_ONWARD,
    _ONWARD_HEAD,
    _ONWARD_TAIL,
    G_LEASES,
    _LEASES_HEAD,
    _LEASES_TAIL,
    G_LATER,
    G_LATER_SIZE,
    G_ASKED,
    G_ASKED_SIZE,
    G_GO_ON,
    G_GO_ON_SIZE,
    G_CHUNKS,
    G_CHUNKS_SIZE,
    G_TURNS,
    G_TURNS_SIZE,
    G_DUE,
    G_CLOSED,
    G_CAP,
    G_IN_USE,
    G_NEXT_SENT,
    G_STOP_NS,
    G_TURNAROUND_NS,
    G_LOG_ROWS,
    G_LOGGED,
    G_LONGEST_NS,
    G_FORMED,
    G_FIRST_REPLICA,
    G_STRIDE,
    GLOBALS,
) = range(68)

# How KV travels, and whose token the client sees first (engine/handoff.py).
PULL, PUSH, LAYERWISE = range(3)
FROM_DECODE, FROM_PREFILL, WITH_KV = range(3)

# A link, one a replica (of a prefill replica outwards, of a decode replica inwards); the first one where all share it.
K_FREE_NS, K_TRANSFERS, K_BYTES, K_BUSY_NS, K_QUEUED_NS, LINK = range(6)

# Scalars of a replica.
(
    R_INDEX,
    R_DECODES,
    R_FORM_NS,
    R_FREE,
    R_USABLE,
    R_RUNNING,
    R_QUEUED,
    R_FRESH,
    R_PREEMPTED,
    R_INCOMING,
    R_LOADING,
    R_LOADED,
    R_HELD_INCOMING,
    R_TO_BEGIN,
    R_LENT,
    R_STEPS,
    R_OLDEST,
    R_AWAITED_SINCE,
    R_SINCE_NS,
    R_CLOCK_NS,
    R_BLOCKED_BY,
    R_OUTSTANDING,
    R_MAX_NUM_SEQS,
    R_BUDGET,
    R_BLOCK_SIZE,
    R_CHUNKED,
    R_WHOLE_PROMPT,
    R_THRESHOLD,
    R_WATERMARK,
    R_IN_FLIGHT,
    R_CACHING,
    R_UNHASHED_FIRST,
    R_SPARE_NODE,
    R_NODES_USED,
    R_COLD_STEPS,
    R_COLD_STEP_NS,
    R_RUN,
    R_HEAP,
    R_FRESH_ROWS,
    R_STACK,
    R_INCOMING_ROWS,
    R_TO_BEGIN_ROWS,
    R_NODES,
    R_STEP,
    R_STEP_WORDS,
    R_LOADS_AT,
    R_ENDS_AT,
    R_CLOCKS,
    _CLOCK_1,
    _CLOCK_2,
    _CLOCK_3,
    USAGE,  # world/books.Usage
) = range(52)
(
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
    U_OUTSIDE,
    U_BUSY,
    U_RUNNING,
    U_WAITING,
    U_BLOCKS,
) = (
    USAGE + Usage.place(name)
    for name in (
        "steps",
        "tokens",
        "recomputed_tokens",
        "wasted_rows",
        "cached_tokens",
        "padded_tokens",
        "preemptions",
        "running_peak",
        "waiting_peak",
        "kv_blocks_peak",
        "requests",
        "end_ns",
        "cut_ns",
        "outside",
        "busy_ns",
        "running_ns",
        "waiting_ns",
        "kv_block_ns",
    )
)
REPLICA = USAGE + Usage.words

# A run of free blocks: whose (OF_NOBODY, or the row of a preempted request that may find them again), how many.
N_OWNER, N_COUNT, N_NEXT, N_PREV, NODE = range(5)
ENDS, OF_NOBODY, NO_RUN = 0, -1, 0

# A step in flight: scalars, rows that sample a token, (at R_LOADS_AT) rows whose KV begins to come, and, where chunks are
# sent on, (at R_ENDS_AT) pairs: a row, how far its prompt is computed.
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
    T_CACHED,
    T_RUNNING,
    T_WAITING,
    T_BLOCKS,
    T_SAMPLED,
    T_LOADS,
    T_ENDS,
    T_LEFT,
    STEP,
) = range(18)

# A request: first what each of its steps looks at; a whole number of cache lines.
(
    S_STAGE,
    S_COMPUTED,
    S_KNOWN,
    S_PROMPT,
    S_MAX,
    S_OUTPUT,
    S_HELD,
    S_HIGH_WATER,
    S_GENERATED,
    S_LAST_NS,
    S_MAX_GAP_NS,
    S_CLASS,
    S_COMING,
    S_TAKEN,
    S_RUN,
    S_PREEMPTED_NS,
    S_DELIVERED_NS,
    S_WAIT_PREEMPTED_NS,
    S_PREEMPTIONS,
    S_FIRST_SCHEDULED_NS,
    S_FIRST_TOKEN_NS,
    S_FINISH_NS,
    S_SENT_BLOCKS,
    S_CHUNK_TOKENS,
    S_CHUNK_NS,
    S_UNTIL_NS,
    S_ENTRY,
    _ENTRY_1,
    _ENTRY_2,
    _ENTRY_3,
    S_WAIT,
    _WAIT_1,
    _WAIT_2,
    _WAIT_3,
    S_WAITED,
    _WAITED_1,
    _WAITED_2,
    _WAITED_3,
    _SPARE_1,
    _SPARE_2,
    S_WORDS,
) = range(41)
# where it is computed; and how the replica that decodes it comes by its KV: it computes it, it will come, blocks are taken
# for it, it is here
AWAY, WAITING, RUNNING, FINISHED, LENT = range(5)
OWN, EXPECTED, LOADING, LOADED = range(4)

DONE, LOG_IS_FULL, STUCK, TOO_LONG = range(4)
