"""One step of one replica, request by request: form it, commit it. What engine/draft.py and reference.py do, in arrays.

Arguments that all of them share: table int64[columns, rows], the requests; arena int64[:], all state (layout.py);
costs float64[:] and params int64[:], the step costs (cost/kernels.py); base, where the replica begins in the arena.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens, prefill_attention_ns, step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.kernels import disown, release, take
from llmqsim.engine.compiled.books.kernels import ARRIVAL, count_gap, float_at, look, pass_time, tally
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.batchers import choose_victim, close_steps, draft_with
from llmqsim.engine.compiled.orders import catch_up, left, look_again, ran
from llmqsim.engine.compiled.prefix.kernels import find_keys, forget, hits, share, take_hits
from llmqsim.engine.compiled.queue.kernels import entry_at, head, pop, rejoin
from llmqsim.engine.compiled.swap.kernels import leave_host, may_return, swap_in, swap_out, swap_place, with_copies
from llmqsim.engine.costs.kernels import decode_ns
from llmqsim.jit import kernel
from llmqsim.kv.kernels import copy_ns
from llmqsim.policies import rules as policy_rules
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
TENANT_ID = INDEX["tenant_id"]
PRIORITY = INDEX["priority"]
PREDICTED = INDEX["predicted_tokens"]
DEADLINE = INDEX["deadline_ns"]
COMPLETED = int(Outcome.COMPLETED)


@kernel
def step_at(arena, base, place):
    """Where step `place` (0: the oldest in flight) lies."""
    place += arena[base + R_OLDEST]
    if place >= arena[G_RING]:
        place -= arena[G_RING]
    return base + REPLICA + place * (STEP + arena[G_SLOTS])


@kernel
def drop_oldest(arena, base):
    """The oldest step in flight has ended: the next one is the oldest."""
    arena[base + R_STEPS] -= 1
    arena[base + R_OLDEST] += 1
    if arena[base + R_OLDEST] == arena[G_RING]:
        arena[base + R_OLDEST] = 0


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
def at_most(arena, budget, most):
    """Most tokens that a request gets of what is left of a step's budget. most : what its batching policy allows."""
    threshold = arena[G_THRESHOLD]
    return min(budget, most, threshold) if threshold > 0 else min(budget, most)


@kernel
def held_blocks(arena, at):
    """Blocks that a running request holds: of what is computed, and at least what was held at its admission."""
    return max(arena[at + S_HOLD], rules.blocks_for(arena[at + S_COMPUTED], arena[G_BLOCK_SIZE]))


# Rows of the step that is being formed.


@kernel
def put(arena, base, step, slot, tokens):
    """Add a row to a step and move its slot on."""
    at, row = slot_at(arena, base, slot), arena[G_DRAFT] + arena[step + T_ROWS] * DRAFT
    arena[at + S_DRAFT] = arena[step + T_ROWS]
    arena[step + T_ROWS] += 1
    arena[step + T_BUDGET] -= tokens
    arena[step + T_EXHAUSTED] = arena[step + T_BUDGET] == 0
    computed = arena[at + S_COMPUTED]
    end = computed + tokens
    arena[row + D_SLOT] = slot
    arena[row + D_TOKENS] = tokens
    arena[row + D_SAMPLES] = end == arena[at + S_KNOWN]
    if end == arena[at + S_KNOWN]:
        arena[step + STEP + arena[step + T_SAMPLED]] = slot
        arena[step + T_SAMPLED] += 1
        arena[at + S_KNOWN] += 1
    if rules.is_decode(computed, tokens):
        arena[row + D_QUERY] = 0
        arena[row + D_KV] = end + arena[at + S_PADDING]
        arena[step + T_DECODES] += 1
        arena[step + T_KV] += arena[row + D_KV]
    else:
        padding = arena[at + S_PADDING] if computed == 0 else 0
        arena[row + D_QUERY] = tokens + padding
        arena[row + D_KV] = end + padding
        arena[step + T_CHUNKS] += 1
        arena[step + T_PREFILL] += tokens
        arena[step + T_PADDING] += padding
    arena[step + T_RECOMPUTED] += lost(arena, at, tokens)
    arena[at + S_COMPUTED] = end


