"""Does the law of the two engines catch mistakes? Each mutation breaks the compiled engine in one place of its source.

`python -m tests.laws.mutate [NAME ...]` prints for each after how many cases the law fails. A mutant is a copy of the
package run as plain Python (NUMBA_DISABLE_JIT=1), so that nothing has to be compiled.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from tests.laws.split_mutations import SPLIT_MUTATIONS

if TYPE_CHECKING:
    from tests.laws.compiled_cases import Compared

ROOT = Path(__file__).parent.parent.parent
FOLDER = "llmqsim/engine/compiled"
CASES = 600
FOUND, NOT_FOUND = "the law fails at case", "the law holds"

MUTATIONS: dict[str, tuple[str, str, str, str]] = {
    # name: (file, function that is broken there, "": none, what stands in it once, what is to stand there)
    "context growth frozen": (
        "group/kernels.py",
        "form_grouped",
        "arena[base + R_CONTEXT] += members\n",
        "pass\n",
    ),
    "block boundary shifted": (
        "group/kernels.py",
        "form_grouped",
        "(-formed_steps(arena, base)) % block_size",
        "(1 - formed_steps(arena, base)) % block_size",
    ),
    "form before deliver": (
        "kernels.py",
        "advance",
        "elif deliver_ns <= form_ns:",
        "elif deliver_ns < form_ns:",
    ),
    "router's tie-break dropped": (
        "routers/kernels.py",
        "fewest",
        "if arena[counts + arena[place]] < arena[counts + best]:",
        "if arena[counts + arena[place]] <= arena[counts + best]:",
    ),
    "routers: every session begins anew": (
        "routers/kernels.py",
        "where_it_began",
        "    if arena[place] < 0:\n",
        "    if True:\n",
    ),
    "routers: everybody may go everywhere": (
        "routers/kernels.py",
        "list_of",
        "arena[router + F_ALL] if arena[router + F_LIST_OF] == 0 else",
        "arena[router + F_ALL] if True else",
    ),
    "routers: who arrives at the instant of a choice is not there yet": (
        "routers/weighing/kernels.py",
        "look",
        "while arena[base + R_DELIVER_NS] == now:",
        "while False:",
    ),
    "routers: what was sent since the report is forgotten": (
        "routers/weighing/kernels.py",
        "load_of",
        "return float(load + own) if",
        "return float(load) if",
    ),
    "routers: what is on its way was reported": (
        "routers/weighing/kernels.py",
        "hear_reports",
        "        if table[OUTCOME, row] == UNFINISHED:\n            count_since",
        "        if False:\n            count_since",
    ),
    "routers: who was reported and ends was sent since": (
        "routers/weighing/kernels.py",
        "ended",
        "if table[ARRIVAL, row] + arena[G_BEFORE_NS] >= arena[router + F_REPORTED_NS]:",
        "if True:",
    ),
    "doors: who finds too little in the bucket empties it": (
        "routers/door/kernels.py",
        "draw_from_bucket",
        "    if costs[held] < asked:\n        return False\n",
        "    if costs[held] < asked:\n        costs[held] = 0.0\n        return False\n",
    ),
    "doors: the bucket is filled once": (
        "routers/door/kernels.py",
        "draw_from_bucket",
        "    arena[router + F_FILLED_NS] = now\n",
        "    arena[router + F_FILLED_NS] = NEVER\n",
    ),
    "doors: all that ever finished has finished of late": (
        "routers/door/kernels.py",
        "finished_of_late",
        "<= since_ns:",
        "< 0:",
    ),
    "doors: one more may wait": (
        "routers/door/kernels.py",
        "admit",
        "waiting(arena) <= arena[router + F_MOST]",
        "waiting(arena) <= arena[router + F_MOST] + 1",
    ),
    "doors: nobody hears that it was refused": (
        "clients/kernels.py",
        "send_now",
        "        answered(table, arena, row, now)\n        return\n",
        "        return\n",
    ),
    "routers: preempted requests are not reported": (
        "routers/weighing/kernels.py",
        "report",
        "arena[base + R_QUEUED] + arena[base + R_PREEMPTED] +",
        "arena[base + R_QUEUED] +",
    ),
    "routers: work is done when it is sent": (
        "routers/weighing/kernels.py",
        "ended",
        "count_work(table, arena, row, index, -1)",
        "pass",
    ),
    "routers: affinity's ties go to the lowest index at once": (
        "routers/weighing/kernels.py",
        "best_match",
        " or (penalty == lowest and arena[counts + index] < arena[counts + best])",
        "",
    ),
    "routers: the first block of a prompt is forgotten first": (
        "routers/weighing/kernels.py",
        "remember",
        "for place in range(end - 1, first - 1, -1):",
        "for place in range(first, end):",
    ),
    "routers: nothing is forgotten": (
        "routers/weighing/kernels.py",
        "remember",
        "while arena[memory + M_COUNT] > arena[base + R_USABLE_BLOCKS]:",
        "while False:",
    ),
    "deliver before commit": (
        "kernels.py",
        "advance",
        "if end_ns <= deliver_ns and end_ns <= form_ns:",
        "if end_ns < deliver_ns and end_ns <= form_ns:",
    ),
    "router looks before the commits of its instant": (
        "kernels.py",
        "route",
        "if arena[arena[G_NEXT_NS] + index] <= now:",
        "if arena[arena[G_NEXT_NS] + index] < now:",
    ),
    "oldest preempted first": (
        "step/entry/kernels.py",
        "first_in_line",
        "slot = arena[arena[base + R_STACK] + preempted - 1]",
        "slot = arena[arena[base + R_STACK]]",
    ),
    "an unforeseen end wastes nothing": (
        "group/kernels.py",
        "end_member",
        "arena[step_at(arena, base, 1) + T_GONE] += 1",
        "pass",
    ),
    "a foreseen end has a row too many": (
        "group/kernels.py",
        "foresee_ends",
        "if arena[at + S_MEMBER] == MEMBER and arena[at + S_MAX] == arena[at + S_OUTPUT]:",
        "if False:",
    ),
    "worst gap: one step too early": (
        "group/kernels.py",
        "end_member",
        "worst_gap_after(arena, base, arena[at + S_STEP])",
        "worst_gap_after(arena, base, arena[at + S_STEP] - 1)",
    ),
    "stack of gaps keeps the smaller": (
        "group/kernels.py",
        "push_gap",
        "arena[gaps + 2 * size - 1] <= gap:",
        "arena[gaps + 2 * size - 1] >= gap:",
    ),
    "a member ends one step late": (
        "group/kernels.py",
        "end_of",
        "return arena[at + S_STEP] + arena[at + S_OUTPUT] - (",
        "return 1 + arena[at + S_STEP] + arena[at + S_OUTPUT] - (",
    ),
    "full pool not noticed": (
        "group/kernels.py",
        "fits",
        "if free < 0 or",
        "if free < -1 or",
    ),
    "context growth frozen in a stride": (
        "stride/kernels.py",
        "stride",
        "        context += members\n",
        "",
    ),
    "block boundary shifted in a stride": (
        "stride/kernels.py",
        "stride",
        "-(arena[base + U_STEPS] + ahead) % block_size",
        "(1 - arena[base + U_STEPS] - ahead) % block_size",
    ),
    "a stride forms before it delivers": (
        "stride/kernels.py",
        "stride",
        "limit = arena[base + R_LAST_COMMIT_NS], min(commit_limit, deliver_ns)",
        "limit = arena[base + R_LAST_COMMIT_NS], commit_limit",
    ),
    "a stride ends one step late": (
        "stride/kernels.py",
        "stride",
        ">> SLOT_BITS) - 1 - arena[base + U_STEPS]",
        ">> SLOT_BITS) - arena[base + U_STEPS]",
    ),
    "last freed block used first": (
        "blocks/kernels.py",
        "take",
        "node = arena[node_at(arena, base, ENDS) + N_NEXT]\n        at =",
        "node = arena[node_at(arena, base, ENDS) + N_PREV]\n        at =",
    ),
    "the partly filled block hit, too": (
        "blocks/kernels.py",
        "release",
        "new_node(arena, base, OWNED - slot, full - shared)",
        "new_node(arena, base, OWNED - slot, full - shared + (held > full))",
    ),
    "blocks freed head first": (
        "blocks/kernels.py",
        "release",
        "range(arena[at + S_PREFIX] + shared - 1, arena[at + S_PREFIX] - 1, -1)",
        "range(arena[at + S_PREFIX], arena[at + S_PREFIX] + shared)",
    ),
    "own blocks freed behind shared ones": (
        "blocks/kernels.py",
        "release",
        "        give(arena, base, full - shared, HASHED, ENDS)\n",
        "        give(arena, base, full - shared, HASHED, arena[node_at(arena, base, ENDS) + N_NEXT])\n",
    ),
    "unhashed blocks never first": (
        "blocks/kernels.py",
        "give_unhashed",
        "if arena[G_UNHASHED_FIRST] != 0 else ENDS",
        "if False else ENDS",
    ),
    "the latest copy of a block hit": (
        "blocks/kernels.py",
        "add_copy",
        "    arena[at + N_LATER] = first\n    return node",
        "    arena[at + N_LATER] = first\n    arena[first_at] = node\n    return node",
    ),
    "a block forgotten with its first copy": (
        "blocks/kernels.py",
        "drop_key",
        "            arena[first_at] = later\n",
        "            arena[first_at] = NO_NODE\n",
    ),
    "a wholly cached prompt computes nothing again": (
        "prefix/kernels.py",
        "hits",
        "(known - 1) // arena[G_BLOCK_SIZE]",
        "known // arena[G_BLOCK_SIZE]",
    ),
    "free hits cost nothing": (
        "prefix/kernels.py",
        "hits",
        "free += arena[node_at(arena, base, node) + N_COUNT] == 0",
        "free += 0",
    ),
    "half-filled blocks shared": (
        "prefix/kernels.py",
        "share",
        "arena[at + S_COMPUTED] // block_size)",
        "(arena[at + S_COMPUTED] + 1) // block_size)",
    ),
    "warmed from the last prompt to the first": (
        "prefix/kernels.py",
        "warm",
        "    for row in range(arena[G_ROWS]):\n",
        "    for row in range(arena[G_ROWS] - 1, -1, -1):\n",
    ),
    "hits of recomputed tokens count as saved": (
        "step/entry/kernels.py",
        "settle_in",
        "max(0, cached - arena[at + S_HIGH_WATER])",
        "cached",
    ),
    "who ends last is freed first": (
        "group/kernels.py",
        "note_ending",
        "+ S_PLACE] > its_place:",
        "+ S_PLACE] < its_place:",
    ),
    "rows of a closed group behind the others": (
        "group/kernels.py",
        "close_group",
        "gone += arena[step + STEP + place] == GONE\n        arena[step + T_GONE] = arena[step + T_SAMPLED] = 0\n",
        "gone += 0\n        arena[step + T_GONE] = 0\n",
    ),
    "a common block is read once for ever": (
        "blocks/kernels.py",
        "let_go",
        "        arena[base + R_REPEATED] -= 1\n",
        "        pass\n",
    ),
    "near admissions: one too few": (
        "prefix/kernels.py",
        "take_hits",
        "<= arena[G_NEAR_ADMISSIONS]",
        "< arena[G_NEAR_ADMISSIONS]",
    ),
    "a stride ignores that its head misses more of a whole prompt": (
        "stride/kernels.py",
        "stays_out",
        "can_lose = arena[G_CHUNKED] == 0 or",
        "can_lose = False or",
    ),
    "a stride ignores that its head's hits have got a hole": (
        "stride/kernels.py",
        "stays_out",
        "or arena[G_WARM] != 0 or",
        "or False or",
    ),
    "swapped requests come back in the order in which they left": (
        "swap/kernels.py",
        "swap_out",
        "        if table[ARRIVAL, other] < table[ARRIVAL, row] or",
        "        if True or",
    ),
    "swapped requests ignore the watermark": (
        "swap/kernels.py",
        "may_return",
        "free, arena[G_WATERMARK], running)",
        "free, 0, running)",
    ),
    "copies cost nothing": (
        "swap/kernels.py",
        "with_copies",
        "    if copied == 0:\n",
        "    if True:\n",
    ),
    "blocks on the host count for ever": (
        "swap/kernels.py",
        "leave_host",
        "    arena[base + R_HOST_FREE] += blocks\n",
        "    pass\n",
    ),
    "the queue overtakes swapped requests beside a group": (
        "group/kernels.py",
        "form_grouped",
        "    if all_back and arena",
        "    if arena",
    ),
    "who comes back beside a group needs nothing": (
        "group/kernels.py",
        "can_grow_on_return",
        "        if blocks + need > free:\n",
        "        if False:\n",
    ),
    "nobody comes back before a stride": (
        "stride/kernels.py",
        "stays_out",
        "return rules.ADMITTED if first_may_return(arena, base, budget) else rules.WAIT_KV, NEVER",
        "return rules.WAIT_KV, NEVER",
    ),
    "victims: priority ignored": (
        "step/running/kernels.py",
        "standing_of",
        "return table[PRIORITY, row]",
        "return 0",
    ),
    "victims: who came first": (
        "step/running/kernels.py",
        "came_after",
        "return table[ARRIVAL, row] > table[ARRIVAL, other]",
        "return table[ARRIVAL, row] < table[ARRIVAL, other]",
    ),
    "victims: tie-break dropped": (
        "step/running/kernels.py",
        "came_after",
        "return row > other",
        "return row < other",
    ),
    "the host forgets the newest": (
        "blocks/kernels.py",
        "fit_host",
        "node = arena[node_at(arena, base, HOST_ENDS) + N_NEXT]",
        "node = arena[node_at(arena, base, HOST_ENDS) + N_PREV]",
    ),
    "the host keeps blocks that hold nothing": (
        "blocks/kernels.py",
        "take",
        "if arena[G_HOST_BLOCKS] > 0 and key != UNHASHED:",
        "if arena[G_HOST_BLOCKS] > 0:",
    ),
    "what is loaded stays on the host": (
        "blocks/kernels.py",
        "forsake_key",
        "    if node != NO_NODE:\n        arena[node_of] = NO_NODE\n",
        "    if False:\n        arena[node_of] = NO_NODE\n",
    ),
    "own blocks on the host are lost": (
        "prefix/kernels.py",
        "hits",
        "for word in (S_RUN, S_HOST_RUN):",
        "for word in (S_RUN,):",
    ),
    "loads cost nothing": (
        "swap/kernels.py",
        "with_copies",
        "arena[step + T_COPIED] + arena[step + T_LOADED]",
        "arena[step + T_COPIED]",
    ),
    "clients of one instant in the wrong order": (
        "loop/kernels.py",
        "before",
        "arena[turns + 2 * one + 1] < arena[turns + 2 * other + 1]",
        "arena[turns + 2 * one + 1] > arena[turns + 2 * other + 1]",
    ),
    "clients go before what ends at their instant": (
        "loop/kernels.py",
        "serve",
        "code = advance(batcher, table, arena, costs, params, base, now, now)",
        "code = advance(batcher, table, arena, costs, params, base, now - 1, now)",
    ),
    "watermark forgotten": (
        "step/entry/kernels.py",
        "admission",
        "above = arena[G_WATERMARK] if running > 0 else 0",
        "above = 0",
    ),
    "context read without the current token": (
        "step/rows/kernels.py",
        "put",
        "rules.padded_context(end, arena",
        "rules.padded_context(computed, arena",
    ),
    "clients: what ends is heard in the order of replicas": (
        "clients/kernels.py",
        "ends_next",
        "arena[base + R_AWAITED_SINCE_NS] < since:",
        "best < 0:",
    ),
    "clients: events of an instant by client": (
        "clients/kernels.py",
        "comes_before",
        "for word in range(E_KIND):",
        "for word in (E_TIME_NS, E_CLIENT):",
    ),
    "clients: a loop's turns are events of their own": (
        "clients/kernels.py",
        "ready_at",
        "arena[at + E_TIME_NS] == time and arena[at + E_KIND] == IS_TURN + loop",
        "False",
    ),
    "clients: requests are delivered after all else": (
        "clients/kernels.py",
        "happen",
        "arena[arena[G_SENT_ORDER] + place] < arena[event_at(arena, 0) + E_ORDER]",
        "False",
    ),
    "clients: an answer that comes too late counts": (
        "clients/kernels.py",
        "hear",
        "if seen_ns <= table[ARRIVAL, row] + arena[G_TIMEOUT_NS]:",
        "if True:",
    ),
    "clients: warm-up goes on before all are done": (
        "clients/kernels.py",
        "hold_back",
        "if arena[loop + L_HELD] == arena[loop + L_CLIENTS]:",
        "if arena[loop + L_HELD] == 1:",
    ),
    "clients: rows of who gave up are wasted ones": (
        "step/ending/kernels.py",
        "abort",
        "cross_out(arena, base, slot, ABORTED)",
        "cross_out(arena, base, slot, GONE)",
    ),
    "clients: who gave up was always seen by the scheduler": (
        "step/ending/kernels.py",
        "abandon",
        "    if fresh:\n",
        "    if False:\n",
    ),
    "pipeline: the next token before the last is known": (
        "step/running/kernels.py",
        "grow",
        "if arena[at + S_STAGE] != RUNNING or (arena[G_STAGES] > 1 and awaited_tokens(arena, at) > 0):",
        "if arena[at + S_STAGE] != RUNNING:",
    ),
    "pipeline: a step overtakes the one before": (
        "step/forming/kernels.py",
        "enter_pipeline",
        "arena[step + T_END_NS] = max(arena[step + T_END_NS], arena[before + T_END_NS] + stage_ns)",
        "pass",
    ),
    "pipeline: the first stage is always free": (
        "step/forming/kernels.py",
        "enter_pipeline",
        "begin = max(now, arena[base + R_STAGE_FREE_NS])",
        "begin = now",
    ),
    "sarathi: blocks of the first chunk alone": (
        "batchers/sarathi/kernels.py",
        "draft",
        "admit_waiting(batcher, table, arena, base, step, True, False, now)",
        "admit_waiting(batcher, table, arena, base, step, False, False, now)",
    ),
    "trtllm: admits what it may have to evict": (
        "batchers/trtllm/kernels.py",
        "guaranteed_no_evict",
        "admit_waiting(batcher, table, arena, base, step, False, True, now)",
        "admit_waiting(batcher, table, arena, base, step, False, False, now)",
    ),
    "trtllm: others enter in a step that paused someone": (
        "batchers/trtllm/kernels.py",
        "max_utilization",
        "if arena[step + T_PREEMPTED] == 0:",
        "if True:",
    ),
    "orca: admits without a place for the longest answer": (
        "batchers/orca/kernels.py",
        "draft",
        "admit_waiting(batcher, table, arena, base, step, False, True, now)",
        "admit_waiting(batcher, table, arena, base, step, False, False, now)",
    ),
    "vllm_v0: no spare block": (
        "batchers/vllm_v0/kernels.py",
        "draft",
        "NO_LIMIT, batcher.spare_blocks, now)",
        "NO_LIMIT, 0, now)",
    ),
    "vllm_v0: decodes in the order of admission": (
        "batchers/vllm_v0/kernels.py",
        "sort_by_arrival",
        "while hole > first and came_before(table, arena, base, slot, arena[hole - 1]):",
        "while False:",
    ),
    "static: who has ended costs nothing": (
        "batchers/static/kernels.py",
        "go_on",
        "arena[step + T_IDLE] += 1",
        "pass",
    ),
    "static: rows without their padding": (
        "batchers/static/kernels.py",
        "begin",
        "hit, hold, prompt - own, now)",
        "hit, hold, 0, now)",
    ),
    "static: padded to the longest of all who wait": (
        "batchers/static/kernels.py",
        "begin",
        "while count < min(arena[base + R_QUEUED], arena[G_MAX_NUM_SEQS]):",
        "while count < arena[base + R_QUEUED]:",
    ),
    "static: a row may hold more than the longest sequence": (
        "batchers/static/kernels.py",
        "begin",
        "longest = min(longest_prompt + longest_answer, arena[G_LONGEST])",
        "longest = longest_prompt + longest_answer",
    ),
    "static: a row that has ended reads more than the longest sequence": (
        "batchers/static/kernels.py",
        "go_on",
        "arena[at + S_PADDING], arena[G_LONGEST])",
        "arena[at + S_PADDING], NO_LIMIT)",
    ),
    "static: a row reads more than the longest sequence": (
        "step/rows/kernels.py",
        "put",
        "arena[at + S_PADDING], arena[G_LONGEST])",
        "arena[at + S_PADDING], NO_LIMIT)",
    ),
    "static: nothing stays free beside a batch": (
        "batchers/static/kernels.py",
        "begin",
        "arena[base + R_FREE_BLOCKS] - arena[G_WATERMARK]:",
        "arena[base + R_FREE_BLOCKS]:",
    ),
    "static: those left out wait for a step": (
        "batchers/static/kernels.py",
        "begin",
        "turn_away(arena, base, step, rules.WAIT_KV)",
        "pass",
    ),
    "peaks: who was preempted does not wait": (
        "step/forming/kernels.py",
        "note_peaks",
        "max(arena[base + U_WAITING_PEAK], all_waiting(arena, base))",
        "max(arena[base + U_WAITING_PEAK], arena[base + R_QUEUED])",
    ),
    "log: blocks held when the step has ended": (
        "step/ending/kernels.py",
        "book_step",
        "arena[log + 7] = arena[step + T_BLOCKS]",
        "arena[log + 7] = arena[base + R_USABLE_BLOCKS] - arena[base + R_FREE_BLOCKS]",
    ),
    "log: who waits when the step has ended": (
        "step/ending/kernels.py",
        "book_step",
        "arena[log + 6] = arena[step + T_WAITING]",
        "arena[log + 6] = arena[base + R_QUEUED] + arena[base + R_PREEMPTED] + arena[base + R_SWAPPED]",
    ),
    "static: patience of the last who came": (
        "batchers/static/kernels.py",
        "draft",
        "patience_ends_ns = oldest_arrival(table, arena, base) +",
        "patience_ends_ns = now +",
    ),
    "partial prefills: long prompts in the queue's order": (
        "batchers/partial_prefills/kernels.py",
        "choose",
        "if long_places <= 0:",
        "if False:",
    ),
    "partial prefills: shares of newcomers alone": (
        "batchers/partial_prefills/kernels.py",
        "draft",
        "max(1, partial + chosen)",
        "max(1, chosen)",
    ),
    "sglang: nothing is reserved": (
        "batchers/sglang/kernels.py",
        "prefill",
        "if not alone and free - reserved < missing + more:",
        "if not alone and free < missing + more:",
    ),
    "sglang: tried again though the batch is full": (
        "batchers/sglang/kernels.py",
        "prefill",
        "if arena[base + R_FULL_SINCE] == arena[base + R_LEFT] and count > 0:",
        "if False:",
    ),
    "sglang: the ratio stays": (
        "batchers/sglang/kernels.py",
        "ratio_of",
        "return float_at(arena, base + R_RATIO) if arena[base + R_RATIO_IS_SET] != 0 else batcher.start",
        "return batcher.start",
    ),
    "sglang: sent back to where the key says": (
        "batchers/sglang/kernels.py",
        "retract",
        "preempt(table, arena, base, step, slot, True, now)",
        "preempt(table, arena, base, step, slot, False, now)",
    ),
    "sglang: whoever has most output is sent back": (
        "batchers/sglang/kernels.py",
        "goes_sooner",
        "return arena[at + S_GENERATED] < arena[other + S_GENERATED]",
        "return arena[at + S_GENERATED] > arena[other + S_GENERATED]",
    ),
    "prefill share: as much as decodes leave": (
        "batchers/capped/kernels.py",
        "prefill",
        "left = min(arena[step + T_BUDGET], most)",
        "left = arena[step + T_BUDGET]",
    ),
    "slo chunk: the target of the last alone": (
        "batchers/capped/kernels.py",
        "largest_chunk",
        "limit_ns = min(limit_ns, tpot_ns)",
        "limit_ns = tpot_ns",
    ),
    "slo chunk: half of who decodes": (
        "batchers/capped/kernels.py",
        "largest_chunk",
        "profiled_step_ns(costs, params, percent, decodes,",
        "profiled_step_ns(costs, params, percent, decodes // 2,",
    ),
    "multi-step: steps in between call the scheduler, too": (
        "batchers/multi_step/kernels.py",
        "draft",
        "arena[step + T_SAVED_NS] = batcher.saved_ns",
        "pass",
    ),
    "multi-step: one step more": (
        "batchers/multi_step/kernels.py",
        "draft",
        "else batcher.n - 1",
        "else batcher.n",
    ),
    "reserve predicted: nothing": (
        "batchers/reserving/kernels.py",
        "draft",
        "NO_LIMIT, hold, now)",
        "NO_LIMIT, 0, now)",
    ),
    "reserve predicted: tokens that are made still to come": (
        "batchers/reserving/kernels.py",
        "reserved",
        "hold = policy_rules.reserved_tokens(left, batcher.margin, most, generated, known)",
        "hold = policy_rules.reserved_tokens(left, batcher.margin, most, 0, known)",
    ),
    "orders: a step changes no counter of tenants": (
        "orders/vtc/kernels.py",
        "ran",
        "arena[served + arena[slot_of(arena, base, slot) + S_TENANT]] += order.output_weight",
        "pass",
    ),
    "orders: the group changes no counter of tenants": (
        "orders/vtc/kernels.py",
        "strode",
        "arena[arena[base + R_SERVED] + tenant] += order.output_weight * steps * members",
        "pass",
    ),
    "orders: no lift": (
        "orders/vtc/kernels.py",
        "joined",
        "        if least < NEVER:\n",
        "        if False:\n",
    ),
    "orders: who is preempted is charged again": (
        "orders/vtc/kernels.py",
        "left",
        "if entered and table[PREEMPTIONS, row] == 0:",
        "if entered:",
    ),
    "orders: who ended while it waited still waits": (
        "orders/vtc/kernels.py",
        "left",
        "arena[arena[base + R_QUEUED_OF] + tenant] -= 1",
        "arena[arena[base + R_QUEUED_OF] + tenant] -= entered",
    ),
    "orders: looks one step late": (
        "orders/goodput_first/kernels.py",
        "look_again",
        "if formed - arena[base + R_MEMORY] >= order.review_steps:",
        "if formed - arena[base + R_MEMORY] > order.review_steps:",
    ),
    "orders: strides are no steps": (
        "orders/goodput_first/kernels.py",
        "strode",
        "arena[base + R_MEMORY] += looks * order.review_steps",
        "pass",
    ),
    "orders: hits of the time of joining": (
        "orders/longest_prefix/kernels.py",
        "look_again",
        "or arena[G_CACHING] == 0) or",
        "or True) or",
    ),
    "orders: most waiting ignored": (
        "orders/longest_prefix/kernels.py",
        "look_again",
        "waiting(arena, base) > order.most_waiting",
        "False",
    ),
    "orders: what is left is what was predicted": (
        "orders/srpt/kernels.py",
        "aged_size",
        "arena[at + S_COMPUTED], arena[at + S_GENERATED]",
        "arena[at + S_COMPUTED], 0",
    ),
    "orders: who is sent to the back stands where its key says": (
        "orders/kernels.py",
        "take_back_in",
        "        if arena[at + Q_CHILD] != 0:\n",
        "        if False:\n",
    ),
    "orders: a part of the queue is lost when it is sorted again": (
        "queue/kernels.py",
        "empty",
        "            arena[entry_at(arena, last) + Q_SIBLING] = following\n",
        "",
    ),
    "orders: a tenant's second never comes up": (
        "orders/vtc/kernels.py",
        "lifted",
        "        if following >= 0:\n",
        "        if False:\n",
    ),
    "orders: counters of the time of joining": (
        "orders/vtc/kernels.py",
        "bring_up",
        "        if not fresh:\n",
        "        if False:\n",
    ),
    "orders: of a tenant, who came back first is first": (
        "orders/vtc/kernels.py",
        "stand",
        "        if table[ARRIVAL, first] < table[ARRIVAL, row] or (",
        "        if True or (",
    ),
    "orders: tenants are never off the list": (
        "orders/vtc/kernels.py",
        "strode",
        "            arena[arena[base + R_LISTED] + tenant] = 0\n",
        "",
    ),
    "orders: who was in time stays so": (
        "orders/goodput_first/kernels.py",
        "catch_up",
        "judged = level == 0",
        "judged = True",
    ),
    "orders: who is at the top is judged as of now": (
        "orders/goodput_first/kernels.py",
        "catch_up",
        "arena[at + Q_SLOT], arena[base + R_TAIL])",
        "arena[at + Q_SLOT], now)",
    ),
    "orders: tokens under way are forgotten": (
        "orders/goodput_first/kernels.py",
        "look_again",
        "call_late(order, table, arena, base, True, now)",
        "call_late(order, table, arena, base, False, now)",
    ),
    "orders: who was sent to the back stays there": (
        "orders/kernels.py",
        "call_late",
        "        if waits_by_key(arena, row):\n",
        "        if False:\n",
    ),
    "ranks: taken from the middle: the wrong link is mended": (
        "queue/kernels.py",
        "take_out",
        "link = Q_CHILD if arena[entry_at(arena, before) + Q_CHILD] == row else Q_SIBLING",
        "link = Q_CHILD",
    ),
    "ranks: taken from the middle: who follows is not told": (
        "queue/kernels.py",
        "take_out",
        "        arena[entry_at(arena, after) + Q_BEFORE] = before\n",
        "        pass\n",
    ),
    "ranks: taken from the middle: the children are lost": (
        "queue/kernels.py",
        "take_out",
        "    if children >= 0:\n",
        "    if False:\n",
    ),
    "ranks: a new child, and the old one is not told": (
        "queue/kernels.py",
        "meld",
        "        arena[entry_at(arena, child) + Q_BEFORE] = other\n",
        "        pass\n",
    ),
    "ranks: a timer is not set again": (
        "orders/learned_rank/kernels.py",
        "look_again",
        "                set_timer(arena, base, row, arena[mark_at(arena, row) + M_LAST_RAN])\n",
        "                pass\n",
    ),
    "ranks: who waits does not starve": (
        "orders/learned_rank/kernels.py",
        "look_again",
        "    until = formed(arena, base) - order.starvation\n",
        "    until = -1\n",
    ),
    "ranks: who comes in does not starve": (
        "orders/learned_rank/kernels.py",
        "left",
        "    may_starve_inside(order, arena, base, row)\n",
        "",
    ),
    "ranks: rescued in the order of their waits": (
        "orders/mlfq/kernels.py",
        "bring_out_starved",
        "arena[entry_at(arena, row) + Q_RANK] = IN_ORDER\n",
        "arena[entry_at(arena, row) + Q_RANK] = IN_ORDER\n                arena[entry_at(arena, row) + Q_LEVEL] = since\n",
    ),
    "ranks: rescued once": (
        "orders/mlfq/kernels.py",
        "look_again",
        "        set_timer(arena, base, row, now)\n",
        "",
    ),
    "ranks: who was rescued stays where it waited": (
        "orders/mlfq/kernels.py",
        "look_again",
        "    while first_of(arena, base + R_STARVED) >= 0:\n        row = pop_from(arena, base + R_STARVED)\n        starved = rescue(order, arena, base, row, now) or starved\n",
        "    while first_of(arena, base + R_STARVED) >= 0:\n        row = pop_from(arena, base + R_STARVED)\n",
    ),
    "orders: static: the tenant's next is not seen": (
        "batchers/static/kernels.py",
        "begin",
        "        lifted(batcher.order, table, arena, base, row)\n",
        "",
    ),
    "orders: partial prefills: the tenant's next is not seen": (
        "batchers/partial_prefills/kernels.py",
        "choose",
        "        lifted(batcher.order, table, arena, base, row)\n",
        "",
    ),
    "ranks: who has made no token is displaced": (
        "batchers/ranked/kernels.py",
        "last_behind",
        " or arena[at + S_KNOWN] <= arena[at + S_ENTERED]:",
        ":",
    ),
    "ranks: who has a token in this step is displaced": (
        "batchers/ranked/kernels.py",
        "last_behind",
        "        if is_drafted(arena, step, at, slot):\n",
        "        if False:\n",
    ),
    "ranks: a list of two runs is merged with the later first": (
        "batchers/ranked/kernels.py",
        "merge",
        "is_behind(arena, base, listed + left, listed + right)",
        "not is_behind(arena, base, listed + left, listed + right)",
    ),
    "ranks: equal keys, the later row first": (
        "batchers/ranked/kernels.py",
        "is_behind",
        "return row_listed(arena, base, place) > row_listed",
        "return row_listed(arena, base, place) < row_listed",
    ),
    "ranks: who ranks ahead is displaced": (
        "batchers/ranked/kernels.py",
        "last_behind",
        "return place if comes_after(its_level, its_value, its_row, level, value, row) else -1",
        "return place",
    ),
    "ranks: the first who runs gives way": (
        "batchers/ranked/kernels.py",
        "last_of_all",
        "if comes_after(its_level, its_value, its_row, level, value, row):",
        "if False:",
    ),
    "ranks: who is displaced leaves more than he held": (
        "batchers/ranked/kernels.py",
        "displace",
        "free += held_blocks(",
        "free += 1 + held_blocks(",
    ),
    "ranks: swapped requests displace nobody": (
        "batchers/ranked/kernels.py",
        "go_on",
        "if not displace(batcher, table, arena, base, step, slot, row, known, now):\n                return False",
        "if True:\n                return False",
    ),
    "ranks: who is displaced counts as short of memory": (
        "batchers/ranked/kernels.py",
        "displace",
        "        give_way(table,",
        "        arena[step + T_PREEMPTED] = 1\n        give_way(table,",
    ),
    "ranks: who loses its place is in the queue at once": (
        "orders/fixed/kernels.py",
        "",
        "page(FixedRanked, key_of, late_key_of)",
        "page(FixedRanked, key_of, late_key_of, catch_up=is_sorted)",
    ),
    "ranks: nobody is rescued": (
        "orders/mlfq/kernels.py",
        "rescue",
        "< order.starvation_ns:",
        "< NEVER:",
    ),
    "ranks: all quanta alike": (
        "orders/mlfq/kernels.py",
        "ran",
        "rules.quantum_ns(order.quantum_ns, level)",
        "order.quantum_ns",
    ),
    "ranks: nobody skips a level": (
        "orders/mlfq/kernels.py",
        "joined",
        "1 + rules.first_level(prefill_ns, order.quantum_ns, order.levels)",
        "1",
    ),
    "ranks: swapped requests can not starve": (
        "orders/kernels.py",
        "inside",
        "return arena[base + R_RUNNING] + arena[base + R_SWAPPED]",
        "return arena[base + R_RUNNING]",
    ),
    "ranks: promoted for ever": (
        "orders/learned_rank/kernels.py",
        "ran",
        "max(0, arena[at + M_PROMOTED] - 1)",
        "arena[at + M_PROMOTED]",
    ),
    "ranks: nobody is promoted": (
        "orders/learned_rank/kernels.py",
        "starves",
        "arena[at + M_PROMOTED] = order.period",
        "arena[at + M_PROMOTED] = 0",
    ),
    "ranks: two who wait join the group": (
        "batchers/ranked_group/kernels.py",
        "may_group",
        " or waiting(arena, base) > 1:",
        ":",
    ),
    "ranks: a group whose prompts are cut": (
        "batchers/ranked_group/kernels.py",
        "all_fit",
        "free >= 0 and budget >= 0 and",
        "free >= 0 and",
    ),
    "ranks: the one who waits needs no memory": (
        "batchers/ranked_group/kernels.py",
        "all_fit",
        "if not rules.has_memory(must_fit, 0, 0, block_size, free, above):",
        "if False:",
    ),
    "victims: most KV": (
        "step/running/kernels.py",
        "standing_of",
        "return -arena[at + S_COMPUTED]",
        "return arena[at + S_COMPUTED]",
    ),
    "victims: a deadline kept still counts": (
        "step/running/kernels.py",
        "standing_of",
        "(arena[at + S_GENERATED] > 0 and not at_end)",
        "False",
    ),
    "victims: decoding takes no time": (
        "step/running/kernels.py",
        "standing_of",
        "cost += decode_ns(",
        "decode_ns(",
    ),
    "victims: copied there and not back": (
        "step/running/kernels.py",
        "is_worth_a_swap",
        "there_and_back = copy_ns(2 * blocks,",
        "there_and_back = copy_ns(blocks,",
    ),
    "equal keys: later rows first": (
        "queue/kernels.py",
        "goes_before",
        "return row < other",
        "return row > other",
    ),
    "levels of keys ignored": (
        "queue/kernels.py",
        "goes_before",
        "if arena[one + Q_RANK] == IN_ORDER and arena[one + Q_LEVEL] != arena[two + Q_LEVEL]:",
        "if False:",
    ),
    "preempted requests first in every ordering": (
        "queue/kernels.py",
        "rejoin",
        "elif arena[G_FRONT] != 0:",
        "elif True:",
    ),
    "arrival counts the wrong way round": (
        "queue/kernels.py",
        "join",
        "+ arena[G_SLOPE] * table",
        "- arena[G_SLOPE] * table",
    ),
    "a pair of the heap lost": (
        "queue/kernels.py",
        "meld_children",
        "pairs, node = node, rest",
        "pairs, node = node, NOBODY_IN_LINE",
    ),
}

MUTATIONS |= SPLIT_MUTATIONS


def broken(source: str, function: str, right: str, wrong: str) -> str:
    """The source of a file with one place changed, which is looked for in one function ("": outside of all)."""
    own = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    lines = source.splitlines(keepends=True)
    named = [(node.lineno - 1, node.end_lineno) for node in own if node.name == function]
    spans = named if function else [(0, len(lines))]
    assert len(spans) == 1, f"{len(spans)} functions are named {function}"
    first, end = spans[0]
    before, inside, after = ("".join(part) for part in (lines[:first], lines[first:end], lines[end:]))
    assert inside.count(right) == 1, f"{inside.count(right)} places like that in {function or 'the file'}: {right}"
    return before + inside.replace(right, wrong) + after


def verdict(name: str) -> str:
    """Break one place, run the law's cases, and say what it says."""
    file, *place = MUTATIONS[name]
    with tempfile.TemporaryDirectory() as folder:
        for part in ("llmqsim", "tests"):
            shutil.copytree(ROOT / part, Path(folder) / part, ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(folder) / FOLDER / file
        path.write_text(broken(path.read_text(), *place))
        environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": folder}
        command = [sys.executable, "-m", "tests.laws.mutate", "--run", name]
        done = subprocess.run(
            command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
    return done.stdout.strip() or done.stderr.strip()[-400:]


LONGEST_CASE_S = 60
"""a case takes a second; a mutant that waits for ever is one that the law has noticed"""


def _hangs(*_) -> None:
    raise TimeoutError(f"no end after {LONGEST_CASE_S} s")


def concerns(file: str, case: Compared) -> bool:
    """Does a case run what was broken, where that is one ordering's own?"""
    folder = file.removeprefix("orders/").rpartition("/")[0]
    return not file.startswith("orders/") or folder in ("", "fixed", case.case.servers["ordering"])


def run(name: str) -> str:
    """In the mutant's process: the first case on which the engines differ (or at which the mutant breaks down)."""
    signal.signal(signal.SIGALRM, _hangs)
    for number, check in _checks(name):
        signal.alarm(LONGEST_CASE_S)
        try:
            told = check()
        except Exception as error:  # noqa: BLE001  (whatever a mutant does to itself, it was noticed)
            told = [f"{type(error).__name__}: {error}"]
        finally:
            signal.alarm(0)
        if told not in ([], ["fell back"]):
            return f"{FOUND} {number}: {'; '.join(told)}"
    return f"{NOT_FOUND} for all of {CASES} cases"


def _checks(name: str) -> Iterator[tuple[int, Callable[[], list[str]]]]:
    """The law's cases for one mutation: the number of each, and what says how the engines differ on it."""
    if name.startswith("pools:"):
        from tests.laws import compiled_split_cases

        yield from ((seed, partial(compiled_split_cases.differences, seed)) for seed in range(CASES))
        return
    from tests.laws.compiled_cases import compared, differences, rare
    from tests.laws.kind_cases import (
        of_any_batching,
        of_any_clients,
        of_any_order,
        of_any_rank,
        of_any_victims,
        rare_clients,
    )
    from tests.laws.router_cases import admitted, rare_routed, routed

    make = (
        of_any_batching
        if MUTATIONS[name][0].startswith("batchers/") or name.startswith(("pipeline", "static"))
        else compared
    )
    make = of_any_clients if name.startswith("clients:") else make
    make = routed if name.startswith("routers:") else admitted if name.startswith("doors:") else make
    make = of_any_order if name.startswith("orders:") else make
    make = of_any_rank if name.startswith("ranks:") else make
    make = of_any_victims if name.startswith("victims:") else make
    first = [*rare(), *rare_clients(), *rare_routed()]
    cases = [*first, *islice(filter(partial(concerns, MUTATIONS[name][0]), map(make, count())), CASES)]
    for number, case in enumerate(cases, -len(first)):
        yield number, partial(differences, case, keep_steps=number % 3 > 0 and number >= 0)


if __name__ == "__main__":
    if "--run" in sys.argv:
        print(run(sys.argv[-1]))
    else:
        for mutation in sys.argv[1:] or MUTATIONS:
            print(f"{mutation:50s} {verdict(mutation)}", flush=True)
