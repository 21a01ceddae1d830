"""One step of one replica of a split run, request by request: form it, commit it.

What engine/draft.py, reference.py, incoming.py and prefill.py do, in arrays. Arguments that all share: arena int64[:] and
state int64[requests, S_WORDS] (layout.py); costs float64[:] and params int64[:], the step costs; at, where the replica
begins in the arena.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens, prefill_attention_ns, step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.books.kernels import add, gap_bin
from llmqsim.engine.compiled.split.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.jit import kernel


@kernel
def tally(arena, at, now):
    """Add the time since the last change to the integrals."""
    elapsed = now - arena[at + R_SINCE_NS]
    if elapsed > 0:
        waiting = arena[at + R_QUEUED] + arena[at + R_PREEMPTED] + arena[at + R_INCOMING]
        add(arena, at + U_RUNNING, elapsed * arena[at + R_RUNNING])
        add(arena, at + U_WAITING, elapsed * waiting)
        add(arena, at + U_BLOCKS, elapsed * (arena[at + R_USABLE] - arena[at + R_FREE]))
        if arena[at + R_STEPS] > 0:
            add(arena, at + U_BUSY, elapsed)
        arena[at + R_SINCE_NS] = now


@kernel
def look(arena, state, at, now):
    """The scheduler looks at the queue: the clocks go on, and new requests note them."""
    arena[at + R_CLOCKS + arena[at + R_BLOCKED_BY]] += now - arena[at + R_CLOCK_NS]
    arena[at + R_CLOCK_NS] = now
    fresh = arena[at + R_FRESH_ROWS]
    for place in range(arena[at + R_FRESH]):
        row = arena[fresh + place]
        for reason in range(4):
            state[row, S_ENTRY + reason] = arena[at + R_CLOCKS + reason]
        state[row, S_WAIT] += now - state[row, S_DELIVERED_NS]
    arena[at + R_FRESH] = 0


@kernel
def settle_wait(arena, state, at, row):
    """A request that was new leaves the queue."""
    for reason in range(4):
        state[row, S_WAIT + reason] += arena[at + R_CLOCKS + reason] - state[row, S_ENTRY + reason]


@kernel
def push_row(arena, heap, size, row):
    """Add a row to a heap, smallest first."""
    place = size
    while place > 0 and arena[heap + (place - 1) // 2] > row:
        arena[heap + place] = arena[heap + (place - 1) // 2]
        place = (place - 1) // 2
    arena[heap + place] = row


@kernel
def pop_row(arena, heap, size):
    """Take the smallest row off a heap of `size`."""
    last = arena[heap + size - 1]
    place = 0
    while 2 * place + 1 < size - 1:
        child = 2 * place + 1
        if child + 1 < size - 1 and arena[heap + child + 1] < arena[heap + child]:
            child += 1
        if arena[heap + child] >= last:
            break
        arena[heap + place] = arena[heap + child]
        place = child
    arena[heap + place] = last


@kernel
def wake(arena, at, now):
    """Something has changed: if nothing is under way, a step may be formed at this instant."""
    if arena[at + R_STEPS] == 0 and arena[at + R_FORM_NS] > now:
        arena[at + R_FORM_NS] = now


@kernel
def submit(arena, state, at, row, now):
    """A request joins the queue."""
    tally(arena, at, now)
    arena[at + U_REQUESTS] += 1
    push_row(arena, arena[at + R_HEAP], arena[at + R_QUEUED], row)
    arena[at + R_QUEUED] += 1
    arena[arena[at + R_FRESH_ROWS] + arena[at + R_FRESH]] = row
    arena[at + R_FRESH] += 1
    state[row, S_STAGE] = WAITING
    state[row, S_DELIVERED_NS] = now
    waiting = arena[at + R_QUEUED] + arena[at + R_PREEMPTED]
    arena[at + U_WAITING_PEAK] = max(arena[at + U_WAITING_PEAK], waiting)
    wake(arena, at, now)


@kernel
def step_at(arena, at, place):
    """Where step `place` (0: the oldest in flight) lies."""
    return arena[at + R_STEP] + ((arena[at + R_OLDEST] + place) & 1) * arena[at + R_STEP_WORDS]


@kernel
def at_most(arena, at, budget):
    """Most tokens that a request gets of what is left of a step's budget."""
    threshold = arena[at + R_THRESHOLD]
    return min(budget, threshold) if threshold > 0 else budget


