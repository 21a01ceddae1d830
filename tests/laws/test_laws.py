"""The laws of docs/laws.md over random scenarios. `make test` runs some hundred cases of each, the long tier thousands."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from llmqsim.requests import Outcome
from tests.laws.cases import Case, cases

SHORT = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))


def check_requests(case: Case) -> None:
    table = case.run().table
    counts = [int((table.outcome == o).sum()) for o in Outcome]
    assert sum(counts) == len(table) == len(case.requests)
    assert counts[Outcome.UNFINISHED] == 0
    assert ((table.outcome == Outcome.REJECTED) == (table.reason != 0)).all()


def check_tokens(case: Case) -> None:
    cluster = case.run()
    table = cluster.table
    done = table.outcome == Outcome.COMPLETED
    assert (table.generated_tokens[done] == table.output_tokens[done]).all()
    assert (table.generated_tokens[~done] == 0).all()
    first_time = int((table.prompt_tokens + table.output_tokens - 1 - table.cached_tokens)[done].sum())
    usage = [r.usage for r in cluster.replicas]
    again = sum(u.recomputed_tokens + u.wasted_rows for u in usage)
    assert sum(u.tokens for u in usage) == first_time + again
    assert cluster.gaps.counts.sum() == (table.output_tokens[done] - 1).sum()


def check_blocks(case: Case) -> None:
    cluster = case.run()
    for replica in cluster.replicas:
        assert replica.pool.held_blocks == 0
        assert 0 <= replica.usage.kv_blocks_peak <= replica.pool.usable_blocks


def check_time(case: Case) -> None:
    cluster = case.run()
    table = cluster.table
    done = table.outcome == Outcome.COMPLETED
    before, after = case.host_ns
    assert (table.first_scheduled_ns[done] >= table.arrival_ns[done] + before).all()
    assert (table.first_token_ns[done] > table.first_scheduled_ns[done] + after).all()
    assert (table.finish_ns[done] >= table.first_token_ns[done]).all()
    for replica in range(case.servers["replicas"]):
        steps = [(s, e) for r, s, e, *_ in cluster.step_log if r == replica]
        assert all(start < end for start, end in steps)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(steps))


def check_causality(case: Case) -> None:
    whole = case.run().table
    cut = len(whole) // 2
    if cut == 0 or not (whole.arrival_ns[cut - 1] < whole.arrival_ns[cut]):
        return
    first_half = replace(case, requests=case.requests[:cut], groups=case.groups[:cut]).run().table
    horizon = whole.arrival_ns[cut]
    for name in ("first_scheduled_ns", "first_token_ns", "finish_ns"):
        with_rest, alone = getattr(whole, name)[:cut], getattr(first_half, name)
        for ns, other in ((with_rest, alone), (alone, with_rest)):
            early = (ns >= 0) & (ns < horizon)
            assert (ns[early] == other[early]).all(), name


def check_work(case: Case) -> None:
    if case.servers["policy"].get("max_wait_s"):
        return  # dynamic batching idles on purpose, until its time-out
    cluster = case.run()
    table = cluster.table
    before, after = case.host_ns
    for index, replica in enumerate(cluster.replicas):
        mine = (table.replica == index) & (table.outcome == Outcome.COMPLETED)
        present = sorted(zip(table.arrival_ns[mine] + before, table.finish_ns[mine] - after, strict=True))
        steps = [(s, e) for r, s, e, *_ in cluster.step_log if r == index]
        assert covered(present, steps), (present, steps)
        assert replica.usage.busy_ns == sum(e - s for s, e in steps)


def covered(intervals: list[tuple[int, int]], by: list[tuple[int, int]]) -> bool:
    """Is every instant of `intervals` inside the union of `by`?"""
    merged: list[list[int]] = []
    for start, end in sorted(by):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return all(any(s <= start and end <= e for s, e in merged) for start, end in intervals)


def check_limits(case: Case) -> None:
    cluster = case.run()
    servers = case.servers
    budget = servers["max_num_batched_tokens"] if servers["batching"] not in ("orca", "static") else math.inf
    for _, _, _, decodes, prefill, running, _, blocks in cluster.step_log:
        assert 1 <= decodes + prefill <= budget
        assert running <= servers["max_num_seqs"]
        assert servers["blocks"] is None or blocks <= servers["blocks"] - 1


def check_waits(case: Case) -> None:
    table = case.run().table
    done = table.outcome == Outcome.COMPLETED
    joined = table.arrival_ns + case.host_ns[0]
    to_first_step = table.wait_step_ns + table.wait_slots_ns + table.wait_kv_ns + table.wait_token_budget_ns
    assert (to_first_step[done] == (table.first_scheduled_ns - joined)[done]).all()
    assert (table.wait_preempted_ns[table.preemptions == 0] == 0).all()


def check_little(case: Case) -> None:
    cluster = case.run()
    table = cluster.table
    done = table.outcome == Outcome.COMPLETED
    before, after = case.host_ns
    in_system = int((table.finish_ns - after - table.arrival_ns - before)[done].sum())
    waits = table.wait_step_ns + table.wait_slots_ns + table.wait_kv_ns + table.wait_token_budget_ns
    usage = [r.usage for r in cluster.replicas]
    assert sum(u.running_ns + u.waiting_ns for u in usage) == in_system
    assert sum(u.waiting_ns for u in usage) == int((waits + table.wait_preempted_ns)[done].sum())


def check_determinism(case: Case) -> None:
    first, second = case.run(), case.run()
    assert first.table.data.tobytes() == second.table.data.tobytes()
    assert first.step_log == second.step_log


def check_blindness(case: Case) -> None:
    """Longer true outputs (same max_tokens) change nothing until the first request ends."""
    if not case.requests or any(r[1] + r[2] >= 30 for r in case.requests):
        return
    requests = [(a, p, o, 40) for a, p, o, _ in case.requests]
    # the door refuses by true lengths, which is no policy's doing
    servers = {**case.servers, "blocks": None, "max_model_len": None, "enable_chunked_prefill": True}
    one = replace(case, requests=tuple(requests), servers=servers).run()
    longer = replace(case, requests=tuple((a, p, o + 1, m) for a, p, o, m in requests), servers=servers).run()
    first_end = int(one.table.finish_ns.min()) - case.host_ns[1]
    upto = [[log for log in c.step_log if log[2] <= first_end] for c in (one, longer)]
    assert [log[:5] for log in upto[0]] == [log[:5] for log in upto[1]]


def check_peaks(case: Case) -> None:
    """No mean above its peak, and the log's counts are those that make the peaks."""
    cluster = case.run()
    for replica in cluster.replicas:
        usage, log = replica.usage, [step for step in cluster.step_log if step[0] == replica.index]
        assert usage.running_ns <= usage.running_peak * cluster.env.now
        assert usage.waiting_ns <= usage.waiting_peak * cluster.env.now
        assert usage.kv_block_ns <= usage.kv_blocks_peak * cluster.env.now
        running, waiting, blocks = (max((step[column] for step in log), default=0) for column in (5, 6, 7))
        assert (running, blocks) == (usage.running_peak, usage.kv_blocks_peak)
        assert waiting <= usage.waiting_peak


LAWS = {
    "requests_are_conserved": check_requests,
    "tokens_are_conserved": check_tokens,
    "kv_blocks_are_conserved": check_blocks,
    "time_is_monotone": check_time,
    "causality": check_causality,
    "work_is_conserved": check_work,
    "limits_hold": check_limits,
    "waits_add_up": check_waits,
    "littles_law_is_exact": check_little,
    "no_mean_above_its_peak": check_peaks,
    "same_case_same_bytes": check_determinism,
    "policies_are_blind_to_output_lengths": check_blindness,
}


@pytest.mark.parametrize("law", LAWS)
def test_law(law):
    SHORT(given(cases())(LAWS[law]))()


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_law_on_thousands(law):
    LONG(given(cases())(LAWS[law]))()