@kernel
def lost(arena, at, tokens):
    """How many of the next tokens had their KV before a preemption took it."""
    return max(0, min(tokens, arena[at + S_HIGH_WATER] - arena[at + S_COMPUTED]))


@kernel
def is_drafted(arena, step, at, slot):
    """Has a request a row in the step that is being formed?"""
    drafted = arena[at + S_DRAFT]
    return drafted < arena[step + T_ROWS] and arena[arena[G_DRAFT] + drafted * DRAFT + D_SLOT] == slot


@kernel
def take_back(arena, base, step, slot):
    """Undo `put` for a request that loses its memory while the step is formed; nothing if it has no row."""
    at = slot_at(arena, base, slot)
    if not is_drafted(arena, step, at, slot):
        return
    row = arena[G_DRAFT] + arena[at + S_DRAFT] * DRAFT
    tokens = arena[row + D_TOKENS]
    arena[row + D_SLOT] = GONE
    if arena[row + D_SAMPLES] != 0:
        drop_sampled(arena, step, slot)
        arena[at + S_KNOWN] -= 1
    if arena[row + D_QUERY] > 0:
        arena[step + T_CHUNKS] -= 1
        arena[step + T_PREFILL] -= tokens
        arena[step + T_PADDING] -= arena[row + D_QUERY] - tokens
    else:
        arena[step + T_DECODES] -= 1
        arena[step + T_KV] -= arena[row + D_KV]
    arena[at + S_COMPUTED] -= tokens
    arena[step + T_RECOMPUTED] -= lost(arena, at, tokens)
    arena[step + T_BUDGET] += tokens


@kernel
def drop_sampled(arena, step, slot):
    """Take a slot off those that sample a token in a step; the order of the others stays."""
    kept = 0
    for place in range(arena[step + T_SAMPLED]):
        other = arena[step + STEP + place]
        if other != slot:
            arena[step + STEP + kept] = other
            kept += 1
    arena[step + T_SAMPLED] = kept


@kernel
def attention(arena, costs, params, step):
    """All rows are there: ns (float) of their prefill attention, in the order of granting; notes the longest context."""
    attention_ns = 0.0
    for row in range(arena[G_DRAFT], arena[G_DRAFT] + arena[step + T_ROWS] * DRAFT, DRAFT):
        if arena[row + D_SLOT] != GONE and arena[row + D_QUERY] > 0:
            attention_ns += prefill_attention_ns(costs, params, arena[row + D_QUERY], arena[row + D_KV])
            arena[step + T_CONTEXT] = max(arena[step + T_CONTEXT], arena[row + D_KV])
    return attention_ns


# Verbs of a batching policy: those of engine/draft.py.


@kernel
def preempt(table, arena, base, step, slot, last, now):
    """A running request loses its blocks as memory is short; nobody new enters then in most policies' steps."""
    give_way(table, arena, base, step, slot, last, now)
    arena[step + T_PREEMPTED] = 1


