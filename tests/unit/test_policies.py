"""What each ordering, batching and preemption policy does in a small case that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping, registry, simulate
from llmqsim.cost import lower
from llmqsim.errors import ScenarioError, UserError
from llmqsim.requests import INDEX, RequestTable, Targets
from tests.support import deployment, run, seconds, table


def given(rows: list[tuple], **columns) -> RequestTable:
    """A table of (arrival s, prompt, output) with more columns."""
    made = table(*rows)
    targets = columns.pop("targets", None)
    for name, values in columns.items():
        made.data[INDEX[name]] = values
    if targets:
        made.targets = targets
    return made


def order_of(requests: RequestTable, ordering: str, order: dict | None = None, **servers) -> list[int]:
    """Rows in the order in which one slot takes them up."""
    servers = {"max_num_seqs": 1, **servers}
    done = run(requests, ordering=ordering, order=order, **servers).table
    return np.argsort(done.first_scheduled_ns, kind="stable").tolist()


THREE = [(0, 9, 1), (0, 5, 1), (0, 7, 1)]


@pytest.mark.parametrize(
    ("ordering", "order", "columns", "expected"),
    [
        ("fcfs", None, {}, [0, 1, 2]),
        ("priority", None, {"priority": [3, 2, 1]}, [2, 1, 0]),
        ("sjf", None, {"predicted_tokens": [30, 20, 10]}, [2, 1, 0]),
        ("sjf", {"by": "prompt"}, {}, [1, 2, 0]),
        ("sjf", {"by": "total"}, {"predicted_tokens": [1, 4, 9]}, [1, 0, 2]),
        ("srpt", {"preempt": False}, {"predicted_tokens": [2, 3, 1]}, [2, 0, 1]),
        ("learned_rank", {"preempt": False}, {"predicted_tokens": [2, 3, 1]}, [2, 0, 1]),
        ("edf", None, {"deadline_ns": [-1, 9, 5]}, [2, 1, 0]),
        ("vtc", None, {"tenant_id": [0, 0, 1]}, [0, 2, 1]),
    ],
)
def test_who_is_first(ordering, order, columns, expected):
    assert order_of(given(THREE, **columns), ordering, order) == expected


def test_last_come_first_served():
    rows = [(0, 9, 3), (0.5, 5, 1), (1.5, 7, 1)]
    assert order_of(table(*rows), "lifo") == [0, 2, 1]


def test_random_is_a_permutation_that_depends_on_its_seed_alone():
    rows = [(0, 9, 1)] * 30
    one, again, other = (order_of(table(*rows), "random", {"seed": s}) for s in (1, 1, 2))
    assert sorted(one) == list(range(30)) and one == again != other and one != list(range(30))


def test_ageing_lets_the_long_one_pass_who_came_late_enough():
    """Two tokens a second of waiting: 20 tokens more are worth 10 seconds."""
    rows = [(0, 5, 4), (1, 25, 1), (2, 5, 9), (3, 5, 1), (12, 5, 1)]
    assert order_of(table(*rows), "sjf", {"by": "prompt"}) == [0, 2, 3, 4, 1]
    aged = order_of(table(*rows), "sjf", {"by": "prompt", "ageing": 2.0})
    assert aged == [0, 2, 3, 1, 4]


COST = lower.affine(base_s=1.0, per_prefill_token_s=0.1)


def test_shortest_cost_counts_prefill_and_decode():
    """50 prompt tokens are 6 s of prefill; nine steps more are shared with 31 others: 9/32 s."""
    requests = given([(0, 50, 1), (0, 5, 1), (0, 5, 1)], predicted_tokens=[1, 300, 10])
    assert order_of(requests, "shortest_cost", cost=COST) == [2, 0, 1]  # 6 s; 1.5 + 299/32 s; 1.5 + 9/32 s
    assert order_of(requests, "shortest_cost", {"batch": 1000}, cost=COST) == [2, 1, 0]


def test_least_slack_counts_what_is_still_to_do_before_the_deadline():
    """Deadlines for first tokens at 10, 9 and 9 s; prefills of 1 + 0.1 s a token."""
    requests = given(
        [(0, 60, 1), (0, 5, 1), (0, 10, 1)],
        deadline_ns=np.array([10, 9, 9]) * 10**9,
        targets=(Targets(ttft_ns=10**10),),
    )
    assert order_of(requests, "edf", cost=COST) == [1, 2, 0]
    assert order_of(requests, "least_slack", cost=COST) == [0, 2, 1]


def test_goodput_first_leaves_the_lost_for_later():
    """One slot, prefills of 6 s, 2 s and 2 s, TTFT within 5 s: the first can't make it even alone."""
    requests = given(
        [(0, 50, 1), (0, 10, 1), (0, 10, 1)], predicted_tokens=1, deadline_ns=5 * 10**9, targets=(Targets(ttft_ns=5 * 10**9),)
    )
    done = run(requests, ordering="goodput_first", order={"review_steps": 1}, cost=COST, max_num_seqs=1).table
    assert np.argsort(done.first_scheduled_ns).tolist() == [1, 2, 0]
    assert (done.first_token_ns <= 5 * 10**9).tolist() == [False, True, True]