@kernel
def grant(arena, state, costs, params, step, row, tokens):
    """Add a row to a step and move its request on; returns the ns (float) of its attention if it is a chunk."""
    attention_ns = 0.0
    computed = state[row, S_COMPUTED]
    end = computed + tokens
    if end == state[row, S_KNOWN]:
        arena[step + STEP + arena[step + T_SAMPLED]] = row
        arena[step + T_SAMPLED] += 1
        state[row, S_KNOWN] += 1
    if rules.is_decode(computed, tokens):
        arena[step + T_DECODES] += 1
        arena[step + T_KV] += end
    else:
        arena[step + T_CHUNKS] += 1
        arena[step + T_PREFILL] += tokens
        arena[step + T_CONTEXT] = max(arena[step + T_CONTEXT], end)
        attention_ns = prefill_attention_ns(costs, params, tokens, end)
    if computed < state[row, S_HIGH_WATER]:
        arena[step + T_RECOMPUTED] += min(tokens, state[row, S_HIGH_WATER] - computed)
    state[row, S_COMPUTED] = end
    return attention_ns


@kernel
def preempt_newest(arena, state, at, now):
    """The request that was admitted last loses its blocks and waits at the front; returns it."""
    arena[at + R_RUNNING] -= 1
    row = arena[arena[at + R_RUN] + arena[at + R_RUNNING]]
    arena[at + R_FREE] += state[row, S_HELD]
    state[row, S_HELD] = 0
    state[row, S_HIGH_WATER] = max(state[row, S_HIGH_WATER], state[row, S_COMPUTED])
    state[row, S_COMPUTED] = 0
    state[row, S_STAGE] = WAITING
    state[row, S_PREEMPTED_NS] = now
    state[row, S_PREEMPTIONS] += 1
    arena[arena[at + R_STACK] + arena[at + R_PREEMPTED]] = row
    arena[at + R_PREEMPTED] += 1
    arena[at + U_PREEMPTIONS] += 1
    if arena[at + R_CACHING] != 0:
        arena[G_PREEMPTED_CACHED] = 1
    return row


@kernel
def grow_running(arena, state, costs, params, at, step, now):
    """The running pass, in admission order: (what is left of the budget, ns of attention, did anyone lose blocks?)."""
    budget, size, attention_ns = arena[at + R_BUDGET], arena[at + R_BLOCK_SIZE], 0.0
    preempted = False
    place = 0
    while place < arena[at + R_RUNNING] and budget > 0:
        row = arena[arena[at + R_RUN] + place]
        computed = state[row, S_COMPUTED]
        want = rules.want_tokens(
            state[row, S_KNOWN], computed, state[row, S_PROMPT], state[row, S_MAX], at_most(arena, at, budget)
        )
        if want > 0:
            need = rules.new_blocks(computed, want, state[row, S_HELD], size)
            victim = -1
            while need > arena[at + R_FREE] and victim != row:
                victim = preempt_newest(arena, state, at, now)
                preempted = True
            if victim == row:
                break
            arena[at + R_FREE] -= need
            state[row, S_HELD] += need
            attention_ns += grant(arena, state, costs, params, step, row, want)
            budget -= want
        place += 1
    return budget, attention_ns, preempted