@kernel
def give_way(table, arena, base, step, slot, last, now):
    """A running request loses its blocks: to the host, or it is to compute them again.

    last: it waits at the end of the queue, its KV is not kept cached.
    """
    at = slot_at(arena, base, slot)
    held = blocks = held_blocks(arena, at)
    take_back(arena, base, step, slot)
    computed = arena[at + S_COMPUTED]
    kept = arena[at + S_HIT] if last else computed
    held -= forget(arena, base, at, kept)
    leave_order(arena, base, at)
    table[PREEMPTIONS, arena[at + S_ROW]] += 1
    arena[base + U_PREEMPTIONS] += 1
    arena[at + S_PREEMPTED_NS] = now
    if arena[G_SWAPS] != 0:
        if is_worth_a_swap(arena, at, blocks) and swap_out(table, arena, base, step, slot, blocks, held):
            return
        if arena[G_CACHING] != 0 and arena[at + S_WAS_SWAPPED] != 0:
            arena[G_FAULT] = CACHED_TWICE
    release(arena, base, slot, held, kept // arena[G_BLOCK_SIZE], True)
    arena[at + S_HIGH_WATER] = max(arena[at + S_HIGH_WATER], computed)
    arena[at + S_COMPUTED] = arena[at + S_HOLD] = 0
    arena[at + S_STAGE] = WAITING
    if arena[G_SORTED] != 0:
        rejoin(table, arena, base, arena[at + S_ROW], last, now)
    else:
        arena[arena[base + R_STACK] + arena[base + R_PREEMPTED]] = slot
    arena[base + R_PREEMPTED] += 1


@kernel
def leave_order(arena, base, at):
    """Take a running request off the list; the order of the others stays."""
    order = arena[base + R_ORDER]
    arena[base + R_RUNNING] -= 1
    arena[base + R_ORDER_END] -= 1
    for place in range(arena[at + S_PLACE], arena[base + R_ORDER_END]):
        slot = arena[order + place + 1]
        arena[order + place] = slot
        arena[slot_at(arena, base, slot) + S_PLACE] = place


@kernel
def victim(batcher, table, arena, base, now):
    """Who gives way: the request that was admitted last, or the one with the largest (standing, arrival, row)."""
    order, last = arena[base + R_ORDER], arena[base + R_ORDER_END] - 1
    chosen = arena[order + last]
    if arena[G_VICTIM] == NEWEST:
        return chosen
    at = slot_at(arena, base, chosen)
    row, standing = arena[at + S_ROW], standing_of(table, arena, at)
    for place in range(order, order + last):
        at = slot_at(arena, base, arena[place])
        its_standing = standing_of(table, arena, at)
        if its_standing > standing or (its_standing == standing and came_after(table, arena[at + S_ROW], row)):
            chosen, row, standing = arena[place], arena[at + S_ROW], its_standing
    return chosen


@kernel
def came_after(table, row, other):
    """By arrival, then row."""
    if table[ARRIVAL, row] != table[ARRIVAL, other]:
        return table[ARRIVAL, row] > table[ARRIVAL, other]
    return row > other


@kernel
def standing_of(table, arena, at):
    """By what a request in a slot is chosen to give way, largest first: priority, KV that it keeps, or slack."""
    row = arena[at + S_ROW]
    if arena[G_VICTIM] == LEAST_URGENT:
        return table[PRIORITY, row]
    if arena[G_VICTIM] == LEAST_KV:
        return -arena[at + S_COMPUTED]
    at_end = arena[arena[G_TARGETS] + arena[at + S_CLASS] * TARGETS + TTFT] == NO_TARGET
    if table[DEADLINE, row] < 0 or (arena[at + S_GENERATED] > 0 and not at_end):
        return NEVER
    cost = arena[arena[G_PREFILL_NS] + arena[at + S_PROMPT]]
    if at_end:
        left = remaining_tokens(table, arena, row, arena[at + S_GENERATED])
        cost += decode_ns(arena[G_DECODE_NS], arena[G_DECODE_TOKEN], arena[at + S_PROMPT], left)
    return table[ARRIVAL, row] + table[DEADLINE, row] - cost


@kernel
def remaining_tokens(table, arena, row, generated):
    """Output tokens that are still expected of a request that has made so many."""
    re_estimate = float_at(arena, G_RE_ESTIMATE)
    return policy_rules.remaining_tokens(table[PREDICTED, row], generated, table[MAX_TOKENS, row], re_estimate)


@kernel
def is_worth_a_swap(arena, at, blocks):
    """Does the KV of a victim go to the host: always, or where there and back is quicker than to compute it again?"""
    if arena[G_CHEAPER] == 0:
        return True
    there_and_back = copy_ns(2 * blocks, arena[G_COPY_NS], arena[G_BLOCK_BYTES], float_at(arena, G_LINK_RATE))
    return there_and_back < arena[arena[G_PREFILL_NS] + max(1, arena[at + S_COMPUTED])]


@kernel
def awaited_tokens(arena, at):
    """Output tokens that steps in flight make: a pipeline has to know one before it computes the next."""
    return arena[at + S_KNOWN] - arena[at + S_PROMPT] - arena[at + S_GENERATED]


@kernel
def grow(batcher, table, arena, base, step, slot, most, spare, now):
    """Give a running request its next tokens, preempting while the pool is short of their blocks; False: it got none."""
    at = slot_at(arena, base, slot)
    if arena[at + S_STAGE] != RUNNING or (arena[G_STAGES] > 1 and awaited_tokens(arena, at) > 0):
        return False
    computed = arena[at + S_COMPUTED]
    want = rules.want_tokens(
        arena[at + S_KNOWN],
        computed,
        arena[at + S_PROMPT],
        arena[at + S_MAX],
        at_most(arena, arena[step + T_BUDGET], most),
    )
    if want == 0:
        return False
    need = rules.new_blocks(computed, want, held_blocks(arena, at), arena[G_BLOCK_SIZE])
    while arena[base + R_FREE_BLOCKS] < max(need, spare):
        loser = choose_victim(batcher, table, arena, base, now)
        preempt(table, arena, base, step, loser, False, now)
        if loser == slot:
            arena[step + T_EXHAUSTED] = 1
            return False
    take(arena, base, need)
    put(arena, base, step, slot, want)
    share(arena, base, at)
    return True


@kernel
def bring_back(batcher, table, arena, base, step, now):
    """Swapped requests come back and get their next tokens, up to the first that may not. May new ones enter then?"""
    place = 0
    for _ in range(arena[base + R_SWAPPED]):
        slot = arena[arena[base + R_SWAPS] + place]
        running, free = arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS]
        if not may_return(arena, base, slot, running, free, arena[step + T_BUDGET]):
            turn_away(arena, base, step, rules.WAIT_KV)
            return False
        swap_in(table, arena, base, step, place, now)
        run_on(arena, base, slot)
        grow(batcher, table, arena, base, step, slot, NO_LIMIT, 0, now)
        place += arena[slot_at(arena, base, slot) + S_STAGE] == SWAPPED  # it had to go again
    return arena[step + T_PREEMPTED] == 0