def test_goodput_first_judges_again_while_they_wait():
    """Two requests that could make it when they came; after the first of 4 s the second can't, the third still can."""
    requests = given(
        [(0, 30, 1), (0.1, 31, 1), (0.2, 40, 1)],
        predicted_tokens=1,
        class_id=[0, 0, 1],
        targets=(Targets(ttft_ns=5 * 10**9), Targets(ttft_ns=60 * 10**9)),
        deadline_ns=[5 * 10**9, 5 * 10**9, 60 * 10**9],
    )
    requests.classes = ("soon", "later")
    assert order_of(requests, "goodput_first", {"review_steps": 1}, cost=COST) == [0, 2, 1]


# Preemption by the order --------------------------------------------------------------------------------------------


def test_an_urgent_request_takes_the_slot_of_one_that_is_less_urgent():
    rows = [(0, 5, 10), (2.5, 5, 2)]
    waits = run(given(rows, priority=[5, 1]), ordering="priority", max_num_seqs=1).table
    takes = run(given(rows, priority=[5, 1]), ordering="priority", order={"preempt": True}, max_num_seqs=1).table
    assert seconds(waits.finish_ns) == [10, 12] and waits.preemptions.sum() == 0
    assert seconds(takes.finish_ns) == [12, 5] and takes.preemptions.tolist() == [1, 0]
    assert seconds(takes.wait_preempted_ns) == [2, 0]


def test_equals_do_not_take_each_other_s_place():
    rows = [(0, 5, 10), (2.5, 5, 2)]
    done = run(given(rows, priority=[1, 1]), ordering="priority", order={"preempt": True}, max_num_seqs=1).table
    assert seconds(done.finish_ns) == [10, 12]


def test_srpt_goes_by_what_is_left():
    """At 6.5 s the first has three tokens to go: one of two takes its place, one of five does not."""
    for output, expected in ((2, [12, 9]), (5, [10, 15])):
        requests = given([(0, 5, 10), (6.5, 5, output)], predicted_tokens=[10, output])
        done = run(requests, ordering="srpt", max_num_seqs=1).table
        assert seconds(done.finish_ns) == expected


def test_srpt_with_a_correction_lets_the_outlived_one_wait():
    """Predicted 4, makes 12: without correction it stays ahead with one token to go; with it, 5 more are expected."""
    rows = [(0, 5, 12), (6.5, 5, 2)]
    stays, yields = given(rows, predicted_tokens=[4, 2]), given(rows, predicted_tokens=[4, 2])
    yields.re_estimate = 3.0
    assert seconds(run(stays, ordering="srpt", max_num_seqs=1).table.finish_ns) == [12, 14]
    assert seconds(run(yields, ordering="srpt", max_num_seqs=1).table.finish_ns) == [14, 9]


