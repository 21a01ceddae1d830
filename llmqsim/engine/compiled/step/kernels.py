"""One step of one replica, request by request: form it, commit it. What engine/draft.py and reference.py do, in arrays.

Arguments that all of them share: table int64[columns, rows], the requests; arena int64[:], all state (layout.py);
costs float64[:] and params int64[:], the step costs (cost/kernels.py); base, where the replica begins in the arena.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens, prefill_attention_ns, step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.kernels import disown, release, take
from llmqsim.engine.compiled.books.kernels import count_gap, look, tally
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.prefix.kernels import find_keys, hits, share, take_hits
from llmqsim.jit import kernel
from llmqsim.requests import INDEX, Outcome

FIRST_SCHEDULED = INDEX["first_scheduled_ns"]
FIRST_TOKEN = INDEX["first_token_ns"]
FINISH = INDEX["finish_ns"]
GENERATED = INDEX["generated_tokens"]
CACHED = INDEX["cached_tokens"]
PREEMPTIONS = INDEX["preemptions"]
MAX_ITL = INDEX["max_itl_ns"]
WAIT_STEP = INDEX["wait_step_ns"]
WAIT_PREEMPTED = INDEX["wait_preempted_ns"]
OUTCOME = INDEX["outcome"]
REPLICA_OF = INDEX["replica"]
PROMPT_TOKENS = INDEX["prompt_tokens"]
OUTPUT_TOKENS = INDEX["output_tokens"]
MAX_TOKENS = INDEX["max_tokens"]
CLASS_ID = INDEX["class_id"]
COMPLETED = int(Outcome.COMPLETED)


@kernel
def step_at(arena, base, place):
    """Where step `place` (0: the oldest in flight) lies."""
    return base + REPLICA + ((arena[base + R_OLDEST] + place) & 1) * (STEP + arena[G_SLOTS])


@kernel
def slot_at(arena, base, slot):
    """Where a slot lies."""
    return arena[base + R_SLOTS] + slot * SLOT


@kernel
def next_row(table, arena, base, row):
    """The next request after `row` that was sent to this replica, -1 if there is none yet."""
    index = arena[base + R_INDEX]
    for later in range(row + 1, arena[G_ROUTED]):
        if table[REPLICA_OF, later] == index:
            return later
    return -1


@kernel
def at_most(arena, budget):
    """Most tokens that a request gets of what is left of a step's budget."""
    threshold = arena[G_THRESHOLD]
    return min(budget, threshold) if threshold > 0 else budget


@kernel
def put(arena, costs, params, step, at, slot, tokens):
    """Add a row to a step and move its slot (at `at`) on; returns the ns (float) of its attention if it is a chunk."""
    attention_ns = 0.0
    computed = arena[at + S_COMPUTED]
    end = computed + tokens
    if end == arena[at + S_KNOWN]:
        arena[step + STEP + arena[step + T_SAMPLED]] = slot
        arena[step + T_SAMPLED] += 1
        arena[at + S_KNOWN] += 1
    if rules.is_decode(computed, tokens):
        arena[step + T_DECODES] += 1
        arena[step + T_KV] += end
    else:
        arena[step + T_CHUNKS] += 1
        arena[step + T_PREFILL] += tokens
        arena[step + T_CONTEXT] = max(arena[step + T_CONTEXT], end)
        attention_ns = prefill_attention_ns(costs, params, tokens, end)
    if computed < arena[at + S_HIGH_WATER]:
        arena[step + T_RECOMPUTED] += min(tokens, arena[at + S_HIGH_WATER] - computed)
    arena[at + S_COMPUTED] = end
    return attention_ns