@kernel
def snapshot(arena, base):
    """Copy the running list, in order, to G_SCRATCH, so that preemptions don't change it; returns how many there are."""
    for place in range(arena[base + R_RUNNING]):
        arena[arena[G_SCRATCH] + place] = arena[arena[base + R_ORDER] + place]
    return arena[base + R_RUNNING]


@kernel
def snapshot_decodes_first(arena, base):
    """The same with the half-prefilled requests behind the others; returns (how many there are, how many decode)."""
    order, count, behind = arena[base + R_ORDER], 0, arena[base + R_RUNNING]
    for place in range(arena[base + R_RUNNING]):
        at = slot_at(arena, base, arena[order + place])
        if not policy_rules.lags(arena[at + S_KNOWN], arena[at + S_COMPUTED]):
            arena[arena[G_SCRATCH] + count] = arena[order + place]
            count += 1
    decodes = count
    for place in range(behind):
        at = slot_at(arena, base, arena[order + place])
        if policy_rules.lags(arena[at + S_KNOWN], arena[at + S_COMPUTED]):
            arena[arena[G_SCRATCH] + count] = arena[order + place]
            count += 1
    return count, decodes


@kernel
def first_in_line(batcher, table, arena, base, now):
    """(slot, row, known tokens) of the head of the queue; slot -1 if it is a new request."""
    preempted = arena[base + R_PREEMPTED]
    if arena[G_SORTED] != 0:
        catch_up(batcher.order, table, arena, base, now)
        row = head(arena, base)
        slot = arena[entry_at(arena, row) + Q_SLOT]
        return slot, row, known_tokens(table, arena, base, slot, row)
    if preempted > 0:
        slot = arena[arena[base + R_STACK] + preempted - 1]
        at = slot_at(arena, base, slot)
        return slot, arena[at + S_ROW], arena[at + S_KNOWN]
    row = arena[base + R_HEAD_ROW]
    return -1, row, table[PROMPT_TOKENS, row]


@kernel
def known_tokens(table, arena, base, slot, row):
    """Known tokens of a request that waits."""
    return arena[slot_at(arena, base, slot) + S_KNOWN] if slot >= 0 else table[PROMPT_TOKENS, row]