def test_memory_is_taken_from_the_last_in_the_order_not_from_the_newest():
    requests = given([(0, 16, 30), (0, 16, 30)], priority=[2, 1])
    done = run(requests, ordering="priority", order={"preempt": True}, blocks=5, scheduler_reserve_full_isl=True).table
    assert done.preemptions.tolist() == [1, 0]


def test_nobody_is_displaced_before_it_has_made_a_token():
    """A prompt of three steps is under way when a more urgent request comes: it waits until the first token is out."""
    requests = given([(0, 30, 5), (1.5, 5, 1)], priority=[2, 1])
    done = run(requests, ordering="priority", order={"preempt": True}, max_num_seqs=1, max_num_batched_tokens=10).table
    assert seconds(done.first_token_ns) == [3, 4]
    assert seconds(done.finish_ns) == [11, 4]  # 31 tokens are computed again in four steps, then three tokens more


def test_mlfq_runs_the_new_before_the_long():
    """One slot, quantum 2 s: the first goes down after three steps, the second takes over for its two."""
    requests = table((0, 5, 10), (1.5, 5, 2))
    done = run(requests, ordering="mlfq", order={"quantum_s": 2.0, "starvation_s": 1000.0}, max_num_seqs=1).table
    assert seconds(done.finish_ns) == [12, 5]


def test_mlfq_a_long_prompt_skips_the_levels_that_it_would_run_through():
    """A prefill of 11 s joins level 3 (quantum 16 s): a short one that comes with it goes first."""
    requests = table((0, 100, 1), (0, 5, 1))
    order = order_of(requests, "mlfq", {"quantum_s": 2.0, "starvation_s": 1000.0}, cost=COST)
    assert order == [1, 0]


def test_learned_rank_promotes_who_has_starved():
    """Ten requests of one token come one a step; the long one would be last, but runs when 4 steps have passed."""
    rows = [(0, 5, 1), (0, 5, 3), *((i + 0.5, 5, 1) for i in range(10))]
    predicted = [1, 50, *([1] * 10)]
    guarded = run(
        given(rows, predicted_tokens=predicted),
        ordering="learned_rank",
        order={"starvation": 4, "period": 10},
        max_num_seqs=1,
    ).table
    assert seconds(guarded.first_scheduled_ns)[1] == 4
    assert seconds(guarded.finish_ns)[1] == 7  # and runs on, promoted
    free = run(
        given(rows, predicted_tokens=predicted), ordering="learned_rank", order={"starvation": 99}, max_num_seqs=1
    ).table
    assert seconds(free.first_scheduled_ns)[1] == 11


@pytest.mark.parametrize(
    ("ordering", "order", "finish"),
    [("learned_rank", {"starvation": 4, "period": 10}, 8), ("mlfq", {"quantum_s": 0.5, "starvation_s": 4.0}, 9)],
)
def test_who_starves_in_the_hosts_memory_is_promoted_too(ordering, order, finish):
    """A request of four tokens is swapped out by the first of twelve that come one a step; unguarded it ends at 16 s."""
    rows = [(0, 5, 4), *((0.5 + i, 5, 1) for i in range(12))]
    host = {"preemption": "swap_newest", "swap_space_bytes": 10**6, "block_bytes": 1000, "host_link_bytes_per_s": 1e15}
    requests = given(rows, predicted_tokens=[50] + [1] * 12)
    done = run(requests, ordering=ordering, order=order, max_num_seqs=1, blocks=40, **host).table
    assert seconds(done.finish_ns)[0] == finish


def test_vtc_shares_tokens_between_tenants():
    """Tenant 0 brings four requests, tenant 1 two: served in turns as long as both are there."""
    requests = given([(0, 10, 1)] * 6, tenant_id=[0, 0, 0, 0, 1, 1])
    assert order_of(requests, "vtc") == [0, 4, 1, 5, 2, 3]