@kernel
def bring_in(arena, state, costs, params, at, step, budget, attention_ns, marks, resumed, now):
    """Who has his KV here enters, in the order of taking blocks: (what is left of the budget, ns of attention)."""
    rows, kept, stopped = arena[at + R_INCOMING_ROWS], 0, False
    for place in range(arena[at + R_INCOMING]):
        row = arena[rows + place]
        enters = state[row, S_STAGE] == LOADED and not stopped
        if enters:
            stopped = rules.has_place(arena[at + R_RUNNING], arena[at + R_MAX_NUM_SEQS], budget) != rules.ADMITTED
        if not enters or stopped:
            arena[rows + kept] = row
            kept += 1
            continue
        arena[at + R_LOADED] -= 1
        arena[at + R_HELD_INCOMING] -= state[row, S_HELD]
        run_on(arena, state, at, row)
        marks[resumed, row] = now
        want = min(state[row, S_KNOWN] - state[row, S_COMPUTED], at_most(arena, at, budget))
        attention_ns += grant(arena, state, costs, params, step, row, want)
        budget -= want
    arena[at + R_INCOMING] = kept
    return budget, attention_ns


@kernel
def run_on(arena, state, at, row):
    """A request joins the running list."""
    state[row, S_STAGE] = RUNNING
    arena[arena[at + R_RUN] + arena[at + R_RUNNING]] = row
    arena[at + R_RUNNING] += 1


@kernel
def load_refused(arena, state, at, row):
    """May the head of a decode replica's queue take blocks for its KV? (what keeps it out or ADMITTED, blocks)."""
    size = arena[at + R_BLOCK_SIZE]
    need = rules.blocks_for(state[row, S_KNOWN], size)
    others = arena[at + R_RUNNING] + arena[at + R_INCOMING]
    above = arena[at + R_WATERMARK] if others > 0 else 0
    above += others * arena[G_RESERVE_BLOCKS]
    if not rules.has_memory(need * size, 0, 0, size, arena[at + R_FREE], above):
        return rules.WAIT_KV, need
    if arena[at + R_INCOMING] > 0 and arena[G_MOST_WAITING] >= 0:
        if arena[at + R_HELD_INCOMING] + need > arena[G_MOST_WAITING]:
            return rules.WAIT_KV, need
    return rules.ADMITTED, need


@kernel
def take_load(arena, state, at, row, need):
    """It leaves the queue with its blocks; its transfer begins with the step that is being formed."""
    settle_wait(arena, state, at, row)
    pop_row(arena, arena[at + R_HEAP], arena[at + R_QUEUED])
    arena[at + R_QUEUED] -= 1
    arena[at + R_FREE] -= need
    state[row, S_HELD] = need
    state[row, S_STAGE] = LOADING
    arena[arena[at + R_INCOMING_ROWS] + arena[at + R_INCOMING]] = row
    arena[at + R_INCOMING] += 1
    arena[at + R_LOADING] += 1
    arena[at + R_HELD_INCOMING] += need
    arena[arena[at + R_TO_BEGIN_ROWS] + arena[at + R_TO_BEGIN]] = row
    arena[at + R_TO_BEGIN] += 1


@kernel
def admission(arena, state, at, row, budget):
    """May one that computes its own KV enter? (what keeps it out or ADMITTED, its first tokens)."""
    size, known = arena[at + R_BLOCK_SIZE], state[row, S_KNOWN]
    want = rules.first_tokens(known, budget, at_most(arena, at, budget), arena[at + R_CHUNKED] != 0)
    if want == 0:
        return rules.WAIT_TOKEN_BUDGET, 0
    must_fit = max(want, known) if arena[at + R_WHOLE_PROMPT] != 0 else want
    above = arena[at + R_WATERMARK] if arena[at + R_RUNNING] > 0 else 0
    if not rules.has_memory(must_fit, 0, 0, size, arena[at + R_FREE], above):
        return rules.WAIT_KV, 0
    return rules.ADMITTED, want


@kernel
def enter(arena, state, at, row, again, now):
    """The head of the queue joins the running list. again : it was preempted."""
    if again:
        arena[at + R_PREEMPTED] -= 1
        state[row, S_WAIT_PREEMPTED_NS] += now - state[row, S_PREEMPTED_NS]
    else:
        settle_wait(arena, state, at, row)
        pop_row(arena, arena[at + R_HEAP], arena[at + R_QUEUED])
        arena[at + R_QUEUED] -= 1
    if state[row, S_FIRST_SCHEDULED_NS] < 0:
        state[row, S_FIRST_SCHEDULED_NS] = now
    run_on(arena, state, at, row)