@kernel
def admission(arena, base, slot, row, known, budget, most, hold_tokens):
    """May this one enter? (what keeps it out or ADMITTED, its first tokens, cached blocks)."""
    running, free, block_size = arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS], arena[G_BLOCK_SIZE]
    refused_by = rules.has_place(running, arena[G_MAX_NUM_SEQS], budget)
    if refused_by != rules.ADMITTED:
        return refused_by, 0, 0
    if slot >= 0 and arena[G_STAGES] > 1 and awaited_tokens(arena, slot_at(arena, base, slot)) > 0:
        return rules.WAIT_STEP, 0, 0  # preempted while its token was under way
    if slot < 0 and arena[base + R_FREE_SLOTS] == 0:  # preempted requests keep theirs
        arena[G_FAULT] = MORE_SLOTS
        return rules.WAIT_SLOTS, 0, 0
    hit, hit_free = hits(arena, base, slot, row, known)
    cached = hit * block_size
    want = rules.first_tokens(known - cached, budget, at_most(arena, budget, most), arena[G_CHUNKED] != 0)
    if want == 0:
        return rules.WAIT_TOKEN_BUDGET, 0, hit
    hold = max(cached + want, hold_tokens)
    must_fit = max(hold, known) if arena[G_WHOLE_PROMPT] != 0 else hold
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
    arena[at + S_TENANT] = table[TENANT_ID, row]
    arena[at + S_COMPUTED] = 0
    arena[at + S_KNOWN] = arena[at + S_PROMPT]
    arena[at + S_GENERATED] = 0
    arena[at + S_HIGH_WATER] = 0
    arena[at + S_LAST_NS] = -1
    arena[at + S_MAX_GAP_NS] = -1
    arena[at + S_MEMBER] = NO_MEMBER
    arena[at + S_DRAFT] = arena[at + S_HOLD] = arena[at + S_WAS_SWAPPED] = 0
    if arena[G_SORTED] != 0:
        arena[entry_at(arena, row) + Q_SLOT] = slot
    find_keys(arena, at, row)
    return slot


@kernel
def dequeue(table, arena, base, slot, row):
    """Take the head off the queue (slot -1: a new request)."""
    if arena[G_SORTED] != 0:
        pop(arena, base)
    elif slot < 0 and arena[base + R_QUEUED] > 1:
        arena[base + R_HEAD_ROW] = next_row(table, arena, base, row)


@kernel
def enter(table, arena, base, slot, row, now):
    """A request that is off the queue (slot -1: a new one) joins the running list; its waits are settled. Returns its slot."""
    if slot >= 0:
        arena[base + R_PREEMPTED] -= 1
        table[WAIT_PREEMPTED, row] += now - arena[slot_at(arena, base, slot) + S_PREEMPTED_NS]
    else:
        arena[base + R_QUEUED] -= 1
        for reason in range(4):
            table[WAIT_STEP + reason, row] += arena[base + R_CLOCKS + reason]
        table[FIRST_SCHEDULED, row] = now
        slot = fill_slot(table, arena, base, row)
    run_on(arena, base, slot)
    return slot


@kernel
def run_on(arena, base, slot):
    """Put a slot at the end of the running list."""
    at = slot_at(arena, base, slot)
    arena[at + S_STAGE] = RUNNING
    arena[at + S_ENTERED] = arena[at + S_KNOWN]
    arena[at + S_PLACE] = arena[base + R_ORDER_END]
    arena[arena[base + R_ORDER] + arena[base + R_ORDER_END]] = slot
    arena[base + R_ORDER_END] += 1
    arena[base + R_RUNNING] += 1


@kernel
def settle_in(batcher, table, arena, base, step, slot, row, want, hit, hold_tokens, padding, now):
    """A request that may enter, and is off the queue, does: with its cached blocks, those it needs, and its first row."""
    block_size = arena[G_BLOCK_SIZE]
    slot = enter(table, arena, base, slot, row, now)
    left(batcher.order, table, arena, base, row, True)
    at = slot_at(arena, base, slot)
    cached = hit * block_size
    arena[base + R_ADMISSIONS] += 1
    if hit > 0:
        arena[step + T_LOADED] += take_hits(arena, base, slot, hit)
        arena[step + T_CACHED] += cached
        table[CACHED, row] += max(0, cached - arena[at + S_HIGH_WATER])
    arena[at + S_COMPUTED] = arena[at + S_HIT] = cached
    arena[at + S_PADDING] = padding
    arena[at + S_HOLD] = rules.blocks_for(hold_tokens, block_size)
    take(arena, base, rules.blocks_for(max(cached + want, hold_tokens), block_size) - hit)
    put(arena, base, step, slot, want)
    share(arena, base, at)


