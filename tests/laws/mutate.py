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
        "group/steps.py",
        "form_grouped",
        "replica.context += members",
        "pass",
    ),
    "block boundary shifted": (
        "group/steps.py",
        "form_grouped",
        "need = arena[replica.residues + (-formed_steps(replica)) % block_size]",
        "need = arena[replica.residues + (1 - formed_steps(replica)) % block_size]",
    ),
    "form before deliver": (
        "replica.py",
        "advance",
        "elif deliver_ns <= form_ns:",
        "elif deliver_ns < form_ns:",
    ),
    "router's tie-break dropped": (
        "routers/counting.py",
        "fewest",
        "if arena[counts + arena[place]] < arena[counts + best]:",
        "if arena[counts + arena[place]] <= arena[counts + best]:",
    ),
    "routers: every session begins anew": (
        "routers/counting.py",
        "where_it_began",
        "if arena[place] < 0:",
        "if True:",
    ),
    "routers: everybody may go everywhere": (
        "routers/counting.py",
        "list_of",
        "return router.all if router.list_of == 0 else arena[router.list_of + row]",
        "return router.all if True else arena[router.list_of + row]",
    ),
    "routers: who arrives at the instant of a choice is not there yet": (
        "routers/weighing.py",
        "look",
        "while replica.deliver_ns == now:",
        "while False:",
    ),
    "routers: what was sent since the report is forgotten": (
        "routers/weighing.py",
        "load_of",
        "return float(load + own) if router.count_own != 0 else float(load)",
        "return float(load) if router.count_own != 0 else float(load)",
    ),
    "routers: what is on its way was reported": (
        "routers/weighing.py",
        "hear_reports",
        "if table[OUTCOME, row] == UNFINISHED:",
        "if False:",
    ),
    "routers: who was reported and ends was sent since": (
        "routers/weighing.py",
        "ended",
        "if table[ARRIVAL, row] + run.before_ns >= router.reported_ns:",
        "if True:",
    ),
    "doors: who finds too little in the bucket empties it": (
        "routers/door.py",
        "draw_from_bucket",
        "if costs[held] < asked:",
        "if costs[held] < asked:\n        costs[held] = 0.0",
    ),
    "doors: the bucket is filled once": (
        "routers/door.py",
        "draw_from_bucket",
        "router.filled_ns = now",
        "router.filled_ns = NEVER",
    ),
    "doors: all that ever finished has finished of late": (
        "routers/door.py",
        "finished_of_late",
        "while line.first_row >= 0 and end_at(arena, router_at(arena, run.router).ended, line.first_row).time_ns <= since_ns:",
        "while line.first_row >= 0 and end_at(arena, router_at(arena, run.router).ended, line.first_row).time_ns < 0:",
    ),
    "doors: one more may wait": (
        "routers/door.py",
        "admit",
        "enters = waiting(run, arena) <= router.most",
        "enters = waiting(run, arena) <= router.most + 1",
    ),
    "doors: nobody hears that it was refused": (
        "clients/sending.py",
        "send_now",
        "        answered(table, run, arena, row, now)\n",
        "",
    ),
    "routers: preempted requests are not reported": (
        "routers/weighing.py",
        "report",
        "told.waiting = replica.queued + replica.preempted + replica.swapped",
        "told.waiting = replica.queued + replica.swapped",
    ),
    "routers: work is done when it is sent": (
        "routers/weighing.py",
        "ended",
        "count_work(table, run, arena, row, index, -1)",
        "pass",
    ),
    "routers: affinity's ties go to the lowest index at once": (
        "routers/weighing.py",
        "best_match",
        "if best < 0 or penalty < lowest or (penalty == lowest and arena[counts + index] < arena[counts + best]):",
        "if best < 0 or penalty < lowest:",
    ),
    "routers: the first block of a prompt is forgotten first": (
        "routers/weighing.py",
        "remember",
        "for place in range(end - 1, first - 1, -1):",
        "for place in range(first, end):",
    ),
    "routers: nothing is forgotten": (
        "routers/weighing.py",
        "remember",
        "while memory_at(arena, memory).count > replica.usable_blocks:",
        "while False:",
    ),
    "deliver before commit": (
        "replica.py",
        "advance",
        "if end_ns <= deliver_ns and end_ns <= form_ns:",
        "if end_ns < deliver_ns and end_ns <= form_ns:",
    ),
    "router looks before the commits of its instant": (
        "sending.py",
        "route",
        "if arena[run.next_ns + index] <= now:",
        "if arena[run.next_ns + index] < now:",
    ),
    "oldest preempted first": (
        "step/entry.py",
        "first_in_line",
        "slot = arena[replica.stack + preempted - 1]",
        "slot = arena[replica.stack]",
    ),
    "an unforeseen end wastes nothing": (
        "group/steps.py",
        "end_member",
        "step_in_flight(run, arena, replica, 1).gone += 1",
        "pass",
    ),
    "a foreseen end has a row too many": (
        "group/members.py",
        "foresee_ends",
        "if request.member == MEMBER and request.max_tokens == request.output_tokens:",
        "if False:",
    ),
    "worst gap: one step too early": (
        "group/steps.py",
        "end_member",
        "request.max_gap_ns = max(request.max_gap_ns, worst_gap_after(arena, replica, request.joined_step))",
        "request.max_gap_ns = max(request.max_gap_ns, worst_gap_after(arena, replica, request.joined_step - 1))",
    ),
    "stack of gaps keeps the smaller": (
        "group/members.py",
        "push_gap",
        "while size > 0 and arena[gaps + 2 * size - 1] <= gap:",
        "while size > 0 and arena[gaps + 2 * size - 1] >= gap:",
    ),
    "a member ends one step late": (
        "group/members.py",
        "end_of",
        "return request.joined_step + request.output_tokens - (request.known_tokens - request.prompt_tokens)",
        "return 1 + request.joined_step + request.output_tokens - (request.known_tokens - request.prompt_tokens)",
    ),
    "full pool not noticed": (
        "group/steps.py",
        "fits",
        "if free < 0 or budget < 0 or not (whole or replica.mixed == 0):",
        "if free < -1 or budget < 0 or not (whole or replica.mixed == 0):",
    ),
    "context growth frozen in a stride": (
        "stride.py",
        "stride",
        "        context += members\n",
        "",
    ),
    "block boundary shifted in a stride": (
        "stride.py",
        "stride",
        "residues, residue = replica.residues, -(replica.usage.steps + ahead) % block_size",
        "residues, residue = replica.residues, (1 - replica.usage.steps - ahead) % block_size",
    ),
    "a stride forms before it delivers": (
        "stride.py",
        "stride",
        "last, limit = replica.last_commit_ns, min(commit_limit, deliver_ns)",
        "last, limit = replica.last_commit_ns, commit_limit",
    ),
    "a stride ends one step late": (
        "stride.py",
        "stride",
        "left = (arena[replica.ends] >> SLOT_BITS) - 1 - replica.usage.steps",
        "left = (arena[replica.ends] >> SLOT_BITS) - replica.usage.steps",
    ),
    "last freed block used first": (
        "blocks/pool.py",
        "take",
        "node = node_at(arena, replica.nodes, ENDS).next",
        "node = node_at(arena, replica.nodes, ENDS).previous",
    ),
    "the partly filled block hit, too": (
        "blocks/pool.py",
        "release",
        "request.run = new_node(arena, replica, OWNED - slot, full - shared)",
        "request.run = new_node(arena, replica, OWNED - slot, full - shared + (held > full))",
    ),
    "blocks freed head first": (
        "blocks/pool.py",
        "release",
        "for place in range(request.keys + shared - 1, request.keys - 1, -1):",
        "for place in range(request.keys, request.keys + shared):",
    ),
    "own blocks freed behind shared ones": (
        "blocks/pool.py",
        "release",
        "give(run, arena, replica, full - shared, HASHED, ENDS)",
        "give(run, arena, replica, full - shared, HASHED, node_at(arena, replica.nodes, ENDS).next)",
    ),
    "unhashed blocks never first": (
        "blocks/pool.py",
        "give_unhashed",
        "head = node_at(arena, replica.nodes, ENDS).next if run.unhashed_first != 0 else ENDS",
        "head = node_at(arena, replica.nodes, ENDS).next if False else ENDS",
    ),
    "the latest copy of a block hit": (
        "blocks/nodes.py",
        "add_copy",
        "its.later = first",
        "its.later = first\n    arena[first_at] = node",
    ),
    "a block forgotten with its first copy": (
        "blocks/nodes.py",
        "drop_key",
        "arena[first_at] = later",
        "arena[first_at] = NO_NODE",
    ),
    "a wholly cached prompt computes nothing again": (
        "prefix/copies.py",
        "hits",
        "for place in range(first, first + min(keys, (known - 1) // run.block_size)):",
        "for place in range(first, first + min(keys, known // run.block_size)):",
    ),
    "free hits cost nothing": (
        "prefix/copies.py",
        "hits",
        "free += node_at(arena, replica.nodes, node).count == 0",
        "free += 0",
    ),
    "half-filled blocks shared": (
        "prefix/copies.py",
        "share",
        "full = min(request.keyed, request.computed_tokens // block_size)",
        "full = min(request.keyed, (request.computed_tokens + 1) // block_size)",
    ),
    "warmed from the last prompt to the first": (
        "prefix/copies.py",
        "warm",
        "for row in range(run.rows):",
        "for row in range(run.rows - 1, -1, -1):",
    ),
    "hits of recomputed tokens count as saved": (
        "step/entry.py",
        "settle_in",
        "table[CACHED, row] += max(0, cached - request.high_water_tokens)",
        "table[CACHED, row] += cached",
    ),
    "who ends last is freed first": (
        "group/members.py",
        "note_ending",
        "while place > 0 and request_at(arena, replica.slots, arena[ending + place - 1]).place > its_place:",
        "while place > 0 and request_at(arena, replica.slots, arena[ending + place - 1]).place < its_place:",
    ),
    "rows of a closed group behind the others": (
        "group/opening.py",
        "close_group",
        "gone += arena[step.samples + place] == GONE\n        step.gone = step.sampled = 0",
        "gone += 0\n        step.gone = 0",
    ),
    "a common block is read once for ever": (
        "blocks/pool.py",
        "let_go",
        "replica.repeated -= 1",
        "pass",
    ),
    "near admissions: one too few": (
        "prefix/copies.py",
        "take_hits",
        "elif now - its.since <= run.near_admissions:",
        "elif now - its.since < run.near_admissions:",
    ),
    "a stride ignores that its head misses more of a whole prompt": (
        "stride.py",
        "stays_out",
        "can_lose = run.chunked == 0 or run.warm != 0 or run.host_blocks > 0",
        "can_lose = False or run.warm != 0 or run.host_blocks > 0",
    ),
    "a stride ignores that its head's hits have got a hole": (
        "stride.py",
        "stays_out",
        "can_lose = run.chunked == 0 or run.warm != 0 or run.host_blocks > 0",
        "can_lose = run.chunked == 0 or False or run.host_blocks > 0",
    ),
    "swapped requests come back in the order in which they left": (
        "swap.py",
        "swap_out",
        "if table[ARRIVAL, other] < table[ARRIVAL, row] or (\n            table[ARRIVAL, other] == table[ARRIVAL, row] and other < row\n        ):",
        "if True or (table[ARRIVAL, other] == table[ARRIVAL, row] and other < row):",
    ),
    "swapped requests ignore the watermark": (
        "swap.py",
        "may_return",
        "return rules.may_return(blocks, free, run.watermark, running)",
        "return rules.may_return(blocks, free, 0, running)",
    ),
    "copies cost nothing": (
        "swap.py",
        "with_copies",
        "if copied == 0:",
        "if True:",
    ),
    "blocks on the host count for ever": (
        "swap.py",
        "leave_host",
        "replica.host_free += blocks",
        "pass",
    ),
    "the queue overtakes swapped requests beside a group": (
        "group/steps.py",
        "form_grouped",
        "if all_back and replica.queued + replica.preempted > 0:",
        "if replica.queued + replica.preempted > 0:",
    ),
    "who comes back beside a group needs nothing": (
        "group/steps.py",
        "can_grow_on_return",
        "if blocks + need > free:",
        "if False:",
    ),
    "nobody comes back before a stride": (
        "stride.py",
        "stays_out",
        "return rules.ADMITTED if first_may_return(run, arena, replica, budget) else rules.WAIT_KV, NEVER",
        "return rules.WAIT_KV, NEVER",
    ),
    "victims: priority ignored": (
        "step/running.py",
        "standing_of",
        "return table[PRIORITY, row]",
        "return 0",
    ),
    "victims: who came first": (
        "step/running.py",
        "came_after",
        "return table[ARRIVAL, row] > table[ARRIVAL, other]",
        "return table[ARRIVAL, row] < table[ARRIVAL, other]",
    ),
    "victims: tie-break dropped": (
        "step/running.py",
        "came_after",
        "return row > other",
        "return row < other",
    ),
    "the host forgets the newest": (
        "blocks/host.py",
        "fit_host",
        "node = node_at(arena, replica.nodes, HOST_ENDS).next",
        "node = node_at(arena, replica.nodes, HOST_ENDS).previous",
    ),
    "the host keeps blocks that hold nothing": (
        "blocks/pool.py",
        "take",
        "if run.host_blocks > 0 and key != UNHASHED:",
        "if run.host_blocks > 0:",
    ),
    "what is loaded stays on the host": (
        "blocks/host.py",
        "forsake_key",
        "if node != NO_NODE:",
        "if False:",
    ),
    "own blocks on the host are lost": (
        "prefix/copies.py",
        "hits",
        "for node in (request.run, request.host_run):",
        "for node in (request.run,):",
    ),
    "loads cost nothing": (
        "swap.py",
        "with_copies",
        "copied = step.copied_blocks + step.loaded_blocks",
        "copied = step.copied_blocks",
    ),
    "clients of one instant in the wrong order": (
        "loop.py",
        "before",
        "return turn.client < later.client",
        "return turn.client > later.client",
    ),
    "clients go before what ends at their instant": (
        "loop.py",
        "serve",
        "code = advance(batcher, table, run, arena, costs, params, replica, now, now)",
        "code = advance(batcher, table, run, arena, costs, params, replica, now - 1, now)",
    ),
    "watermark forgotten": (
        "step/entry.py",
        "admission",
        "above = run.watermark if running > 0 else 0",
        "above = 0",
    ),
    "context read without the current token": (
        "step/rows.py",
        "put",
        "drafted.kv_tokens = rules.padded_context(end, request.padding_tokens, run.longest)",
        "drafted.kv_tokens = rules.padded_context(computed, request.padding_tokens, run.longest)",
    ),
    "clients: what ends is heard in the order of replicas": (
        "clients/serving.py",
        "ends_next",
        "if step.end_ns == now and replica.awaited_since_ns < since:",
        "if step.end_ns == now and best < 0:",
    ),
    "clients: events of an instant by client": (
        "clients/events.py",
        "comes_before",
        "if event.number != later.number:",
        "if False:",
    ),
    "clients: a loop's turns are events of their own": (
        "clients/events.py",
        "ready_at",
        "if event.time_ns == time and event.kind == IS_TURN + loop:",
        "if False:",
    ),
    "clients: requests are delivered after all else": (
        "clients/serving.py",
        "happen",
        "if not has_event or arena[run.sent_order + place] < event_at(arena, run.events, 0).number:",
        "if not has_event or False:",
    ),
    "clients: an answer that comes too late counts": (
        "clients/serving.py",
        "hear",
        "if seen_ns <= table[ARRIVAL, row] + run.timeout_ns:",
        "if True:",
    ),
    "clients: warm-up goes on before all are done": (
        "clients/sending.py",
        "hold_back",
        "if loop.held == loop.clients:",
        "if loop.held == 1:",
    ),
    "clients: rows of who gave up are wasted ones": (
        "step/ending.py",
        "abort",
        "cross_out(run, arena, replica, slot, ABORTED)",
        "cross_out(run, arena, replica, slot, GONE)",
    ),
    "clients: who gave up was always seen by the scheduler": (
        "step/ending.py",
        "abandon",
        "if fresh:",
        "if False:",
    ),
    "pipeline: the next token before the last is known": (
        "step/running.py",
        "grow",
        "if request.stage != RUNNING or (run.stages > 1 and awaited_tokens(request) > 0):",
        "if request.stage != RUNNING:",
    ),
    "pipeline: a step overtakes the one before": (
        "step/forming.py",
        "enter_pipeline",
        "step.end_ns = max(step.end_ns, before.end_ns + stage_ns)",
        "pass",
    ),
    "pipeline: the first stage is always free": (
        "step/forming.py",
        "enter_pipeline",
        "begin = max(now, replica.stage_free_ns)",
        "begin = now",
    ),
    "sarathi: blocks of the first chunk alone": (
        "batchers/sarathi.py",
        "draft",
        "admit_waiting(batcher, table, run, arena, replica, step, True, False, now)",
        "admit_waiting(batcher, table, run, arena, replica, step, False, False, now)",
    ),
    "trtllm: admits what it may have to evict": (
        "batchers/trtllm.py",
        "guaranteed_no_evict",
        "admit_waiting(batcher, table, run, arena, replica, step, False, True, now)",
        "admit_waiting(batcher, table, run, arena, replica, step, False, False, now)",
    ),
    "trtllm: others enter in a step that paused someone": (
        "batchers/trtllm.py",
        "max_utilization",
        "if step.preempted == 0:",
        "if True:",
    ),
    "orca: admits without a place for the longest answer": (
        "batchers/orca.py",
        "draft",
        "admit_waiting(batcher, table, run, arena, replica, step, False, True, now)",
        "admit_waiting(batcher, table, run, arena, replica, step, False, False, now)",
    ),
    "vllm_v0: no spare block": (
        "batchers/vllm_v0.py",
        "draft",
        "grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, batcher.spare_blocks, now)",
        "grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)",
    ),
    "vllm_v0: decodes in the order of admission": (
        "batchers/vllm_v0.py",
        "sort_by_arrival",
        "while hole > first and came_before(table, arena, replica, slot, arena[hole - 1]):",
        "while False:",
    ),
    "static: who has ended costs nothing": (
        "batchers/static.py",
        "go_on",
        "step.idle_rows += 1",
        "pass",
    ),
    "static: rows without their padding": (
        "batchers/static.py",
        "begin",
        "settle_in(batcher, table, run, arena, replica, step, -1, first, want, hit, hold, prompt - own, now)",
        "settle_in(batcher, table, run, arena, replica, step, -1, first, want, hit, hold, 0, now)",
    ),
    "static: padded to the longest of all who wait": (
        "batchers/static.py",
        "begin",
        "while count < min(replica.queued, run.max_num_seqs):",
        "while count < replica.queued:",
    ),
    "static: a row may hold more than the longest sequence": (
        "batchers/static.py",
        "begin",
        "longest = min(longest_prompt + longest_answer, run.longest)",
        "longest = longest_prompt + longest_answer",
    ),
    "static: a row that has ended reads more than the longest sequence": (
        "batchers/static.py",
        "go_on",
        "step.idle_kv_tokens += rules.padded_context(request.computed_tokens, request.padding_tokens, run.longest)",
        "step.idle_kv_tokens += rules.padded_context(request.computed_tokens, request.padding_tokens, NO_LIMIT)",
    ),
    "static: a row reads more than the longest sequence": (
        "step/rows.py",
        "put",
        "drafted.kv_tokens = rules.padded_context(end, request.padding_tokens, run.longest)",
        "drafted.kv_tokens = rules.padded_context(end, request.padding_tokens, NO_LIMIT)",
    ),
    "static: nothing stays free beside a batch": (
        "batchers/static.py",
        "begin",
        "if count > 0 and (count + 1) * blocks > replica.free_blocks - run.watermark:",
        "if count > 0 and (count + 1) * blocks > replica.free_blocks:",
    ),
    "static: those left out wait for a step": (
        "batchers/static.py",
        "begin",
        "turn_away(replica, step, rules.WAIT_KV)",
        "pass",
    ),
    "peaks: who was preempted does not wait": (
        "step/forming.py",
        "note_peaks",
        "replica.usage.waiting_peak = max(replica.usage.waiting_peak, all_waiting(replica))",
        "replica.usage.waiting_peak = max(replica.usage.waiting_peak, replica.queued)",
    ),
    "log: blocks held when the step has ended": (
        "step/ending.py",
        "book_step",
        "arena[log + 7] = step.kv_blocks",
        "arena[log + 7] = replica.usable_blocks - replica.free_blocks",
    ),
    "log: who waits when the step has ended": (
        "step/ending.py",
        "book_step",
        "arena[log + 6] = step.waiting",
        "arena[log + 6] = replica.queued + replica.preempted + replica.swapped",
    ),
    "static: patience of the last who came": (
        "batchers/static.py",
        "draft",
        "patience_ends_ns = oldest_arrival(table, run, arena, replica) + batcher.max_wait_ns",
        "patience_ends_ns = now + batcher.max_wait_ns",
    ),
    "partial prefills: long prompts in the queue's order": (
        "batchers/partial_prefills.py",
        "choose",
        "if long_places <= 0:",
        "if False:",
    ),
    "partial prefills: shares of newcomers alone": (
        "batchers/partial_prefills.py",
        "draft",
        "share = max(1, step.budget // max(1, partial + chosen))",
        "share = max(1, step.budget // max(1, chosen))",
    ),
    "sglang: nothing is reserved": (
        "batchers/sglang.py",
        "prefill",
        "if not alone and free - reserved < missing + more:",
        "if not alone and free < missing + more:",
    ),
    "sglang: tried again though the batch is full": (
        "batchers/sglang.py",
        "prefill",
        "if replica.full_since == replica.left and count > 0:",
        "if False:",
    ),
    "sglang: the ratio stays": (
        "batchers/sglang.py",
        "ratio_of",
        "return replica.ratio if replica.ratio_is_set != 0 else batcher.start",
        "return batcher.start",
    ),
    "sglang: sent back to where the key says": (
        "batchers/sglang.py",
        "retract",
        "preempt(table, run, arena, replica, step, slot, True, now)",
        "preempt(table, run, arena, replica, step, slot, False, now)",
    ),
    "sglang: whoever has most output is sent back": (
        "batchers/sglang.py",
        "goes_sooner",
        "return request.generated_tokens < other.generated_tokens",
        "return request.generated_tokens > other.generated_tokens",
    ),
    "prefill share: as much as decodes leave": (
        "batchers/capped.py",
        "prefill",
        "left = min(step.budget, most)",
        "left = step.budget",
    ),
    "slo chunk: the target of the last alone": (
        "batchers/capped.py",
        "largest_chunk",
        "limit_ns = min(limit_ns, tpot_ns)",
        "limit_ns = tpot_ns",
    ),
    "slo chunk: half of who decodes": (
        "batchers/capped.py",
        "largest_chunk",
        "took_ns = profiled_step_ns(costs, params, percent, decodes, kv_tokens, chunk, context + chunk)",
        "took_ns = profiled_step_ns(costs, params, percent, decodes // 2, kv_tokens, chunk, context + chunk)",
    ),
    "multi-step: steps in between call the scheduler, too": (
        "batchers/multi_step.py",
        "draft",
        "step.saved_ns = batcher.saved_ns",
        "pass",
    ),
    "multi-step: one step more": (
        "batchers/multi_step.py",
        "draft",
        "replica.carried = 0 if step.chunks > 0 or running == 0 else batcher.n - 1",
        "replica.carried = 0 if step.chunks > 0 or running == 0 else batcher.n",
    ),
    "reserve predicted: nothing": (
        "batchers/reserving.py",
        "draft",
        "if not admit(batcher, table, run, arena, replica, step, slot, row, known, NO_LIMIT, hold, now):",
        "if not admit(batcher, table, run, arena, replica, step, slot, row, known, NO_LIMIT, 0, now):",
    ),
    "reserve predicted: tokens that are made still to come": (
        "batchers/reserving.py",
        "reserved",
        "hold = policy_rules.reserved_tokens(left, batcher.margin, most, generated, known)",
        "hold = policy_rules.reserved_tokens(left, batcher.margin, most, 0, known)",
    ),
    "orders: a step changes no counter of tenants": (
        "orders/vtc.py",
        "ran",
        "arena[served + request_at(arena, replica.slots, slot).tenant_id] += order.output_weight",
        "pass",
    ),
    "orders: the group changes no counter of tenants": (
        "orders/vtc.py",
        "strode",
        "arena[replica.served + tenant] += order.output_weight * steps * members",
        "pass",
    ),
    "orders: no lift": (
        "orders/vtc.py",
        "joined",
        "if least < NEVER:",
        "if False:",
    ),
    "orders: who is preempted is charged again": (
        "orders/vtc.py",
        "left",
        "if entered and table[PREEMPTIONS, row] == 0:",
        "if entered:",
    ),
    "orders: who ended while it waited still waits": (
        "orders/vtc.py",
        "left",
        "arena[replica.queued_of + tenant] -= 1",
        "arena[replica.queued_of + tenant] -= entered",
    ),
    "orders: looks one step late": (
        "orders/goodput_first.py",
        "look_again",
        "if formed - replica.memory >= order.review_steps:",
        "if formed - replica.memory > order.review_steps:",
    ),
    "orders: strides are no steps": (
        "orders/goodput_first.py",
        "strode",
        "replica.memory += looks * order.review_steps",
        "pass",
    ),
    "orders: hits of the time of joining": (
        "orders/longest_prefix.py",
        "look_again",
        "if not ((in_turn and many) or run.caching == 0) or replica.late >= 0:",
        "if not ((in_turn and many) or True) or replica.late >= 0:",
    ),
    "orders: most waiting ignored": (
        "orders/longest_prefix.py",
        "look_again",
        "in_turn, many = replica.memory != 0, waiting(replica) > order.most_waiting",
        "in_turn, many = replica.memory != 0, False",
    ),
    "orders: what is left is what was predicted": (
        "orders/srpt.py",
        "aged_size",
        "known, computed, generated = request.known_tokens, request.computed_tokens, request.generated_tokens",
        "known, computed, generated = request.known_tokens, request.computed_tokens, 0",
    ),
    "orders: who is sent to the back stands where its key says": (
        "orders/common.py",
        "take_back_in",
        "if entry.child != 0:",
        "if False:",
    ),
    "orders: a tenant's second never comes up": (
        "orders/vtc.py",
        "lifted",
        "if following >= 0:",
        "if False:",
    ),
    "orders: counters of the time of joining": (
        "orders/vtc.py",
        "bring_up",
        "if not fresh:",
        "if False:",
    ),
    "orders: of a tenant, who came back first is first": (
        "orders/vtc.py",
        "stand",
        "if table[ARRIVAL, first] < table[ARRIVAL, row] or (\n            table[ARRIVAL, first] == table[ARRIVAL, row] and first < row\n        ):",
        "if True or (table[ARRIVAL, first] == table[ARRIVAL, row] and first < row):",
    ),
    "orders: tenants are never off the list": (
        "orders/vtc.py",
        "strode",
        "            arena[replica.listed + tenant] = 0\n",
        "",
    ),
    "orders: who was in time stays so": (
        "orders/goodput_first.py",
        "catch_up",
        "judged = level == 0",
        "judged = True",
    ),
    "orders: who is at the top is judged as of now": (
        "orders/goodput_first.py",
        "catch_up",
        "level, value = key_of(order, table, run, arena, replica, row, entry.slot, replica.tail)",
        "level, value = key_of(order, table, run, arena, replica, row, entry.slot, now)",
    ),
    "orders: who was sent to the back stays there": (
        "orders/common.py",
        "call_late",
        "if waits_by_key(run, arena, row):",
        "if False:",
    ),
    "ranks: taken from the middle: the wrong link is mended": (
        "queue.py",
        "take_out",
        "if entry_at(arena, run.queue, before).child == row:",
        "if True:",
    ),
    "ranks: taken from the middle: who follows is not told": (
        "queue.py",
        "take_out",
        "entry_at(arena, run.queue, after).before = before",
        "pass",
    ),
    "ranks: taken from the middle: the children are lost": (
        "queue.py",
        "take_out",
        "if children >= 0:",
        "if False:",
    ),
    "ranks: a new child, and the old one is not told": (
        "queue.py",
        "meld",
        "entry_at(arena, run.queue, child).before = other",
        "pass",
    ),
    "ranks: a timer is not set again": (
        "orders/learned_rank.py",
        "look_again",
        "set_timer(run, arena, replica, row, mark_at(arena, run.marks, row).last_ran)",
        "pass",
    ),
    "ranks: who waits does not starve": (
        "orders/learned_rank.py",
        "look_again",
        "until = formed(replica) - order.starvation",
        "until = -1",
    ),
    "ranks: rescued in the order of their waits": (
        "orders/mlfq.py",
        "bring_out_starved",
        "entry_at(arena, run.queue, row).rank = IN_ORDER",
        "entry_at(arena, run.queue, row).rank = IN_ORDER\n                entry_at(arena, run.queue, row).level = since",
    ),
    "ranks: rescued once": (
        "orders/mlfq.py",
        "look_again",
        "        set_timer(run, arena, replica, row, now)\n",
        "",
    ),
    "ranks: who was rescued stays where it waited": (
        "orders/mlfq.py",
        "look_again",
        "row = pop_from(run, arena, replica.starved)\n        starved = rescue(order, run, arena, replica, row, now) or starved",
        "row = pop_from(run, arena, replica.starved)",
    ),
    "orders: static: the tenant's next is not seen": (
        "batchers/static.py",
        "begin",
        "        lifted(batcher.order, table, run, arena, replica, row)\n",
        "",
    ),
    "orders: partial prefills: the tenant's next is not seen": (
        "batchers/partial_prefills.py",
        "choose",
        "        lifted(batcher.order, table, run, arena, replica, row)\n",
        "",
    ),
    "ranks: who has made no token is displaced": (
        "batchers/ranked.py",
        "last_behind",
        "if request.stage != RUNNING or request.known_tokens <= request.entered_tokens:",
        "if request.stage != RUNNING:",
    ),
    "ranks: a list of two runs is merged with the later first": (
        "batchers/ranked.py",
        "merge",
        "from_right = left == middle or (right < high and is_behind(run, arena, replica, listed + left, listed + right))",
        "from_right = left == middle or (\n            right < high and not is_behind(run, arena, replica, listed + left, listed + right)\n        )",
    ),
    "ranks: equal keys, the later row first": (
        "batchers/ranked.py",
        "is_behind",
        "return row_listed(arena, replica, place) > row_listed(arena, replica, other)",
        "return row_listed(arena, replica, place) < row_listed(arena, replica, other)",
    ),
    "ranks: who ranks ahead is displaced": (
        "batchers/ranked.py",
        "last_behind",
        "return place if comes_after(its_level, its_value, its_row, level, value, row) else -1",
        "return place",
    ),
    "ranks: the first who runs gives way": (
        "batchers/ranked.py",
        "last_of_all",
        "if comes_after(its_level, its_value, its_row, level, value, row):",
        "if False:",
    ),
    "ranks: who is displaced leaves more than he held": (
        "batchers/ranked.py",
        "displace",
        "free += held_blocks(run, request_at(arena, replica.slots, arena[run.scratch + end]))",
        "free += 1 + held_blocks(run, request_at(arena, replica.slots, arena[run.scratch + end]))",
    ),
    "ranks: swapped requests displace nobody": (
        "batchers/ranked.py",
        "go_on",
        "if not displace(batcher, table, run, arena, replica, step, slot, row, known, now):",
        "if True:",
    ),
    "ranks: who is displaced counts as short of memory": (
        "batchers/ranked.py",
        "displace",
        "for _ in range(chosen):\n        end = last_behind(batcher, table, run, arena, replica, step, level, value, row, end, now)",
        "for _ in range(chosen):\n        end = last_behind(batcher, table, run, arena, replica, step, level, value, row, end, now)\n        step.preempted = 1",
    ),
    "ranks: who loses its place is in the queue at once": (
        "orders/fixed.py",
        "",
        "page(FixedRanked, key_of, late_key_of)",
        "page(FixedRanked, key_of, late_key_of, catch_up=is_sorted)",
    ),
    "ranks: nobody is rescued": (
        "orders/mlfq.py",
        "rescue",
        "if now - mark.stepped_ns < order.starvation_ns:",
        "if now - mark.stepped_ns < NEVER:",
    ),
    "ranks: all quanta alike": (
        "orders/mlfq.py",
        "ran",
        "if level < order.levels - 1 and mark.attained_ns > rules.quantum_ns(order.quantum_ns, level):",
        "if level < order.levels - 1 and mark.attained_ns > order.quantum_ns:",
    ),
    "ranks: nobody skips a level": (
        "orders/mlfq.py",
        "joined",
        "mark.level = 1 + rules.first_level(prefill_ns, order.quantum_ns, order.levels)",
        "mark.level = 1",
    ),
    "ranks: swapped requests can not starve": (
        "orders/common.py",
        "inside",
        "return replica.running + replica.swapped",
        "return replica.running",
    ),
    "ranks: promoted for ever": (
        "orders/learned_rank.py",
        "ran",
        "mark.promoted = max(0, mark.promoted - 1)",
        "mark.promoted = mark.promoted",
    ),
    "ranks: nobody is promoted": (
        "orders/learned_rank.py",
        "starves",
        "mark.promoted = order.period",
        "mark.promoted = 0",
    ),
    "ranks: two who wait join the group": (
        "batchers/ranked_group.py",
        "may_group",
        "if run.caching != 0 or run.answers > 0 or replica.swapped > 0 or waiting(replica) > 1:",
        "if run.caching != 0 or run.answers > 0 or replica.swapped > 0:",
    ),
    "ranks: a group whose prompts are cut": (
        "batchers/ranked_group.py",
        "all_fit",
        "return free >= 0 and budget >= 0 and prompts <= MOST_PROMPTS",
        "return free >= 0 and prompts <= MOST_PROMPTS",
    ),
    "ranks: the one who waits needs no memory": (
        "batchers/ranked_group.py",
        "all_fit",
        "if not rules.has_memory(must_fit, 0, 0, block_size, free, above):",
        "if False:",
    ),
    "victims: most KV": (
        "step/running.py",
        "standing_of",
        "return -request.computed_tokens",
        "return request.computed_tokens",
    ),
    "victims: a deadline kept still counts": (
        "step/running.py",
        "standing_of",
        "if table[DEADLINE, row] < 0 or (request.generated_tokens > 0 and not at_end):",
        "if table[DEADLINE, row] < 0 or False:",
    ),
    "victims: decoding takes no time": (
        "step/running.py",
        "standing_of",
        "cost += decode_ns(run.decode_ns, run.decode_token, request.prompt_tokens, left)",
        "decode_ns(run.decode_ns, run.decode_token, request.prompt_tokens, left)",
    ),
    "victims: copied there and not back": (
        "step/running.py",
        "is_worth_a_swap",
        "there_and_back = copy_ns(2 * blocks, run.copy_ns, run.block_bytes, run.link_rate)",
        "there_and_back = copy_ns(blocks, run.copy_ns, run.block_bytes, run.link_rate)",
    ),
    "equal keys: later rows first": (
        "queue.py",
        "goes_before",
        "return row < other",
        "return row > other",
    ),
    "levels of keys ignored": (
        "queue.py",
        "goes_before",
        "if one.rank == IN_ORDER and one.level != two.level:",
        "if False:",
    ),
    "preempted requests first in every ordering": (
        "queue.py",
        "rejoin",
        "elif run.preempted_go_first != 0:",
        "elif True:",
    ),
    "arrival counts the wrong way round": (
        "queue.py",
        "join",
        "value = entry_at(arena, run.queue, row).base + run.slope * table[ARRIVAL, row]",
        "value = entry_at(arena, run.queue, row).base - run.slope * table[ARRIVAL, row]",
    ),
    "a pair of the heap lost": (
        "queue.py",
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


LONGEST_CASE_S = 20
"""a case takes a second; a mutant that waits for ever is one that the law has noticed"""


def _hangs(*_) -> None:
    raise TimeoutError(f"no end after {LONGEST_CASE_S} s")


def concerns(file: str, case: Compared) -> bool:
    """Does a case run what was broken, where that is one ordering's own?"""
    return not file.startswith("orders/") or Path(file).stem in ("common", "fixed", case.case.servers["ordering"])


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