@kernel
def preempt_newest(table, arena, base, now):
    """The request that was admitted last loses its blocks and waits at the front; returns its slot."""
    arena[base + R_RUNNING] -= 1
    arena[base + R_ORDER_END] -= 1
    slot = arena[arena[base + R_ORDER] + arena[base + R_ORDER_END]]
    at = slot_at(arena, base, slot)
    computed = arena[at + S_COMPUTED]
    release(arena, base, slot, rules.blocks_for(computed, arena[G_BLOCK_SIZE]), True)
    arena[at + S_HIGH_WATER] = max(arena[at + S_HIGH_WATER], computed)
    arena[at + S_COMPUTED] = 0
    arena[at + S_STAGE] = WAITING
    arena[at + S_PREEMPTED_NS] = now
    arena[arena[base + R_STACK] + arena[base + R_PREEMPTED]] = slot
    arena[base + R_PREEMPTED] += 1
    table[PREEMPTIONS, arena[at + S_ROW]] += 1
    arena[base + U_PREEMPTIONS] += 1
    return slot


@kernel
def take_blocks(table, arena, base, slot, need, now):
    """Get `need` free blocks for a running request, preempting the newest while they are short; False: it gave way."""
    while need > arena[base + R_FREE_BLOCKS]:
        if preempt_newest(table, arena, base, now) == slot:
            return False
    take(arena, base, need)
    return True


@kernel
def grow_running(table, arena, costs, params, base, step, now):
    """The running pass, in admission order: (what is left of the budget, ns of prefill attention)."""
    budget = arena[G_BUDGET]
    block_size = arena[G_BLOCK_SIZE]
    attention_ns = 0.0
    place = 0
    while place < arena[base + R_RUNNING] and budget > 0:
        slot = arena[arena[base + R_ORDER] + place]
        at = slot_at(arena, base, slot)
        computed = arena[at + S_COMPUTED]
        want = rules.want_tokens(
            arena[at + S_KNOWN], computed, arena[at + S_PROMPT], arena[at + S_MAX], at_most(arena, budget)
        )
        if want > 0:
            need = rules.new_blocks(computed, want, rules.blocks_for(computed, block_size), block_size)
            if not take_blocks(table, arena, base, slot, need, now):
                break
            attention_ns += put(arena, costs, params, step, at, slot, want)
            share(arena, base, at)
            budget -= want
        place += 1
    return budget, attention_ns


@kernel
def first_in_line(table, arena, base):
    """(slot, row, known tokens) of the head of the queue; slot -1 if it is a new request."""
    preempted = arena[base + R_PREEMPTED]
    if preempted > 0:
        slot = arena[arena[base + R_STACK] + preempted - 1]
        at = slot_at(arena, base, slot)
        return slot, arena[at + S_ROW], arena[at + S_KNOWN]
    row = arena[base + R_HEAD_ROW]
    return -1, row, table[PROMPT_TOKENS, row]


@kernel
def admission(arena, base, slot, row, known, budget):
    """May this one enter? (what keeps it out or ADMITTED, its first tokens, cached blocks)."""
    running, free, block_size = arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS], arena[G_BLOCK_SIZE]
    refused_by = rules.has_place(running, arena[G_MAX_NUM_SEQS], budget)
    if refused_by != rules.ADMITTED:
        return refused_by, 0, 0
    hit, hit_free = hits(arena, base, slot, row, known)
    cached = hit * block_size
    want = rules.first_tokens(known - cached, budget, at_most(arena, budget), arena[G_CHUNKED] != 0)
    if want == 0:
        return rules.WAIT_TOKEN_BUDGET, 0, hit
    must_fit = max(cached + want, known) if arena[G_WHOLE_PROMPT] != 0 else cached + want
    above = arena[G_WATERMARK] if running > 0 else 0
    if not rules.has_memory(must_fit, hit, hit_free, block_size, free, above):
        return rules.WAIT_KV, 0, hit
    return rules.ADMITTED, want, hit


@kernel
def fill_slot(table, arena, base, row):
    """Give a new request a slot; returns it."""
    arena[base + R_FREE_SLOTS] -= 1
    slot = arena[arena[base + R_FREE] + arena[base + R_FREE_SLOTS]]
    at = slot_at(arena, base, slot)
    arena[at + S_ROW] = row
    arena[at + S_PROMPT] = table[PROMPT_TOKENS, row]
    arena[at + S_OUTPUT] = table[OUTPUT_TOKENS, row]
    arena[at + S_MAX] = table[MAX_TOKENS, row]
    arena[at + S_CLASS] = table[CLASS_ID, row]
    arena[at + S_COMPUTED] = 0
    arena[at + S_KNOWN] = arena[at + S_PROMPT]
    arena[at + S_GENERATED] = 0
    arena[at + S_HIGH_WATER] = 0
    arena[at + S_LAST_NS] = -1
    arena[at + S_MAX_GAP_NS] = -1
    arena[at + S_MEMBER] = NO_MEMBER
    find_keys(arena, at, row)
    return slot