@kernel
def admit_head(batcher, table, arena, base, step, hold_known, hold_maximum, now):
    """Let the head of the queue enter, or note what keeps it out; False: it stays out.

    hold_known, hold_maximum : are the blocks of all its known tokens, or of the longest answer, taken at once?
    """
    slot, row, known = first_in_line(batcher, table, arena, base, now)
    hold_tokens = known if hold_known else 0
    if hold_maximum:
        hold_tokens = table[PROMPT_TOKENS, row] + table[MAX_TOKENS, row]
    return admit(batcher, table, arena, base, step, slot, row, known, NO_LIMIT, hold_tokens, now)


@kernel
def admit(batcher, table, arena, base, step, slot, row, known, most, hold_tokens, now):
    """Let the head of the queue (`first_in_line`) enter with at most so many tokens, or note what keeps it out."""
    refused_by, want, hit = admission(arena, base, slot, row, known, arena[step + T_BUDGET], most, hold_tokens)
    if refused_by != rules.ADMITTED:
        arena[step + T_BLOCKED_BY] = refused_by
        return False
    dequeue(table, arena, base, slot, row)
    settle_in(batcher, table, arena, base, step, slot, row, want, hit, hold_tokens, 0, now)
    return True


@kernel
def admit_waiting(batcher, table, arena, base, step, hold_known, hold_maximum, now):
    """The waiting pass, up to the first that may not enter; did any?"""
    entered = False
    while arena[base + R_PREEMPTED] + arena[base + R_QUEUED] > 0:
        if not admit_head(batcher, table, arena, base, step, hold_known, hold_maximum, now):
            break
        entered = True
    return entered


@kernel
def turn_away(arena, base, step, reason):
    """The policy itself lets nobody enter."""
    arena[step + T_BLOCKED_BY] = reason
    arena[base + R_RETRY_NS] = NEVER


# Form and commit.


@kernel
def form(batcher, table, arena, costs, params, base, now):
    """Decide the next step's batch; False when nobody can have a token."""
    tally(arena, base, now)
    look(table, arena, base, now)
    look_again(batcher.order, table, arena, base, now)
    step = step_at(arena, base, arena[base + R_STEPS])
    again = True
    while again:
        clear(arena, step)
        arena[step + T_BUDGET] = arena[G_BUDGET]
        arena[base + R_RETRY_NS] = NEVER
        draft_with(batcher, table, arena, costs, params, base, step, now)
        rows = arena[step + T_DECODES] + arena[step + T_CHUNKS]
        # who asked for memory gave way himself: the others can go on with it
        again = arena[step + T_PREEMPTED] != 0 and rows == 0 and arena[base + R_STEPS] == 0
    arena[base + R_BLOCKED_BY] = rules.WAIT_KV if arena[step + T_PREEMPTED] != 0 else arena[step + T_BLOCKED_BY]
    note_peaks(arena, base)
    catch_up(batcher.order, table, arena, base, now)
    if rows == 0:
        return False
    idle = arena[step + T_IDLE]
    running = arena[base + R_RUNNING] + arena[base + R_ENDED]
    attention_ns = attention(arena, costs, params, step)
    arena[step + T_RUNNING] = running
    duration_ns = step_ns(
        costs,
        params,
        arena[step + T_DECODES] + idle,
        read_kv(arena, base, arena[step + T_KV] + arena[step + T_IDLE_KV], arena[step + T_DECODES] + idle),
        arena[step + T_PREFILL] + arena[step + T_PADDING],
        arena[step + T_CHUNKS],
        attention_ns,
        arena[step + T_SAMPLED] + idle,
        running,
    )
    arena[step + T_DURATION_NS] = with_copies(arena, costs, step, duration_ns)
    start_cold(arena, base, step)
    arena[step + T_DURATION_NS] = max(1, arena[step + T_DURATION_NS] - arena[step + T_SAVED_NS])
    queue_up(arena, base, step, now)
    ran(batcher.order, table, arena, base, step, now)
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
    if arena[G_STAGES] > 1:
        enter_pipeline(arena, base, step, now)
    elif arena[base + R_STEPS] == 0:
        start(arena, step, now)
    arena[base + R_STEPS] += 1


