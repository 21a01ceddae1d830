"""Small stories with a known end: one step takes one second unless said."""

from __future__ import annotations

import pytest

from llmqsim.cost import lower
from llmqsim.options import HostCost
from llmqsim.records import gap_bin
from llmqsim.requests import Outcome, Reason
from tests.support import run, seconds, table


def test_a_lone_request_prefills_in_one_step_and_gets_a_token_a_step():
    cluster = run(table((0.0, 10, 3)))
    assert seconds(cluster.table.first_token_ns) == [1.0]
    assert seconds(cluster.table.finish_ns) == [3.0]
    assert cluster.replicas[0].usage.steps == 3
    assert cluster.replicas[0].pool.held_blocks == 0


def test_a_one_token_answer_ends_with_its_prefill():
    cluster = run(table((0.5, 10, 1)))
    assert seconds(cluster.table.first_token_ns) == seconds(cluster.table.finish_ns) == [1.5]


def test_an_empty_workload_ends_at_once():
    cluster = run(table())
    assert cluster.env.now == 0 and cluster.replicas[0].usage.steps == 0


def test_a_prompt_beyond_the_budget_is_chunked_and_only_its_last_chunk_gives_a_token():
    cluster = run(table((0.0, 10, 1)), max_num_batched_tokens=4)
    assert seconds(cluster.table.first_token_ns) == [3.0]


def test_decodes_come_first_and_a_half_prefilled_prompt_gets_what_they_leave():
    # One decode takes 1 of 4 tokens a step, so the 9-token prompt gets 3, 3, 3 from second 1 on.
    cluster = run(table((0.0, 2, 10), (0.5, 9, 1)), max_num_batched_tokens=4)
    assert [log[3:5] for log in cluster.step_log[1:4]] == [(1, 3), (1, 3), (1, 3)]
    assert seconds(cluster.table.first_token_ns) == [1.0, 4.0]


def test_a_truncated_prompt_leaves_nothing_for_the_next_in_line():
    cluster = run(table((0.0, 6, 1), (0.0, 2, 1)), max_num_batched_tokens=4)
    assert seconds(cluster.table.first_token_ns) == [2.0, 2.0]
    assert seconds(cluster.table.wait_token_budget_ns) == [0.0, 1.0]


def test_one_slot_serves_one_after_the_other_and_says_so():
    cluster = run(table((0.0, 4, 3), (0.25, 4, 1)), max_num_seqs=1)
    assert seconds(cluster.table.first_token_ns) == [1.0, 4.0]
    assert seconds(cluster.table.wait_step_ns) == [0.0, 0.75]
    assert seconds(cluster.table.wait_slots_ns) == [0.0, 2.0]


def test_the_full_prompt_gate_keeps_out_what_only_its_first_chunk_would_fit():
    # 3 usable blocks; the first holds one; the second needs 3 in all, 1 for its first chunk.
    requests = ((0.0, 16, 4), (0.5, 48, 1))
    gated = run(table(*requests), blocks=4, max_num_batched_tokens=16, max_num_seqs=4)
    assert gated.replicas[0].usage.preemptions == 0
    assert seconds(gated.table.wait_kv_ns)[1] == pytest.approx(3.0)
    eager = run(table(*requests), blocks=4, max_num_batched_tokens=16, max_num_seqs=4, scheduler_reserve_full_isl=False)
    assert seconds(eager.table.first_scheduled_ns)[1] == 1.0
    assert eager.replicas[0].usage.preemptions > 0


def test_the_newest_is_preempted_keeps_its_tokens_and_recomputes_the_rest():
    # Two usable blocks of 16: each request fills one with its prompt; the first to grow takes the other's.
    cluster = run(table((0.0, 15, 4), (0.0, 15, 4)), blocks=3)
    first, second = 0, 1
    assert cluster.table.preemptions.tolist() == [0, 1]
    assert seconds(cluster.table.finish_ns)[first] == 4.0
    # Two tokens before it lost its block at 2 s; back at 4 s with 17 tokens in one step, then the last one.
    assert seconds(cluster.table.finish_ns)[second] == 6.0
    assert seconds(cluster.table.wait_preempted_ns)[second] == 2.0
    assert cluster.replicas[0].usage.recomputed_tokens == 16
    assert cluster.table.outcome.tolist() == [Outcome.COMPLETED] * 2


def test_no_one_enters_in_a_step_that_preempted():
    cluster = run(table((0.0, 15, 4), (0.0, 15, 4), (1.5, 1, 1)), blocks=3)
    # 1.5 s: the newcomer is seen at 2 s, when memory was short, and again at 3 s, behind the preempted one.
    assert seconds(cluster.table.wait_kv_ns)[2] > 0
    assert seconds(cluster.table.first_scheduled_ns)[2] >= 4.0


@pytest.mark.parametrize(("in_flight", "first_token"), [(1, 3.0), (2, 4.0)])
def test_a_request_that_arrives_during_step_n_joins_the_next_one_or_the_one_after(in_flight, first_token):
    cluster = run(table((0.0, 4, 9), (1.5, 4, 1)), in_flight=in_flight)
    assert seconds(cluster.table.first_token_ns)[1] == first_token


def test_in_flight_two_costs_nothing_when_idle():
    cluster = run(table((0.0, 4, 3)), in_flight=2)
    assert seconds(cluster.table.first_token_ns) == [1.0] and seconds(cluster.table.finish_ns) == [3.0]