@kernel
def admit_waiting(arena, state, costs, params, at, step, budget, attention_ns, now):
    """The waiting pass, up to the first that may not enter: (what keeps it out, ns of attention)."""
    while arena[at + R_PREEMPTED] + arena[at + R_QUEUED] > 0:
        again = arena[at + R_PREEMPTED] > 0
        row = arena[arena[at + R_STACK] + arena[at + R_PREEMPTED] - 1] if again else arena[arena[at + R_HEAP]]
        refused_by = rules.has_place(arena[at + R_RUNNING], arena[at + R_MAX_NUM_SEQS], budget)
        if refused_by != rules.ADMITTED:
            return refused_by, attention_ns
        if arena[at + R_DECODES] != 0 and not again:
            refused_by, need = load_refused(arena, state, at, row)
            if refused_by != rules.ADMITTED:
                return refused_by, attention_ns
            take_load(arena, state, at, row, need)
            continue
        refused_by, want = admission(arena, state, at, row, budget)
        if refused_by != rules.ADMITTED:
            return refused_by, attention_ns
        enter(arena, state, at, row, again, now)
        need = rules.blocks_for(want, arena[at + R_BLOCK_SIZE])
        arena[at + R_FREE] -= need
        state[row, S_HELD] = need
        attention_ns += grant(arena, state, costs, params, step, row, want)
        budget -= want
    return rules.WAIT_STEP, attention_ns


@kernel
def is_empty(arena, step):
    """Does a step hold no row?"""
    return arena[step + T_DECODES] + arena[step + T_CHUNKS] == 0


@kernel
def form(arena, state, marks, resumed, costs, params, at, now):
    """Decide the next step's batch; False when nobody can have a token."""
    tally(arena, at, now)
    look(arena, state, at, now)
    step = step_at(arena, at, arena[at + R_STEPS])
    again = True
    attention_ns = 0.0
    while again:
        for word in range(STEP):
            arena[step + word] = 0
        to_begin = arena[at + R_TO_BEGIN]
        budget, attention_ns, preempted = grow_running(arena, state, costs, params, at, step, now)
        blocked_by = rules.WAIT_KV
        if not preempted:
            if arena[at + R_LOADED] > 0:
                budget, attention_ns = bring_in(
                    arena, state, costs, params, at, step, budget, attention_ns, marks, resumed, now
                )
            blocked_by, attention_ns = admit_waiting(
                arena, state, costs, params, at, step, budget, attention_ns, now
            )
        if is_empty(arena, step) and arena[at + R_LOADED] > 0:
            budget, attention_ns = bring_in(
                arena, state, costs, params, at, step, budget, attention_ns, marks, resumed, now
            )
        began = arena[at + R_TO_BEGIN] > to_begin
        again = is_empty(arena, step) and (began or (preempted and arena[at + R_STEPS] == 0))
    arena[at + R_BLOCKED_BY] = blocked_by
    arena[at + U_RUNNING_PEAK] = max(arena[at + U_RUNNING_PEAK], arena[at + R_RUNNING])
    arena[at + U_BLOCKS_PEAK] = max(arena[at + U_BLOCKS_PEAK], arena[at + R_USABLE] - arena[at + R_FREE])
    if is_empty(arena, step):
        return False
    price(arena, costs, params, at, step, attention_ns)
    return True


