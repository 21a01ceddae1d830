"""Mistakes in the compiled pools, each in one place: name -> (file, the right source, the wrong one). See mutate.py."""

from __future__ import annotations

SPLIT_MUTATIONS: dict[str, tuple[str, str, str]] = {
    "pools: a run that was found stays whole": (
        "split/blocks/kernels.py",
        "arena[place + N_COUNT] -= hits\n",
        "pass\n",
    ),
    "pools: blocks that hold nothing always last": (
        "split/blocks/kernels.py",
        "if arena[at + R_UNHASHED_FIRST] != 0 else ENDS",
        "if False else ENDS",
    ),
    "pools: an owner is not told of a run that is used up": (
        "split/blocks/kernels.py",
        "state[arena[place + N_OWNER], S_RUN] = NO_RUN",
        "pass",
    ),
    "pools: a preempted request finds nothing": (
        "split/replica/kernels.py",
        "state[row, S_COMPUTED] // arena[at + R_BLOCK_SIZE], row)",
        "0, row)",
    ),
    "pools: who was preempted or whose KV is to come does not wait": (
        "split/replica/kernels.py",
        "max(arena[at + U_WAITING_PEAK], arena[step + T_WAITING])",
        "max(arena[at + U_WAITING_PEAK], arena[at + R_QUEUED])",
    ),
    "pools: the log has the blocks held when the step has ended": (
        "split/commit/kernels.py",
        "log[entry, 7] = arena[step + T_BLOCKS]",
        "log[entry, 7] = arena[at + R_USABLE] - arena[at + R_FREE]",
    ),
    "pools: hits are taken for free": (
        "split/entry/kernels.py",
        "rules.has_memory(must_fit, hits, hits, size",
        "rules.has_memory(must_fit, hits, 0, size",
    ),
    "pools: hits are not counted": (
        "split/entry/kernels.py",
        "arena[step + T_CACHED] += hits * size\n",
        "pass\n",
    ),
    "pools: a wait before the prompt is forgotten": (
        "split/trips/kernels.py",
        "state[row, S_WAIT + reason] += state[row, S_WAITED + reason]",
        "pass",
    ),
    "pools: a wait before the prompt is told at once": (
        "split/entry/kernels.py",
        "state[row, S_WAITED + reason], state[row, S_WAIT + reason] = state[row, S_WAIT + reason], 0",
        "pass",
    ),
    "pools: a block is sent before it is full": (
        "split/trips/kernels.py",
        "if tokens >= prompt else tokens // size",
        "if tokens >= prompt else rules.blocks_for(tokens, size)",
    ),
    "pools: chunks go when their step is formed": (
        "split/step/kernels.py",
        "arena[place], arena[place + 1] = row, end",
        "arena[place], arena[place + 1] = row, computed",
    ),
    "pools: all layers go at the end": (
        "split/links/kernels.py",
        "over_links(table, marks, arena, row, start, body, first)",
        "over_links(table, marks, arena, row, now, body, first)",
    ),
    "pools: chunks of a preempted prompt are sent": (
        "split/kernels.py",
        "if state[row, S_STAGE] == RUNNING or state[row, S_STAGE] == LENT:",
        "if state[row, S_STAGE] != FINISHED:",
    ),
    "pools: an answer of one token keeps its blocks where it would decode": (
        "split/trips/kernels.py",
        "release(arena, state, taker, state[row, S_TAKEN], 0, OF_NOBODY)",
        "pass",
    ),
    "pools: a prompt starts without the way to its engine": (
        "split/trips/kernels.py",
        "due = table[ARRIVAL, row] + arena[G_BEFORE_NS]",
        "due = now",
    ),
    "pools: a lease ends what is being read": (
        "split/trips/kernels.py",
        "if state[row, S_COMING] == EXPECTED:\n        state[row, S_COMING] = OWN",
        "if state[row, S_COMING] != OWN:\n        state[row, S_COMING] = OWN",
    ),
    "pools: an expired prompt is expected still": (
        "split/trips/kernels.py",
        "        state[row, S_COMING] = OWN\n        marks[BECAME, row] = EXPIRED",
        "        marks[BECAME, row] = EXPIRED",
    ),
    "pools: a prompt at the limit stays": (
        "split/trips/kernels.py",
        "if state[row, S_PROMPT] < arena[G_LEAST_PROMPT]:",
        "if state[row, S_PROMPT] <= arena[G_LEAST_PROMPT]:",
    ),
    "pools: a short prompt is not counted where it goes": (
        "split/trips/kernels.py",
        "arena[replica_at(arena, first + best) + R_OUTSTANDING] += 1",
        "arena[replica_at(arena, first + best) + R_OUTSTANDING] += pool",
    ),
    "pools: the first token comes with the prompt": (
        "split/commit/kernels.py",
        "if arena[G_FIRST_TOKEN] != FROM_PREFILL:",
        "if arena[G_FIRST_TOKEN] == FROM_DECODE:",
    ),
    "pools: steps that end together end by number": (
        "split/kernels.py",
        "if arena[at + R_AWAITED_SINCE] < since:",
        "if best < 0:",
    ),
    "pools: who was woken forms last": (
        "split/kernels.py",
        "index = 0  # a prompt",
        "pass  # a prompt",
    ),
    "pools: a client comes back without a thought": (
        "split/kernels.py",
        "seen + arena[G_TURNAROUND_NS] + table[THINK, row]",
        "seen + arena[G_TURNAROUND_NS]",
    ),
    "pools: clients of one instant in any order": (
        "split/events/kernels.py",
        "or (arena[one] == time and arena[one + 1] < what)",
        "or (arena[one] == time and arena[one + 1] > what)",
    ),
    "pools: transfers don't queue": (
        "split/links/kernels.py",
        "begin = max(asked, arena[at + K_FREE_NS])",
        "begin = asked",
    ),
    "pools: what was asked for in any order": (
        "split/events/kernels.py",
        "arena[start + at - 1] > row:",
        "arena[start + at - 1] < row:",
    ),
    "pools: equal gaps of two classes are one": (
        "split/commit/kernels.py",
        "if gap != same_gap or state[row, S_CLASS] != class_id:",
        "if gap != same_gap:",
    ),
    "pools: a place under the cap is free at once": (
        "split/kernels.py",
        "push(arena, G_TURNS, seen + arena[G_TURNAROUND_NS], 0)",
        "push(arena, G_TURNS, seen, 0)",
    ),
    "pools: the cap lets one more in": (
        "split/kernels.py",
        "arena[G_IN_USE] < arena[G_CAP]:",
        "arena[G_IN_USE] <= arena[G_CAP]:",
    ),
}