@kernel
def enter_pipeline(arena, base, step, now):
    """It starts when the first stage is free, and leaves the last no sooner than a stage after the step before."""
    stage_ns = -(-arena[step + T_DURATION_NS] // arena[G_STAGES])
    begin = max(now, arena[base + R_STAGE_FREE_NS])
    start(arena, step, begin)
    if arena[base + R_STEPS] > 0:
        before = step_at(arena, base, arena[base + R_STEPS] - 1)
        arena[step + T_END_NS] = max(arena[step + T_END_NS], arena[before + T_END_NS] + stage_ns)
    arena[base + R_STAGE_FREE_NS] = begin + stage_ns


@kernel
def start(arena, step, now):
    """The GPU takes a step up."""
    arena[step + T_START_NS] = now
    arena[step + T_END_NS] = now + arena[step + T_DURATION_NS]


@kernel
def commit(batcher, table, arena, params, base):
    """The oldest step ends: its tokens are delivered, and who has all of them leaves and returns his blocks."""
    step = step_at(arena, base, 0)
    now = arena[step + T_END_NS]
    tally(arena, base, now)
    drop_oldest(arena, base)
    ended = 0
    for place in range(arena[step + T_SAMPLED]):
        slot = arena[step + STEP + place]
        if slot < 0:
            arena[base + U_WASTED] += slot == GONE
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
            finish(batcher, table, arena, base, slot, now)
            ended += 1
    if ended > 0:
        close_ranks(arena, base)
        end_batch(arena, base)
    arena[base + R_LAST_COMMIT_NS] = now
    book_step(arena, params, base, step, now)
    if arena[base + R_STEPS] > 0 and arena[G_STAGES] == 1:
        start(arena, step_at(arena, base, 0), now)
    arena[base + R_FORM_NS] = now


@kernel
def finish(batcher, table, arena, base, slot, now):
    """A request has all its tokens. Its slot is free at once; `close_ranks` takes it off the running list."""
    at = slot_at(arena, base, slot)
    row = arena[at + S_ROW]
    if arena[at + S_STAGE] == WAITING:  # preempted after its last token went under way
        table[WAIT_PREEMPTED, row] += now - arena[at + S_PREEMPTED_NS]
        step_out(batcher, table, arena, base, slot)
    elif arena[at + S_STAGE] == SWAPPED:
        leave_host(table, arena, base, swap_place(arena, base, slot), now)
    cross_out(arena, base, slot, GONE)
    leave(table, arena, base, slot, now)


@kernel
def step_out(batcher, table, arena, base, slot):
    """A preempted request leaves the queue from wherever it is."""
    disown(arena, base, slot)
    arena[base + R_PREEMPTED] -= 1
    if arena[G_SORTED] != 0:
        row = arena[slot_at(arena, base, slot) + S_ROW]
        arena[entry_at(arena, row) + Q_RANK] = NOT_IN_LINE
        left(batcher.order, table, arena, base, row, False)
        return
    stack, found = arena[base + R_STACK], False
    for place in range(arena[base + R_PREEMPTED]):
        found = found or arena[stack + place] == slot
        if found:
            arena[stack + place] = arena[stack + place + 1]


@kernel
def cross_out(arena, base, slot, mark):
    """Steps in flight have a row for nobody now. mark : GONE or ABORTED."""
    for ahead in range(arena[base + R_STEPS]):
        step = step_at(arena, base, ahead)
        for place in range(arena[step + T_SAMPLED]):
            if arena[step + STEP + place] == slot:
                arena[step + STEP + place] = mark


@kernel
def leave(table, arena, base, slot, now):
    """A request has all its tokens: its row is written, and its client will hear of it."""
    at = slot_at(arena, base, slot)
    row = arena[at + S_ROW]
    table[FINISH, row] = now + arena[G_AFTER_NS]
    table[OUTCOME, row] = COMPLETED
    arena[arena[G_OUTSTANDING] + arena[base + R_INDEX]] -= 1
    if arena[G_ANSWERS] > 0:
        arena[arena[G_ANSWERS] + arena[G_ANSWERED]] = row
        arena[G_ANSWERED] += 1
    depart(table, arena, base, slot)


@kernel
def depart(table, arena, base, slot):
    """A request that has ended returns its blocks and its slot, unless a batch keeps them until all of it has ended."""
    at = slot_at(arena, base, slot)
    write_marks(table, arena, at)
    arena[base + R_LEFT] += 1
    if arena[G_KEEPS_SLOTS] != 0 and arena[at + S_STAGE] == RUNNING:
        arena[at + S_STAGE] = KEPT
        arena[arena[base + R_KEPT] + arena[base + R_ENDED]] = slot
        arena[base + R_ENDED] += 1
    else:
        vacate(arena, base, slot)


@kernel
def vacate(arena, base, slot):
    """Blocks and slot of a request are free."""
    at = slot_at(arena, base, slot)
    if arena[at + S_STAGE] == RUNNING or arena[at + S_STAGE] == KEPT:
        release(arena, base, slot, held_blocks(arena, at), arena[at + S_COMPUTED] // arena[G_BLOCK_SIZE], False)
    arena[at + S_STAGE] = FREE
    arena[arena[base + R_FREE] + arena[base + R_FREE_SLOTS]] = slot
    arena[base + R_FREE_SLOTS] += 1


@kernel
def end_batch(arena, base):
    """Once all of a static batch have ended, their slots and blocks are free."""
    if arena[base + R_RUNNING] == 0:
        for place in range(arena[base + R_ENDED]):
            vacate(arena, base, arena[arena[base + R_KEPT] + place])
        arena[base + R_ENDED] = 0


@kernel
def abort(batcher, table, arena, base, row, now):
    """The client has given up: the request leaves at once with its blocks; its rows under way are wasted."""
    tally(arena, base, now)
    close_steps(batcher, arena, base)
    slot = arena[entry_at(arena, row) + Q_SLOT]
    if slot < 0:
        abandon(batcher, table, arena, base, row, now)
    else:
        at = slot_at(arena, base, slot)
        arena[base + U_ABORTED] += max(arena[at + S_HIGH_WATER], arena[at + S_COMPUTED]) - table[CACHED, row]
        if arena[at + S_STAGE] == WAITING:
            pass_time(arena, base, now)
            table[WAIT_PREEMPTED, row] += now - arena[at + S_PREEMPTED_NS]
            step_out(batcher, table, arena, base, slot)
        elif arena[at + S_STAGE] == SWAPPED:
            leave_host(table, arena, base, swap_place(arena, base, slot), now)
        else:
            leave_order(arena, base, at)
        cross_out(arena, base, slot, ABORTED)
        depart(table, arena, base, slot)
    end_batch(arena, base)


@kernel
def abandon(batcher, table, arena, base, row, now):
    """A new request leaves the queue, perhaps before the scheduler ever saw it."""
    pass_time(arena, base, now)
    fresh, other = False, arena[base + R_FRESH_ROW]
    for _ in range(arena[base + R_FRESH]):
        fresh = fresh or other == row
        other = arena[entry_at(arena, other) + Q_NEXT]
    if fresh:
        table[WAIT_STEP, row] = now - table[ARRIVAL, row] - arena[G_BEFORE_NS]
    else:
        for reason in range(4):
            table[WAIT_STEP + reason, row] += arena[base + R_CLOCKS + reason]
    arena[entry_at(arena, row) + Q_RANK] = NOT_IN_LINE
    left(batcher.order, table, arena, base, row, False)
    arena[base + R_QUEUED] -= 1
    arena[base + R_LEFT] += 1


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
    idle, padding = arena[step + T_IDLE], arena[step + T_PADDING]
    tokens = decodes + prefill + idle
    arena[base + U_STEPS] += 1
    arena[base + U_TOKENS] += tokens
    arena[base + U_CACHED] += arena[step + T_CACHED]
    arena[base + U_LOADED] += arena[step + T_LOADED] * arena[G_BLOCK_SIZE]
    arena[base + U_RECOMPUTED] += arena[step + T_RECOMPUTED]
    arena[base + U_WASTED] += idle
    arena[base + U_PADDED] += padded_tokens(params, tokens + padding, arena[step + T_CHUNKS]) - tokens
    arena[base + U_END_NS] = now
    kv = arena[step + T_KV] + arena[step + T_IDLE_KV]
    left = outside_box(params, decodes + idle, kv, prefill + padding, arena[step + T_CONTEXT])
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
        arena[log + 8] = arena[base + R_AWAITED_SINCE_NS]