@kernel
def price(arena, costs, params, at, step, attention_ns):
    """How long a formed step takes, and what begins with it."""
    arena[step + T_RUNNING] = arena[at + R_RUNNING]
    duration = step_ns(
        costs,
        params,
        arena[step + T_DECODES],
        arena[step + T_KV],
        arena[step + T_PREFILL],
        arena[step + T_CHUNKS],
        attention_ns,
        arena[step + T_SAMPLED],
        arena[at + R_RUNNING],
    )
    if arena[step + T_CHUNKS] > 0 and arena[at + R_COLD_STEPS] > 0:
        arena[at + R_COLD_STEPS] -= 1
        duration += arena[at + R_COLD_STEP_NS]
    arena[step + T_DURATION_NS] = duration
    arena[G_LONGEST_NS] = max(arena[G_LONGEST_NS], duration)
    loads = step + arena[at + R_LOADS_AT]
    for place in range(arena[at + R_TO_BEGIN]):
        arena[loads + place] = arena[arena[at + R_TO_BEGIN_ROWS] + place]
    arena[step + T_LOADS] = arena[at + R_TO_BEGIN]
    arena[at + R_TO_BEGIN] = 0


@kernel
def ask(arena, rows, count):
    """The KV of these requests may begin to come."""
    for place in range(count):
        arena[arena[G_ASKED] + arena[G_ASKED_SIZE]] = arena[rows + place]
        arena[G_ASKED_SIZE] += 1


@kernel
def start(arena, at, step, now):
    """The GPU takes a step up; the transfers that were asked for when it was formed begin."""
    arena[step + T_START_NS] = now
    arena[step + T_END_NS] = now + arena[step + T_DURATION_NS]
    ask(arena, step + arena[at + R_LOADS_AT], arena[step + T_LOADS])
    arena[step + T_LOADS] = 0


@kernel
def form_ahead(arena, state, marks, resumed, costs, params, at, now):
    """Form as many steps as in_flight allows; False: a replica with requests can't form a step, nor will it ever."""
    arena[at + R_FORM_NS] = NEVER
    while arena[at + R_STEPS] < arena[at + R_IN_FLIGHT]:
        if not form(arena, state, marks, resumed, costs, params, at, now):
            ask(arena, arena[at + R_TO_BEGIN_ROWS], arena[at + R_TO_BEGIN])
            arena[at + R_TO_BEGIN] = 0
            break
        if arena[at + R_STEPS] == 0:
            start(arena, at, step_at(arena, at, 0), now)
        arena[at + R_STEPS] += 1
    present = arena[at + R_RUNNING] + arena[at + R_QUEUED] + arena[at + R_PREEMPTED] + arena[at + R_INCOMING]
    expects = arena[at + R_LENT] + arena[at + R_LOADING]
    return arena[at + R_STEPS] > 0 or present == 0 or expects > 0


@kernel
def count_gap(arena, gaps, class_id, gap):
    """Count a gap between two tokens."""
    gaps[class_id, gap_bin(gap)] += 1
    sums = arena[G_GAP_SUMS] + class_id * 3
    add(arena, sums, gap)
    arena[sums + 2] = max(arena[sums + 2], gap)


@kernel
def unstack(arena, at, row):
    """A request that was preempted waits no more."""
    stack, kept = arena[at + R_STACK], 0
    for place in range(arena[at + R_PREEMPTED]):
        if arena[stack + place] != row:
            arena[stack + kept] = arena[stack + place]
            kept += 1
    arena[at + R_PREEMPTED] = kept


@kernel
def end_request(arena, state, at, row, now):
    """A request has all its tokens: its blocks are free."""
    if state[row, S_STAGE] == WAITING:
        state[row, S_WAIT_PREEMPTED_NS] += now - state[row, S_PREEMPTED_NS]
        unstack(arena, at, row)
    arena[at + R_FREE] += state[row, S_HELD]
    state[row, S_HELD] = 0
    state[row, S_STAGE] = FINISHED
    state[row, S_FINISH_NS] = now
    arena[at + R_OUTSTANDING] -= 1