def test_vtc_who_was_away_has_saved_up_nothing():
    """Tenant 1 comes late: it is lifted to tenant 0's counter, and does not get all steps until it has caught up."""
    rows = [(0, 10, 1)] * 6 + [(2.5, 10, 1)] * 3
    requests = given(rows, tenant_id=[0] * 6 + [1] * 3)
    assert order_of(requests, "vtc") == [0, 1, 2, 3, 6, 4, 7, 5, 8]


def test_longest_prefix_first():
    from llmqsim.requests import PrefixTable

    requests = table((0, 40, 1), (1.5, 40, 20), (1.6, 40, 1), (1.7, 40, 1))
    hashes = [[1, 2], [7, 8], [9, 10], [1, 2]]
    requests.prefixes = PrefixTable(np.array([0, 2, 4, 6, 8]), np.array(sum(hashes, [])))
    servers = dict(max_num_seqs=1, blocks=50, enable_prefix_caching=True)
    assert order_of(requests, "longest_prefix", **servers) == [0, 1, 3, 2]
    assert order_of(requests, "longest_prefix", {"most_waiting": 1}, **servers) == [0, 1, 2, 3]


# Batching and memory ------------------------------------------------------------------------------------------------


def test_reserving_the_prediction_keeps_others_out_until_it_would_fit():
    """Ten usable blocks; 16 + 48 tokens take 4: two enter at once, the third when one has ended. No preemption."""
    rows = [(0, 16, 49)] * 3
    requests = given(rows, predicted_tokens=49)
    reserved = run(requests, batching="reserve_predicted", blocks=11).table
    assert seconds(reserved.first_scheduled_ns) == [0, 0, 49] and reserved.preemptions.sum() == 0
    optimistic = run(given(rows, predicted_tokens=49), blocks=11).table
    assert optimistic.preemptions.sum() > 0


def test_who_outlives_its_reservation_is_evicted_when_memory_ends():
    requests = given([(0, 16, 60)] * 3, predicted_tokens=8)
    done = run(requests, batching="reserve_predicted", blocks=10).table
    assert done.preemptions.sum() > 0 and (done.outcome == 1).all()


def test_prompts_get_their_share_of_a_step_and_no_more():
    cluster = run(
        table((0, 100, 3)), batching="prefill_share", policy={"share": 0.25}, max_num_batched_tokens=80
    )
    assert [log[4] for log in cluster.step_log] == [20, 20, 20, 20, 20, 0, 0]


def test_slo_chunk_takes_the_largest_chunk_that_keeps_the_decodes_in_time():
    """Steps take 1 + 0.1 s a prompt token, decodes may take 3 s a token: 20 prompt tokens a step while one decodes."""
    requests = given([(0, 5, 8), (0, 90, 1)], targets=(Targets(tpot_ns=3 * 10**9),))
    cluster = run(requests, batching="slo_chunk", cost=COST, max_num_batched_tokens=30)
    prompts = [log[4] for log in cluster.step_log]
    assert prompts[0] == 30  # nobody decodes yet
    assert prompts[1:4] == [20, 20, 20] and sum(prompts) == 95


def test_multi_step_lets_nobody_enter_in_between_and_spares_the_host():
    from llmqsim.options import HostCost

    requests = table((0, 5, 12), (2.5, 5, 1))
    host = HostCost(per_step_s=0.25)
    done = run(requests, batching="multi_step", policy={"n": 4}, host=host).table
    # the prompt's step, then four decodes of which three save 0.25 s: the next is formed at 1 + 1 + 3 x 0.75
    assert seconds(done.first_scheduled_ns)[1] == 4.25
    plain = run(table((0, 5, 12), (2.5, 5, 1)), host=host).table
    assert seconds(plain.first_scheduled_ns)[1] == 3


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("newest", [0, 0, 1]), ("least_urgent", [0, 1, 0]), ("least_kv", [0, 0, 1]), ("most_slack", [1, 0, 0])],
)
def test_who_gives_way(policy, expected):
    columns = dict(priority=[1, 3, 2], deadline_ns=[-1, 5, 5], targets=(Targets(ttft_ns=5), Targets(e2e_ns=5)))
    requests = given([(0, 32, 14), (0, 30, 14), (0, 20, 14)], class_id=[0, 1, 1], predicted_tokens=14, **columns)
    requests.classes = ("one", "other")
    first = run(requests, preemption=policy, blocks=7, until_s=14).table
    assert first.preemptions.tolist() == expected


