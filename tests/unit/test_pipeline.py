"""Pipeline stages: micro-batches a stage apart. One step takes one second through all stages."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws.cases import Case, cases
from tests.laws.test_laws import LAWS
from tests.support import run, seconds, table


def test_a_lone_request_gains_nothing():
    cluster = run(table((0.0, 4, 3)), stages=4)
    assert seconds(cluster.table.finish_ns) == [3.0]


def test_requests_in_different_micro_batches_do_not_wait_for_one_another():
    # The budget splits them: the second enters the first stage at 0.5 s, and each gets a token a second from then on.
    cluster = run(table((0.0, 4, 4), (0.0, 4, 4)), stages=2, max_num_batched_tokens=4)
    assert seconds(cluster.table.first_token_ns) == [1.0, 1.5]
    assert seconds(cluster.table.finish_ns) == [4.0, 4.5]


def test_who_comes_when_nothing_could_be_formed_joins_at_the_next_end_of_a_step():
    cluster = run(table((0.0, 4, 4), (0.25, 4, 1)), stages=2)
    assert seconds(cluster.table.first_token_ns) == [1.0, 2.0]


def test_the_chunks_of_a_prompt_follow_one_another():
    later = run(table((0.0, 4, 4), (0.0, 40, 1)), stages=2, max_num_batched_tokens=24)
    assert seconds(later.table.first_token_ns) == [1.0, 1.5]


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_stages_multiply_the_throughput_of_many_short_prompts(stages):
    requests = [(0.0, 16, 1)] * 40
    cluster = run(table(*requests), stages=stages, max_num_batched_tokens=16)
    assert max(seconds(cluster.table.finish_ns)) == pytest.approx(1 + 39 / stages)


def test_a_step_does_not_overtake_a_longer_one():
    from llmqsim.cost import lower

    cost = lower.affine(base_s=0.2, per_prefill_token_s=0.1)
    cluster = run(table((0.0, 20, 1), (1.2, 2, 1)), cost=cost, stages=2)
    ends = [log[2] for log in cluster.step_log]
    assert ends == sorted(ends)


OVERLAPPING = {"time_is_monotone", "policies_are_blind_to_output_lengths"}
"""laws whose checks read steps as one after the other, or compare logs that start-up timing shifts"""
SHORT = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("law", sorted(set(LAWS) - OVERLAPPING - {"work_is_conserved"}))
def test_the_laws_hold_in_a_pipeline(law):
    @SHORT
    @given(cases(), st.integers(2, 4))
    def check(case: Case, stages: int):
        LAWS[law](Case(case.requests, {**case.servers, "stages": stages}, case.step, case.host_ns, case.groups))

    check()
