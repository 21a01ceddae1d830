"""Orderings that preempt, with all who decode as one group where nobody's place in the list can matter.

It can't in a step that has tokens, slots and memory for all who run and for the one who waits, if there is one, whoever is
served first: then all get what they ask for, and nobody is displaced. At most two prompts are in such a step, because the
times of three add up to another last bit in another order. Who ends first when several end at once would show in the
cache, and to who listens for answers: with either, and for orderings that look at each row, steps are made row by row.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import Kernels, RankedContinuous, made_of
from llmqsim.engine.compiled.batchers.continuous import close, commit_next
from llmqsim.engine.compiled.batchers.ranked import draft, last_of_all
from llmqsim.engine.compiled.group.members import formed_steps
from llmqsim.engine.compiled.group.opening import close_group, open_group
from llmqsim.engine.compiled.group.steps import form_grouped
from llmqsim.engine.compiled.orders.common import waiting
from llmqsim.engine.compiled.queue import head
from llmqsim.engine.compiled.step.forming import form
from llmqsim.engine.compiled.step.rows import at_most, known_tokens
from llmqsim.engine.compiled.stride import stride
from llmqsim.engine.compiled.world.limits import FORMED, NO_LIMIT, SHORT
from llmqsim.engine.compiled.world.queue import entry_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import inlined, kernel

MOST_PROMPTS = 2


@kernel
def may_group(run, replica):
    """Before all is known: at most one waits, there is a slot for it, and the order of ends shows nowhere."""
    if run.caching != 0 or run.answers > 0 or replica.swapped > 0 or waiting(replica) > 1:
        return False
    return waiting(replica) == 0 or replica.running < run.max_num_seqs


@kernel
def whole(run, missing):
    """Tokens of a prompt's next chunk where the step's budget does not cut it."""
    return min(missing, at_most(run, missing, NO_LIMIT))


@kernel
def all_fit(table, run, arena, replica):
    """Are tokens and blocks there for the group, for those who prefill and for the one who waits, in any order?"""
    block_size = run.block_size
    prompts, budget = replica.prefilling, run.budget - replica.members
    free = replica.free_blocks
    free -= arena[replica.residues + (-formed_steps(replica)) % block_size]
    for place in range(prompts):
        request = request_at(arena, replica.slots, arena[replica.prefill + place])
        computed, held = request.computed_tokens, rules.blocks_for(request.computed_tokens, block_size)
        tokens = whole(run, request.known_tokens - computed)
        free -= rules.new_blocks(computed, tokens, held, block_size)
        budget -= tokens
    if waiting(replica) > 0:
        row = replica.coming_row if replica.coming > 0 else head(run, arena, replica)
        known = known_tokens(table, arena, replica, entry_at(arena, run.queue, row).slot, row)
        tokens = whole(run, known) if run.chunked != 0 else known
        must_fit = known if run.whole_prompt != 0 else tokens
        above = run.watermark if replica.running > 0 else 0
        if not rules.has_memory(must_fit, 0, 0, block_size, free, above):
            return False
        budget -= tokens
        prompts += 1
    return free >= 0 and budget >= 0 and prompts <= MOST_PROMPTS


@inlined
def form_next(batcher, table, run, arena, costs, params, replica, now):
    """Form one step, with the group if nobody's place in the list can matter."""
    grouped = may_group(run, replica)
    if grouped and replica.open == 0:
        open_group(run, arena, replica)
    if grouped and replica.open != 0 and all_fit(table, run, arena, replica):
        formed = form_grouped(batcher, table, run, arena, costs, params, replica, now)
        if formed != SHORT:
            return formed == FORMED
    if replica.open != 0:
        close_group(run, arena, replica)
    return form(batcher, table, run, arena, costs, params, replica, now)


@kernel
def stride_alone(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit):
    """While nobody waits: who does may displace somebody."""
    if waiting(replica) > 0:
        return 0
    return stride(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit)


made_of(RankedContinuous, Kernels(draft, form_next, commit_next, stride_alone, close, last_of_all))
