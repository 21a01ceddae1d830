"""Orderings that preempt, with all who decode as one group where nobody's place in the list can matter.

It can't in a step that has tokens, slots and memory for all who run and for the one who waits, if there is one, whoever is
served first: then all get what they ask for, and nobody is displaced. At most two prompts are in such a step, because the
times of three add up to another last bit in another order. Who ends first when several end at once would show in the
cache, and to who listens for answers: with either, and for orderings that look at each row, steps are made row by row.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import Kernels, RankedContinuous, made_of
from llmqsim.engine.compiled.batchers.continuous.kernels import close, commit_next
from llmqsim.engine.compiled.batchers.ranked.kernels import draft, last_of_all
from llmqsim.engine.compiled.group.kernels import close_group, form_grouped, formed_steps, open_group
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders.kernels import waiting
from llmqsim.engine.compiled.queue.kernels import entry_at, head
from llmqsim.engine.compiled.step.forming.kernels import form
from llmqsim.engine.compiled.step.rows.kernels import at_most, known_tokens, slot_at
from llmqsim.engine.compiled.stride.kernels import stride
from llmqsim.jit import inlined, kernel

MOST_PROMPTS = 2


@kernel
def may_group(arena, base):
    """Before all is known: at most one waits, there is a slot for it, and the order of ends shows nowhere."""
    if arena[G_CACHING] != 0 or arena[G_ANSWERS] > 0 or arena[base + R_SWAPPED] > 0 or waiting(arena, base) > 1:
        return False
    return waiting(arena, base) == 0 or arena[base + R_RUNNING] < arena[G_MAX_NUM_SEQS]


@kernel
def whole(arena, missing):
    """Tokens of a prompt's next chunk where the step's budget does not cut it."""
    return min(missing, at_most(arena, missing, NO_LIMIT))


@kernel
def all_fit(table, arena, base):
    """Are tokens and blocks there for the group, for those who prefill and for the one who waits, in any order?"""
    block_size = arena[G_BLOCK_SIZE]
    prompts, budget = arena[base + R_PREFILLING], arena[G_BUDGET] - arena[base + R_MEMBERS]
    free = arena[base + R_FREE_BLOCKS]
    free -= arena[arena[base + R_RESIDUES] + (-formed_steps(arena, base)) % block_size]
    for place in range(prompts):
        at = slot_at(arena, base, arena[arena[base + R_PREFILL] + place])
        computed, held = arena[at + S_COMPUTED], rules.blocks_for(arena[at + S_COMPUTED], block_size)
        tokens = whole(arena, arena[at + S_KNOWN] - computed)
        free -= rules.new_blocks(computed, tokens, held, block_size)
        budget -= tokens
    if waiting(arena, base) > 0:
        row = arena[base + R_COMING_ROW] if arena[base + R_COMING] > 0 else head(arena, base)
        known = known_tokens(table, arena, base, arena[entry_at(arena, row) + Q_SLOT], row)
        tokens = whole(arena, known) if arena[G_CHUNKED] != 0 else known
        must_fit = known if arena[G_WHOLE_PROMPT] != 0 else tokens
        above = arena[G_WATERMARK] if arena[base + R_RUNNING] > 0 else 0
        if not rules.has_memory(must_fit, 0, 0, block_size, free, above):
            return False
        budget -= tokens
        prompts += 1
    return free >= 0 and budget >= 0 and prompts <= MOST_PROMPTS


@inlined
def form_next(batcher, table, arena, costs, params, base, now):
    """Form one step, with the group if nobody's place in the list can matter."""
    grouped = may_group(arena, base)
    if grouped and arena[base + R_OPEN] == 0:
        open_group(arena, base)
    if grouped and arena[base + R_OPEN] != 0 and all_fit(table, arena, base):
        formed = form_grouped(batcher, table, arena, costs, params, base, now)
        if formed != SHORT:
            return formed == FORMED
    if arena[base + R_OPEN] != 0:
        close_group(arena, base)
    return form(batcher, table, arena, costs, params, base, now)


@kernel
def stride_alone(batcher, table, arena, costs, params, base, commit_limit, form_limit):
    """While nobody waits: who does may displace somebody."""
    if waiting(arena, base) > 0:
        return 0
    return stride(batcher, table, arena, costs, params, base, commit_limit, form_limit)


made_of(RankedContinuous, Kernels(draft, form_next, commit_next, stride_alone, close, last_of_all))