@pytest.mark.parametrize(("max_tokens", "wasted", "steps"), [(3, 0, 3), (100, 1, 4)])
def test_an_unforeseen_end_wastes_one_row_of_the_step_already_formed(max_tokens, wasted, steps):
    cluster = run(table((0.0, 4, 3, max_tokens)), in_flight=2)
    assert seconds(cluster.table.finish_ns) == [3.0]
    assert cluster.replicas[0].usage.wasted_rows == wasted
    assert cluster.replicas[0].usage.steps == steps


def test_slots_freed_by_a_step_serve_the_next_but_one_when_two_are_in_flight():
    synchronous = run(table((0.0, 4, 2), (0.0, 4, 1)), max_num_seqs=1, in_flight=1)
    ahead = run(table((0.0, 4, 2), (0.0, 4, 1)), max_num_seqs=1, in_flight=2)
    assert seconds(synchronous.table.first_token_ns)[1] == 3.0
    assert seconds(ahead.table.first_token_ns)[1] == 3.0  # nothing else could be formed: it starts at 2 s all the same


def test_a_last_token_under_way_ends_a_request_that_was_preempted_meanwhile():
    # in_flight 2, 3 usable blocks: the second request loses its blocks in the draft of a step while its own last
    # token is being computed; it must leave from the waiting queue, and be counted once.
    cluster = run(table((0.0, 31, 8), (0.0, 15, 2, 100)), blocks=4, in_flight=2)
    assert cluster.table.outcome.tolist() == [Outcome.COMPLETED] * 2
    assert cluster.table.generated_tokens.tolist() == [8, 2]
    assert cluster.replicas[0].pool.held_blocks == 0


def test_requests_that_no_schedule_could_serve_are_refused_with_the_reason():
    cluster = run(table((0.0, 40, 10), (0.0, 8, 8), (0.0, 90, 20)), blocks=4, max_model_len=100)
    assert cluster.table.outcome.tolist() == [Outcome.REJECTED, Outcome.COMPLETED, Outcome.REJECTED]
    assert cluster.table.reason.tolist() == [Reason.EXCEEDS_KV_POOL, Reason.NONE, Reason.EXCEEDS_MAX_MODEL_LEN]


def test_a_request_that_just_fits_alone_is_served():
    cluster = run(table((0.0, 40, 9)), blocks=4)  # 48 tokens of KV in 3 usable blocks; the last token has none
    assert cluster.table.outcome.tolist() == [Outcome.COMPLETED]


def test_whole_prompts_wait_for_a_step_that_holds_them_when_chunking_is_off():
    cluster = run(
        table((0.0, 6, 1), (0.0, 6, 1)), max_num_batched_tokens=8, max_num_seqs=8, enable_chunked_prefill=False
    )
    assert seconds(cluster.table.first_token_ns) == [1.0, 2.0]


def test_until_stops_the_clock_and_keeps_the_waits_so_far():
    cluster = run(table((0.0, 4, 9), (0.0, 4, 1)), max_num_seqs=1, until_s=5.5)
    assert cluster.table.outcome.tolist() == [Outcome.UNFINISHED] * 2
    assert cluster.table.generated_tokens.tolist() == [5, 0]
    assert seconds(cluster.table.wait_slots_ns) == [0.0, 5.5]


def test_api_time_delays_the_client_and_no_step():
    host = HostCost(request_before_s=0.25, request_after_s=0.5)
    cluster = run(table((0.0, 4, 2)), host=host)
    assert seconds(cluster.table.first_scheduled_ns) == [0.25]
    assert seconds(cluster.table.first_token_ns) == [1.75]
    assert seconds(cluster.table.finish_ns) == [2.75]


def test_gaps_between_tokens_are_counted_with_their_worst():
    cost = lower.affine(base_s=1.0, per_prefill_token_s=0.5)
    cluster = run(table((0.0, 2, 4), (2.5, 4, 1)), cost=cost)
    # Steps: 2 s, 1 s, then one that holds the other prompt (3 s), then 1 s.
    assert seconds(cluster.table.max_itl_ns) == [3.0, -1e-9]
    assert cluster.gaps.counts.sum() == 3
    assert cluster.gaps.counts[0, gap_bin(3_000_000_000)] == 1
    assert cluster.gaps.sum_ns == [5_000_000_000] and cluster.gaps.max_ns == [3_000_000_000]


def test_round_robin_alternates_and_least_outstanding_fills_the_idle_one():
    requests = ((0.0, 4, 9), (0.1, 4, 1), (0.2, 4, 1), (3.0, 4, 1))
    assert run(table(*requests), replicas=2).table.replica.tolist() == [0, 1, 0, 1]
    balanced = run(table(*requests), replicas=2, routing="least_outstanding")
    assert balanced.table.replica.tolist() == [0, 1, 1, 1] or balanced.table.replica.tolist() == [0, 1, 0, 1]
    assert balanced.table.replica.tolist()[3] == 1


def test_a_server_that_has_just_started_is_slow_over_its_first_prefills():
    host = HostCost(cold_step_s=5.0, cold_steps=1)
    requests = ((0.0, 10, 2), (20.0, 10, 2))
    cold = run(table(*requests), host=host, cold_start=True)
    assert seconds(cold.table.first_token_ns) == [6.0, 21.0]
    assert seconds(cold.table.finish_ns) == [7.0, 22.0]
    warm = run(table(*requests), host=host)
    assert seconds(warm.table.first_token_ns) == [1.0, 21.0]