@kernel
def enter(table, arena, base, slot, now):
    """The head of the queue (slot -1: a new request) joins the running list; its waits are settled. Returns its slot."""
    if slot >= 0:
        arena[base + R_PREEMPTED] -= 1
        at = slot_at(arena, base, slot)
        table[WAIT_PREEMPTED, arena[at + S_ROW]] += now - arena[at + S_PREEMPTED_NS]
    else:
        row = arena[base + R_HEAD_ROW]
        arena[base + R_QUEUED] -= 1
        if arena[base + R_QUEUED] > 0:
            arena[base + R_HEAD_ROW] = next_row(table, arena, base, row)
        for reason in range(4):
            table[WAIT_STEP + reason, row] += arena[base + R_CLOCKS + reason]
        table[FIRST_SCHEDULED, row] = now
        slot = fill_slot(table, arena, base, row)
    at = slot_at(arena, base, slot)
    arena[at + S_STAGE] = RUNNING
    arena[at + S_PLACE] = arena[base + R_ORDER_END]
    arena[arena[base + R_ORDER] + arena[base + R_ORDER_END]] = slot
    arena[base + R_ORDER_END] += 1
    arena[base + R_RUNNING] += 1
    return slot


@kernel
def admit_waiting(table, arena, costs, params, base, step, budget, attention_ns, now):
    """The waiting pass, up to the first that may not enter: (what keeps it out, ns of prefill attention)."""
    while arena[base + R_PREEMPTED] + arena[base + R_QUEUED] > 0:
        slot, row, known = first_in_line(table, arena, base)
        refused_by, want, hit = admission(arena, base, slot, row, known, budget)
        if refused_by != rules.ADMITTED:
            return refused_by, attention_ns
        slot = enter(table, arena, base, slot, now)
        at = slot_at(arena, base, slot)
        cached = hit * arena[G_BLOCK_SIZE]
        arena[base + R_ADMISSIONS] += 1
        if hit > 0:
            take_hits(arena, base, slot, hit)
            arena[step + T_CACHED] += cached
            table[CACHED, row] += max(0, cached - arena[at + S_HIGH_WATER])
        arena[at + S_COMPUTED] = cached
        take(arena, base, rules.blocks_for(cached + want, arena[G_BLOCK_SIZE]) - hit)
        attention_ns += put(arena, costs, params, step, at, slot, want)
        share(arena, base, at)
        budget -= want
    return rules.WAIT_STEP, attention_ns


@kernel
def form(table, arena, costs, params, base, now):
    """Decide the next step's batch; False when nobody can have a token."""
    tally(arena, base, now)
    look(table, arena, base, now)
    step = step_at(arena, base, arena[base + R_STEPS])
    preempted = True
    blocked_by = rules.WAIT_KV
    attention_ns = 0.0
    while preempted:
        clear(arena, step)
        before = arena[base + U_PREEMPTIONS]
        budget, attention_ns = grow_running(table, arena, costs, params, base, step, now)
        preempted = arena[base + U_PREEMPTIONS] > before
        if not preempted:
            blocked_by, attention_ns = admit_waiting(
                table, arena, costs, params, base, step, budget, attention_ns, now
            )
        elif arena[step + T_DECODES] + arena[step + T_CHUNKS] > 0 or arena[base + R_STEPS] > 0:
            blocked_by = rules.WAIT_KV
            break
    arena[base + R_BLOCKED_BY] = blocked_by
    note_peaks(arena, base)
    if arena[step + T_DECODES] + arena[step + T_CHUNKS] == 0:
        return False
    running = arena[base + R_RUNNING]
    arena[step + T_RUNNING] = running
    arena[step + T_DURATION_NS] = step_ns(
        costs,
        params,
        arena[step + T_DECODES],
        read_kv(arena, base, arena[step + T_KV], arena[step + T_DECODES]),
        arena[step + T_PREFILL],
        arena[step + T_CHUNKS],
        attention_ns,
        arena[step + T_SAMPLED],
        running,
    )
    start_cold(arena, base, step)
    queue_up(arena, base, step, now)
    return True


