"""Laws of the client side over random scenarios (docs/laws.md): who is in flight, who follows whom, who gives up when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from llmqsim.requests import UNSET, Outcome
from tests.laws.client_cases import ClientCase, client_cases

SHORT = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))


def check_requests(case: ClientCase) -> None:
    table = case.run().table
    assert sum(int((table.outcome == o).sum()) for o in Outcome) == len(table)
    assert (table.arrival_ns >= 0).all() and (table.outcome != Outcome.UNFINISHED).all()
    assert ((table.outcome == Outcome.TIMED_OUT) == (table.gave_up_ns != UNSET)).all()
    assert ((table.outcome == Outcome.COMPLETED) == (table.finish_ns != UNSET)).all()


def check_tokens(case: ClientCase) -> None:
    cluster = case.run()
    table = cluster.table
    done = table.outcome == Outcome.COMPLETED
    assert (table.generated_tokens[done] == table.output_tokens[done]).all()
    gave_up = table.outcome == Outcome.TIMED_OUT
    assert (table.generated_tokens <= table.output_tokens).all()
    # answered by the engine, but not in time for the client
    late = gave_up & (table.generated_tokens == table.output_tokens)
    ended = done | late
    first_time = int((table.prompt_tokens + table.output_tokens - 1 - table.cached_tokens)[ended].sum())
    usage = [r.usage for r in cluster.replicas]
    lost = sum(u.recomputed_tokens + u.wasted_rows + u.aborted_tokens for u in usage)
    assert sum(u.tokens for u in usage) == first_time + lost


def check_blocks(case: ClientCase) -> None:
    for replica in case.run().replicas:
        assert replica.pool.held_blocks == 0
        assert not replica.running and not replica.swapped and len(replica.queue) == 0


def check_in_flight(case: ClientCase) -> None:
    table = case.run().table
    end, leaves = case.end_ns(table), table.outcome != Outcome.REJECTED
    closed = np.arange(len(table)) >= len(table) - case.closed
    for rows, limit in ((closed & leaves, case.clients), (~closed & leaves, case.cap)):
        if limit is None:
            continue
        for start in table.arrival_ns[rows]:
            # who is done at the instant of a sending has made room for it
            assert ((table.arrival_ns[rows] <= start) & (end[rows] > start)).sum() <= limit


def check_loops(case: ClientCase) -> None:
    """A client sends exactly when its last answer, its turn-around and its thinking are over; it never skips a row."""
    table = case.run().table
    end = case.end_ns(table)
    for loop in case.loops:
        assert (np.diff(table.arrival_ns[loop.rows]) >= 0).all()
        for client in range(case.clients):
            mine = loop.rows[table.client[loop.rows] == client]
            if len(mine):
                assert table.arrival_ns[mine[0]] == client * case.ramp_up_ns // case.clients
            ready = end[mine] + case.turnaround_ns + table.think_ns[mine]
            assert (table.arrival_ns[mine[1:]] == ready[:-1]).all()
    assert (table.client[: len(table) - case.closed] == UNSET).all()


def check_cap(case: ClientCase) -> None:
    """In order, never early, and late only for as long as the cap is reached."""
    table = case.run().table
    sent = np.flatnonzero(table.outcome != Outcome.REJECTED)
    sent = sent[sent < len(table) - case.closed]
    arrival, due, free = table.arrival_ns[sent], table.intended_ns[sent], case.end_ns(table)[sent] + case.turnaround_ns
    assert (arrival >= due).all() and (np.diff(arrival) >= 0).all()
    if case.cap is None:
        assert (arrival == due).all()
        return
    for i in np.flatnonzero(arrival > due):
        assert arrival[i] in free[:i]
        for instant in (due[i], arrival[i] - 1):
            assert (free[:i] > instant).sum() >= case.cap


def check_timeouts(case: ClientCase) -> None:
    table = case.run().table
    gave_up = table.outcome == Outcome.TIMED_OUT
    if case.timeout_ns is None:
        assert not gave_up.any()
        return
    assert (table.gave_up_ns[gave_up] == table.arrival_ns[gave_up] + case.timeout_ns).all()
    done = table.outcome == Outcome.COMPLETED
    assert (table.finish_ns[done] <= table.arrival_ns[done] + case.timeout_ns).all()
    assert (table.first_token_ns[gave_up] <= table.gave_up_ns[gave_up]).all()


def check_little(case: ClientCase) -> None:
    """Time in queues and slots is the time that requests spent in the engine, whoever ended it."""
    if case.case.host_ns[1]:
        return  # a last token that comes too late is not in the table
    cluster = case.run()
    table = cluster.table
    there = np.maximum(case.end_ns(table) - table.arrival_ns - case.case.host_ns[0], 0)
    inside = int(there[table.outcome != Outcome.REJECTED].sum())
    assert sum(u.usage.running_ns + u.usage.waiting_ns for u in cluster.replicas) == inside
    waits = table.wait_step_ns + table.wait_slots_ns + table.wait_kv_ns + table.wait_token_budget_ns
    never = (table.outcome == Outcome.TIMED_OUT) & (table.first_scheduled_ns == UNSET)
    assert (waits[never] == there[never]).all()


def check_nothing_binds(case: ClientCase) -> None:
    """A cap and a time-out that never bind change nothing at all."""
    free = replace(case, cap=None, timeout_ns=None)
    loose = replace(case, cap=len(case.case.requests) + 1, timeout_ns=10**15)
    assert free.run().table.data.tobytes() == loose.run().table.data.tobytes()


def check_determinism(case: ClientCase) -> None:
    first, second = case.run(), case.run()
    assert first.table.data.tobytes() == second.table.data.tobytes()
    assert first.step_log == second.step_log


LAWS = {
    "requests_are_conserved": check_requests,
    "tokens_are_conserved": check_tokens,
    "kv_blocks_are_conserved": check_blocks,
    "in_flight_never_exceeds_clients_or_cap": check_in_flight,
    "a_client_sends_when_its_last_answer_lets_it": check_loops,
    "a_cap_holds_back_in_order_and_no_longer_than_needed": check_cap,
    "who_gives_up_does_so_on_time": check_timeouts,
    "littles_law_is_exact": check_little,
    "what_never_binds_changes_nothing": check_nothing_binds,
    "same_case_same_bytes": check_determinism,
}


@pytest.mark.parametrize("law", LAWS)
def test_law(law):
    SHORT(given(client_cases())(LAWS[law]))()


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_law_on_thousands(law):
    LONG(given(client_cases())(LAWS[law]))()