def test_cheaper_swaps_where_the_link_is_fast_and_recomputes_where_it_is_not():
    from dataclasses import replace

    rows = [(0, 32, 20), (0, 32, 20)]
    for bandwidth, swaps in ((1e9, True), (10.0, False)):
        servers = deployment(
            blocks=6, block_bytes=1000, swap_space_bytes=10**6, host_link_bytes_per_s=bandwidth, cost=COST
        )
        servers = replace(servers, preemption=registry.make("preemption", "newest", {"kv": "cheaper"}))
        usage = run(table(*rows), servers).replicas[0].usage
        assert usage.preemptions > 0 and (usage.swapped_blocks > 0) == swaps


# What does not fit --------------------------------------------------------------------------------------------------


def small(**engine) -> dict:
    return {
        "workload": {
            "requests": 5,
            "arrivals": {"process": "burst"},
            "lengths": {"prompt": 10, "output": 5},
        },
        "cost": {"model": "constant", "step": 1},
        "engine": engine,
    }


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ({"ordering": "sjf"}, "engine.ordering: 'sjf' goes by predicted lengths.*workload.predictor"),
        ({"ordering": "edf"}, "engine.ordering: 'edf' goes by deadlines.*ttft or e2e"),
        ({"ordering": {"policy": "sjf", "by": "prompts"}}, "by is unknown.*did you mean 'prompt'"),
        ({"ordering": {"policy": "sjf", "ageing": -1}}, "ageing must be a number at least 0"),
        ({"ordering": {"policy": "mlfq", "quantum_s": "ten"}}, "quantum_s.*'500 ms'"),
        ({"ordering": {"policy": "priority", "preempt": "yes"}}, "preempt must be true or false"),
        ({"ordering": "shortest"}, "unknown ordering"),
        ({"ordering": "mlfq", "batching": "sarathi"}, "'mlfq' preempts running requests.*use continuous"),
        ({"batching": "slo_chunk"}, "engine.batching: 'slo_chunk' goes by TPOT targets"),
        ({"batching": "prefill_share", "enable_chunked_prefill": False}, "'prefill_share' splits prompts"),
        ({"batching": "reserve_predicted"}, "engine.batching: 'reserve_predicted' goes by predicted lengths"),
        ({"preemption": "most_slack"}, "engine.preemption: 'most_slack' goes by deadlines"),
        ({"preemption": {"policy": "newest", "kv": "swapp"}}, "kv is unknown.*did you mean 'swap'"),
        ({"preemption": {"policy": "newest", "kv": "swap"}}, "engine.swap_space"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would_be_right(engine, told):
    with pytest.raises(UserError, match=told) as caught:
        simulate(from_mapping(small(**engine)))
    assert isinstance(caught.value, ScenarioError)


def test_a_deadline_for_the_first_token_needs_no_predictor():
    scenario = {**small(ordering="least_slack"), "slo": {"ttft": "2 s"}}
    assert simulate(from_mapping(scenario)).summary()["requests"]["completed"] == 5
    with pytest.raises(UserError, match="predicted lengths"):
        simulate(from_mapping({**scenario, "slo": {"e2e": "2 s"}}))


def test_the_page_of_policies_is_up_to_date_and_names_every_one():
    from pathlib import Path

    from llmqsim.report.policies_page import markdown

    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
    assert page == markdown() + "\n", "write it again with `llmqsim schema --policies > docs/policies.md`"
    for kind in ("ordering", "predictor", "batching", "preemption", "routing", "admission"):
        for name, cls in registry.classes(kind).items():
            if cls.__module__.startswith("llmqsim."):
                assert f"### {name}\n" in page, name