@kernel
def start_cold(arena, base, step):
    """A server that has just started takes longer over its first steps with a prefill chunk."""
    if arena[base + R_COLD] > 0 and arena[step + T_CHUNKS] > 0:
        arena[base + R_COLD] -= 1
        arena[step + T_DURATION_NS] += arena[G_COLD_NS]


@kernel
def read_kv(arena, base, kv, decodes):
    """KV tokens that the decodes of a step, with `kv` tokens of context, bring from memory."""
    repeated = arena[base + R_REPEATED] * arena[G_BLOCK_SIZE]
    return rules.read_kv_tokens(kv, decodes, repeated, arena[G_CACHED_PERCENT])


@kernel
def clear(arena, step):
    """Begin a new step."""
    for word in range(STEP):
        arena[step + word] = 0


@kernel
def note_peaks(arena, base):
    """Most slots and blocks held after forming."""
    arena[base + U_RUNNING_PEAK] = max(arena[base + U_RUNNING_PEAK], arena[base + R_RUNNING])
    held = arena[base + R_USABLE_BLOCKS] - arena[base + R_FREE_BLOCKS]
    arena[base + U_BLOCKS_PEAK] = max(arena[base + U_BLOCKS_PEAK], held)


@kernel
def queue_up(arena, base, step, now):
    """A step has been formed: the GPU takes it up at once or after the one in flight."""
    arena[base + R_LONGEST_NS] = max(arena[base + R_LONGEST_NS], arena[step + T_DURATION_NS])
    if arena[base + R_STEPS] == 0:
        start(arena, step, now)
    arena[base + R_STEPS] += 1


@kernel
def start(arena, step, now):
    """The GPU takes a step up."""
    arena[step + T_START_NS] = now
    arena[step + T_END_NS] = now + arena[step + T_DURATION_NS]


@kernel
def commit(table, arena, params, base):
    """The oldest step ends: its tokens are delivered, and who has all of them leaves and returns his blocks."""
    step = step_at(arena, base, 0)
    now = arena[step + T_END_NS]
    tally(arena, base, now)
    arena[base + R_STEPS] -= 1
    arena[base + R_OLDEST] ^= 1
    ended = 0
    for place in range(arena[step + T_SAMPLED]):
        slot = arena[step + STEP + place]
        if slot == GONE:
            arena[base + U_WASTED] += 1
            continue
        at = slot_at(arena, base, slot)
        if arena[at + S_GENERATED] > 0:
            gap = now - arena[at + S_LAST_NS]
            count_gap(arena, arena[at + S_CLASS], gap, 1)
            arena[at + S_MAX_GAP_NS] = max(arena[at + S_MAX_GAP_NS], gap)
        else:
            table[FIRST_TOKEN, arena[at + S_ROW]] = now + arena[G_AFTER_NS]
        arena[at + S_LAST_NS] = now
        arena[at + S_GENERATED] += 1
        if arena[at + S_GENERATED] == arena[at + S_OUTPUT]:
            finish(table, arena, base, slot, now)
            ended += 1
    if ended > 0:
        close_ranks(arena, base)
    arena[base + R_LAST_COMMIT_NS] = now
    book_step(arena, params, base, step, now)
    if arena[base + R_STEPS] > 0:
        start(arena, step_at(arena, base, 0), now)
    arena[base + R_FORM_NS] = now


