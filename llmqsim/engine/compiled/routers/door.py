"""The door before the router: admission policies in arrays. Arguments as in step/."""

from __future__ import annotations

from llmqsim.engine.compiled.columns import (
    DEADLINE,
    FINISH,
    MAX_TOKENS,
    OUTCOME,
    PROMPT_TOKENS,
    REASON,
    REJECTED,
    REPLICA_OF,
)
from llmqsim.engine.compiled.world.router import (
    BUCKET,
    CAP_IN_FLIGHT,
    CAP_WAITING,
    OPEN,
    end_at,
    line_at,
    report_at,
    router_at,
)
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules
from llmqsim.requests import UNSET


@kernel
def admit(table, run, arena, costs, row, now):
    """May a request that arrives now enter? If not, its outcome is written."""
    router = router_at(arena, run.router)
    door = router.door
    if door == OPEN:
        return True
    if door == BUCKET:
        enters = draw_from_bucket(table, run, arena, costs, row, now)
    elif door == CAP_IN_FLIGHT:
        enters = in_flight(run, arena) < router.most
    elif door == CAP_WAITING:
        enters = waiting(run, arena) <= router.most
    else:
        enters = keeps_deadline(table, run, arena, costs, row, now)
    if not enters:
        table[OUTCOME, row] = REJECTED
        table[REASON, row] = router.reason
    router.seen_ns = max(router.seen_ns, now)
    return enters


@kernel
def in_flight(run, arena):
    """Requests that were let in and have not finished."""
    total = 0
    for index in range(run.replicas):
        total += arena[run.outstanding + index]
    return total


@kernel
def waiting(run, arena):
    """Of these, who waits for a replica, as reported."""
    total = 0
    for index in range(run.replicas):
        total += report_at(arena, router_at(arena, run.router).reports, index).waiting
    return total


@kernel
def draw_from_bucket(table, run, arena, costs, row, now):
    """Fill the bucket by the time that has passed, and take what the request needs, if that is in it."""
    router = router_at(arena, run.router)
    rate, burst, held = router.limits, router.limits + 1, router.limits + 2
    costs[held] = policy_rules.refilled(costs[held], costs[rate], costs[burst], now - router.filled_ns)
    router.filled_ns = now
    asked = 1 if router.most == 0 else table[PROMPT_TOKENS, row] + table[MAX_TOKENS, row]
    if costs[held] < asked:
        return False
    costs[held] -= asked
    return True


@kernel
def keeps_deadline(table, run, arena, costs, row, now):
    """Would a request be in time behind those who wait, at the rate at which requests have finished of late?"""
    router = router_at(arena, run.router)
    limits, left_ns = router.limits, table[DEADLINE, row]
    finished, ahead = finished_of_late(run, arena, now - router.window_ns), waiting(run, arena)
    if left_ns == UNSET or finished == 0 or ahead == 0:
        return True
    window_ns = min(costs[limits], float(now))
    return policy_rules.is_in_time(ahead, finished, window_ns, costs[limits + 1], left_ns)


@kernel
def finished_of_late(run, arena, since_ns):
    """Requests that have finished after this time. It does not go back from one question to the next."""
    router, total = router_at(arena, run.router), 0
    for index in range(run.replicas):
        line = line_at(arena, router.ends, index)
        while line.first_row >= 0 and end_at(arena, router_at(arena, run.router).ended, line.first_row).time_ns <= since_ns:
            line.first_row = end_at(arena, router_at(arena, run.router).ended, line.first_row).next_row
            line.count -= 1
        total += line.count
    return total


@kernel
def note_end(table, run, arena, row):
    """A request has finished; of each replica they come in their order."""
    line, end = (
        line_at(arena, router_at(arena, run.router).ends, table[REPLICA_OF, row]),
        end_at(arena, router_at(arena, run.router).ended, row),
    )
    end.time_ns, end.next_row = table[FINISH, row] - run.after_ns, -1
    if line.first_row < 0:
        line.first_row = row
    else:
        end_at(arena, router_at(arena, run.router).ended, line.last_row).next_row = row
    line.last_row = row
    line.count += 1