@kernel
def lend(arena, state, at, row, now):
    """A prompt is computed for another replica: its blocks stay held."""
    if arena[G_FIRST_TOKEN_HERE] == 0:
        state[row, S_FIRST_TOKEN_NS] = state[row, S_LAST_NS] = -1
        state[row, S_GENERATED] = 0
    state[row, S_STAGE] = LENT
    state[row, S_LENT] = state[row, S_HELD]
    state[row, S_HELD] = 0
    arena[at + R_LENT] += 1
    arena[at + R_OUTSTANDING] -= 1


@kernel
def close_ranks(arena, state, at):
    """Take those who have left off the running list; the order of the others stays."""
    run, kept = arena[at + R_RUN], 0
    for place in range(arena[at + R_RUNNING]):
        row = arena[run + place]
        if state[row, S_STAGE] == RUNNING:
            arena[run + kept] = row
            kept += 1
    arena[at + R_RUNNING] = kept


@kernel
def commit(arena, state, gaps, log, params, at):
    """The oldest step ends: its tokens are delivered, and who has all of them leaves. Returns where its rows lie."""
    step = step_at(arena, at, 0)
    now = arena[step + T_END_NS]
    decodes = arena[at + R_DECODES] != 0
    tally(arena, at, now)
    arena[at + R_STEPS] -= 1
    arena[at + R_OLDEST] ^= 1
    left = 0
    for place in range(arena[step + T_SAMPLED]):
        row = arena[step + STEP + place]
        stage = state[row, S_STAGE]
        if stage == FINISHED:
            arena[at + U_WASTED] += 1
            continue
        if stage == WAITING and not decodes:  # its KV went while its token was under way: once more
            state[row, S_KNOWN] -= 1
            continue
        if state[row, S_GENERATED] > 0:
            gap = now - state[row, S_LAST_NS]
            count_gap(arena, gaps, state[row, S_CLASS], gap)
            state[row, S_MAX_GAP_NS] = max(state[row, S_MAX_GAP_NS], gap)
        else:
            state[row, S_FIRST_TOKEN_NS] = now
        state[row, S_LAST_NS] = now
        state[row, S_GENERATED] += 1
        if decodes:
            if state[row, S_GENERATED] == state[row, S_OUTPUT]:
                end_request(arena, state, at, row, now)
                left += 1
        else:
            left += 1
            if state[row, S_OUTPUT] == 1 and arena[G_FIRST_TOKEN_HERE] != 0:
                end_request(arena, state, at, row, now)
            else:
                lend(arena, state, at, row, now)
    if left > 0:
        close_ranks(arena, state, at)
    book_step(arena, log, params, at, step, now)
    if arena[at + R_STEPS] > 0:
        start(arena, at, step_at(arena, at, 0), now)
    arena[at + R_FORM_NS] = now
    return step


@kernel
def book_step(arena, log, params, at, step, now):
    """Add an ended step to the usage, and to the log if one is kept."""
    decodes, prefill = arena[step + T_DECODES], arena[step + T_PREFILL]
    tokens = decodes + prefill
    arena[at + U_STEPS] += 1
    arena[at + U_TOKENS] += tokens
    arena[at + U_RECOMPUTED] += arena[step + T_RECOMPUTED]
    arena[at + U_PADDED] += padded_tokens(params, tokens, arena[step + T_CHUNKS]) - tokens
    arena[at + U_END_NS] = now
    left = outside_box(params, decodes, arena[step + T_KV], prefill, arena[step + T_CONTEXT])
    if left > 0:
        for axis in range(4):
            arena[at + U_OUTSIDE + axis] += left >> axis & 1
    if arena[G_LOG_ROWS] > 0:
        entry = arena[G_LOGGED]
        arena[G_LOGGED] += 1
        log[entry, 0] = arena[at + R_INDEX]
        log[entry, 1] = arena[step + T_START_NS]
        log[entry, 2] = now
        log[entry, 3] = decodes
        log[entry, 4] = prefill
        log[entry, 5] = arena[step + T_RUNNING]
        log[entry, 6] = arena[at + R_QUEUED] + arena[at + R_PREEMPTED]
        log[entry, 7] = arena[at + R_USABLE] - arena[at + R_FREE]