@kernel
def finish(table, arena, base, slot, now):
    """A request has all its tokens. Its slot is free at once; `close_ranks` takes it off the running list."""
    at = slot_at(arena, base, slot)
    row = arena[at + S_ROW]
    if arena[at + S_STAGE] == WAITING:  # preempted after its last token went under way
        table[WAIT_PREEMPTED, row] += now - arena[at + S_PREEMPTED_NS]
        disown(arena, base, slot)
        stack = arena[base + R_STACK]
        arena[base + R_PREEMPTED] -= 1
        found = False
        for place in range(arena[base + R_PREEMPTED]):
            found = found or arena[stack + place] == slot
            if found:
                arena[stack + place] = arena[stack + place + 1]
    if arena[base + R_STEPS] > 0:
        step = step_at(arena, base, 0)
        for place in range(arena[step + T_SAMPLED]):
            if arena[step + STEP + place] == slot:
                arena[step + STEP + place] = GONE
    leave(table, arena, base, slot, now)


@kernel
def leave(table, arena, base, slot, now):
    """A request that has ended returns its blocks and its slot; its row is written."""
    at = slot_at(arena, base, slot)
    row = arena[at + S_ROW]
    release(arena, base, slot, rules.blocks_for(arena[at + S_COMPUTED], arena[G_BLOCK_SIZE]), False)
    arena[at + S_STAGE] = FREE
    arena[arena[base + R_FREE] + arena[base + R_FREE_SLOTS]] = slot
    arena[base + R_FREE_SLOTS] += 1
    table[FINISH, row] = now + arena[G_AFTER_NS]
    table[OUTCOME, row] = COMPLETED
    write_marks(table, arena, at)
    arena[arena[G_OUTSTANDING] + arena[base + R_INDEX]] -= 1
    if arena[G_TURNS] > 0:
        arena[arena[G_ANSWERS] + arena[G_ANSWERED]] = row
        arena[G_ANSWERED] += 1


@kernel
def write_marks(table, arena, at):
    """Write into its row what a slot alone knew."""
    row = arena[at + S_ROW]
    table[GENERATED, row] = arena[at + S_GENERATED]
    table[MAX_ITL, row] = arena[at + S_MAX_GAP_NS]


@kernel
def close_ranks(arena, base):
    """Take those who have ended off the running list; the order of the others stays."""
    order = arena[base + R_ORDER]
    kept = 0
    for place in range(arena[base + R_ORDER_END]):
        slot = arena[order + place]
        if slot != GONE:
            at = slot_at(arena, base, slot)
            if arena[at + S_STAGE] == RUNNING:
                arena[order + kept] = slot
                arena[at + S_PLACE] = kept
                kept += 1
    arena[base + R_RUNNING] = kept
    arena[base + R_ORDER_END] = kept


@kernel
def book_step(arena, params, base, step, now):
    """Add an ended step to the usage, and to the log if one is kept."""
    decodes, prefill = arena[step + T_DECODES], arena[step + T_PREFILL]
    tokens = decodes + prefill
    arena[base + U_STEPS] += 1
    arena[base + U_TOKENS] += tokens
    arena[base + U_CACHED] += arena[step + T_CACHED]
    arena[base + U_RECOMPUTED] += arena[step + T_RECOMPUTED]
    arena[base + U_PADDED] += padded_tokens(params, tokens, arena[step + T_CHUNKS]) - tokens
    arena[base + U_END_NS] = now
    left = outside_box(params, decodes, arena[step + T_KV], prefill, arena[step + T_CONTEXT])
    if left > 0:
        for axis in range(4):
            arena[base + U_OUTSIDE + axis] += left >> axis & 1
    if arena[G_LOG_ROWS] > 0:
        log = arena[G_LOG] + arena[G_LOGGED] * LOG_COLUMNS
        arena[G_LOGGED] += 1
        arena[log] = arena[base + R_INDEX]
        arena[log + 1] = arena[step + T_START_NS]
        arena[log + 2] = now
        arena[log + 3] = decodes
        arena[log + 4] = prefill
        arena[log + 5] = arena[step + T_RUNNING]
        arena[log + 6] = arena[base + R_QUEUED] + arena[base + R_PREEMPTED]
        arena[log + 7] = arena[base + R_USABLE_BLOCKS] - arena[base + R_FREE_BLOCKS]
