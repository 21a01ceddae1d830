"""The door before the router: admission policies in arrays. Arguments as in step/."""

from __future__ import annotations

from llmqsim.engine.compiled.columns import DEADLINE, FINISH, MAX_TOKENS, OUTCOME, PROMPT_TOKENS, REASON, REJECTED, REPLICA_OF
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.routers.layout import *  # noqa: F403
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules
from llmqsim.requests import UNSET


@kernel
def admit(table, arena, costs, row, now):
    """May a request that arrives now enter? If not, its outcome is written."""
    router = arena[G_ROUTER]
    door = arena[router + F_DOOR]
    if door == OPEN:
        return True
    if door == BUCKET:
        enters = draw_from_bucket(table, arena, costs, row, now)
    elif door == CAP_IN_FLIGHT:
        enters = in_flight(arena) < arena[router + F_MOST]
    elif door == CAP_WAITING:
        enters = waiting(arena) <= arena[router + F_MOST]
    else:
        enters = keeps_deadline(table, arena, costs, row, now)
    if not enters:
        table[OUTCOME, row] = REJECTED
        table[REASON, row] = arena[router + F_REASON]
    arena[router + F_SEEN_NS] = max(arena[router + F_SEEN_NS], now)
    return enters


@kernel
def in_flight(arena):
    """Requests that were let in and have not finished."""
    total = 0
    for index in range(arena[G_REPLICAS]):
        total += arena[arena[G_OUTSTANDING] + index]
    return total


@kernel
def waiting(arena):
    """Of these, who waits for a replica, as reported."""
    total = 0
    for index in range(arena[G_REPLICAS]):
        total += arena[arena[arena[G_ROUTER] + F_REPORTS] + index * REPORT + P_WAITING]
    return total


@kernel
def draw_from_bucket(table, arena, costs, row, now):
    """Fill the bucket by the time that has passed, and take what the request needs, if that is in it."""
    router = arena[G_ROUTER]
    rate, burst, held = arena[router + F_LIMITS], arena[router + F_LIMITS] + 1, arena[router + F_LIMITS] + 2
    costs[held] = policy_rules.refilled(costs[held], costs[rate], costs[burst], now - arena[router + F_FILLED_NS])
    arena[router + F_FILLED_NS] = now
    asked = 1 if arena[router + F_MOST] == 0 else table[PROMPT_TOKENS, row] + table[MAX_TOKENS, row]
    if costs[held] < asked:
        return False
    costs[held] -= asked
    return True


@kernel
def keeps_deadline(table, arena, costs, row, now):
    """Would a request be in time behind those who wait, at the rate at which requests have finished of late?"""
    router = arena[G_ROUTER]
    limits, left_ns = arena[router + F_LIMITS], table[DEADLINE, row]
    finished, ahead = finished_of_late(arena, now - arena[router + F_WINDOW_NS]), waiting(arena)
    if left_ns == UNSET or finished == 0 or ahead == 0:
        return True
    window_ns = min(costs[limits], float(now))
    return policy_rules.is_in_time(ahead, finished, window_ns, costs[limits + 1], left_ns)


@kernel
def finished_of_late(arena, since_ns):
    """Requests that have finished after this time. It does not go back from one question to the next."""
    router, total = arena[G_ROUTER], 0
    for index in range(arena[G_REPLICAS]):
        line = arena[router + F_ENDS] + index * LINE
        while arena[line + E_FIRST] >= 0 and arena[end_at(arena, arena[line + E_FIRST])] <= since_ns:
            arena[line + E_FIRST] = arena[end_at(arena, arena[line + E_FIRST]) + 1]
            arena[line + E_COUNT] -= 1
        total += arena[line + E_COUNT]
    return total


@kernel
def end_at(arena, row):
    """Where it is noted when a request has finished, and which one its replica finished next (-1: none yet)."""
    return arena[arena[G_ROUTER] + F_ENDS] + arena[G_REPLICAS] * LINE + 2 * row


@kernel
def note_end(table, arena, row):
    """A request has finished; of each replica they come in their order."""
    line, at = arena[arena[G_ROUTER] + F_ENDS] + table[REPLICA_OF, row] * LINE, end_at(arena, row)
    arena[at], arena[at + 1] = table[FINISH, row] - arena[G_AFTER_NS], -1
    if arena[line + E_FIRST] < 0:
        arena[line + E_FIRST] = row
    else:
        arena[end_at(arena, arena[line + E_LAST]) + 1] = row
    arena[line + E_LAST] = row
    arena[line + E_COUNT] += 1
