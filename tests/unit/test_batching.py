"""What each batcher does differently: small stories with a known end. One step takes one second unless said."""

from __future__ import annotations

import pytest

from llmqsim.cost import lower
from llmqsim.requests import INDEX, Outcome, Reason
from tests.support import run, seconds, table


def test_v0_stalls_all_decodes_while_a_prompt_enters():
    requests = ((0.0, 4, 6), (1.5, 4, 1))
    v0 = run(table(*requests), batching="vllm_v0", enable_chunked_prefill=False)
    v1 = run(table(*requests))
    assert seconds(v0.table.max_itl_ns)[0] == 2.0 and seconds(v0.table.finish_ns)[0] == 7.0
    assert seconds(v1.table.max_itl_ns)[0] == 1.0 and seconds(v1.table.finish_ns)[0] == 6.0
    assert [log[3:5] for log in v0.step_log[:4]] == [(0, 4), (1, 0), (0, 4), (1, 0)]


def test_v0_takes_all_blocks_of_a_prompt_and_leaves_the_watermark():
    requests = ((0.0, 16, 9), (0.5, 16, 1), (0.5, 16, 1))
    tight = run(table(*requests), batching="vllm_v0", enable_chunked_prefill=False, blocks=5, watermark=0.5)
    assert tight.step_log[2][5] < 3  # two blocks must stay free: not everybody can be in


def test_orca_holds_the_maximum_from_the_start():
    requests = ((0.0, 8, 2, 24), (0.0, 8, 2, 24))
    orca = run(table(*requests), batching="orca", blocks=4, enable_chunked_prefill=False)
    paged = run(table(*requests), blocks=4)
    assert seconds(orca.table.first_token_ns) == [1.0, 3.0]
    assert seconds(orca.table.wait_kv_ns) == [0.0, 2.0]
    assert seconds(paged.table.first_token_ns) == [1.0, 1.0]


def test_a_maximum_that_can_never_be_held_is_refused_at_the_door():
    cluster = run(table((0.0, 8, 2, 100), (0.0, 8, 2, 20)), batching="orca", blocks=4)
    assert cluster.table.outcome.tolist() == [Outcome.REJECTED, Outcome.COMPLETED]
    assert cluster.table.reason[0] == Reason.EXCEEDS_KV_POOL


@pytest.mark.parametrize("batching", ("orca", "trtllm_guaranteed_no_evict", "static"))
def test_nobody_holds_more_than_the_longest_sequence(batching):
    # 16 tokens a sequence: each may ask for 100, holds 4 blocks of 4, and is not refused at the door
    requests = ((0.0, 8, 2, 100), (0.0, 4, 2, 100))
    cluster = run(table(*requests), batching=batching, blocks=9, block_size=4, max_model_len=16)
    assert cluster.table.max_tokens.tolist() == [8, 12]
    assert seconds(cluster.table.first_token_ns) == [1.0, 1.0]
    assert cluster.replicas[0].usage.kv_blocks_peak == 8


def test_a_peak_counts_whoever_waits_also_who_was_preempted():
    # three blocks for two that need two each in the end: one is preempted while a third waits; each came alone
    requests = [(0.0, 16, 17), (0.5, 16, 17), (1.5, 16, 1)]
    usage = run(table(*requests), blocks=4).replicas[0].usage
    assert usage.preemptions and usage.waiting_peak == 2


def test_the_log_of_a_step_has_what_was_there_when_it_was_formed():
    # the first step takes two blocks, one of a request that ends with it; the third waits for a slot
    requests = ((0.0, 16, 1), (0.0, 16, 2), (0.0, 16, 1))
    cluster = run(table(*requests), blocks=9, max_num_seqs=2)
    assert [step[5:] for step in cluster.step_log] == [(2, 1, 2), (2, 0, 3)]


def test_no_evict_never_preempts_where_max_utilization_does():
    requests = [(0.0, 16, 17) for _ in range(4)]
    for batching, preempts in (("trtllm_guaranteed_no_evict", False), ("trtllm_max_utilization", True)):
        cluster = run(table(*requests), batching=batching, blocks=6)
        assert (cluster.replicas[0].usage.preemptions > 0) == preempts
        assert (cluster.table.outcome == Outcome.COMPLETED).all()


def test_sarathi_holds_the_whole_prompt_where_v1_holds_its_first_chunk():
    requests = ((0.0, 16, 4), (0.5, 48, 1))
    options = {"blocks": 4, "max_num_batched_tokens": 16, "max_num_seqs": 4, "scheduler_reserve_full_isl": False}
    assert seconds(run(table(*requests), batching="sarathi", **options).table.first_scheduled_ns)[1] >= 4.0
    assert seconds(run(table(*requests), **options).table.first_scheduled_ns)[1] == 1.0


def test_sglang_reserves_a_share_of_the_output_to_come():
    # 20 tokens of KV: the second would need 4 + 8 beside 0.7 x 7 of the first's; it waits until that has left.
    requests = ((0.0, 4, 8), (0.5, 4, 8))
    cluster = run(table(*requests), batching="sglang", blocks=21, block_size=1)
    assert seconds(cluster.table.first_token_ns)[1] > seconds(cluster.table.finish_ns)[0]
    roomy = run(table(*requests), batching="sglang", blocks=41, block_size=1)
    assert seconds(roomy.table.first_token_ns)[1] == 2.0


def test_sglang_goes_on_admitting_when_only_the_tokens_of_a_step_were_spent():
    # 8 tokens a step, memory for everybody: two prompts enter in each of three steps, then all decode together.
    requests = ((0.0, 4, 3),) * 6
    cluster = run(table(*requests), batching="sglang", max_num_batched_tokens=8)
    assert seconds(cluster.table.first_token_ns) == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert seconds(cluster.table.finish_ns) == [5.0] * 6


def test_sglang_retracts_the_one_with_the_fewest_output_tokens():
    # Outputs far longer than the clip says: nobody's end is reserved, so decodes run short.
    policy = {"clip_tokens": 1}
    requests = ((0.0, 4, 9, 30), (1.5, 4, 9, 30))
    cluster = run(table(*requests), batching="sglang", policy=policy, blocks=17, block_size=1)
    assert cluster.table.preemptions.tolist() == [0, 1]
    assert (cluster.table.outcome == Outcome.COMPLETED).all()


def test_a_static_batch_waits_for_its_longest_member_and_pads():
    requests = ((0.0, 10, 2), (0.0, 4, 5), (0.5, 4, 1))
    cluster = run(table(*requests), batching="static", max_num_seqs=2)
    assert seconds(cluster.table.finish_ns) == [2.0, 5.0, 6.0]
    assert seconds(cluster.table.wait_slots_ns)[2] == 4.0
    usage = cluster.replicas[0].usage
    assert usage.wasted_rows == 3  # the first member's slot in the last three steps
    assert usage.padded_tokens == 6  # 4 padded to 10


@pytest.mark.parametrize("batching", ["static", "orca"])
def test_no_token_budget_limits_a_batch_of_2023(batching):
    cluster = run(table(*[(0.0, 10, 2)] * 4), batching=batching, max_num_seqs=4, max_num_batched_tokens=16)
    assert seconds(cluster.table.first_token_ns) == [1.0] * 4


def test_padding_and_ended_rows_cost_what_real_ones_do():
    cost = lower.affine(per_prefill_token_s=1.0, per_decode_request_s=0.5)
    cluster = run(table((0.0, 10, 2), (0.0, 4, 3)), batching="static", cost=cost)
    # 2 x 10 prefill tokens, then two steps of two decode rows each, one of them idle in the second
    assert seconds(cluster.table.finish_ns) == [21.0, 22.0]


def test_dynamic_batching_waits_for_company_or_for_its_patience():
    policy = {"size": 2, "max_wait_s": 3.0}
    alone = run(table((1.0, 4, 1)), batching="static", policy=policy)
    assert seconds(alone.table.first_scheduled_ns) == [4.0]
    company = run(table((1.0, 4, 1), (2.0, 4, 1)), batching="static", policy=policy)
    assert seconds(company.table.first_scheduled_ns) == [2.0, 2.0]


def test_partial_prefills_let_minnows_pass_a_whale():
    requests = ((0.0, 400, 1), (0.5, 8, 1), (0.5, 8, 1))
    alone = run(table(*requests), max_num_batched_tokens=16)
    shared = run(
        table(*requests),
        max_num_batched_tokens=16,
        batching="partial_prefills",
        policy={"n": 3, "long": 1, "long_tokens": 100},
    )
    assert seconds(alone.table.first_token_ns)[1] >= 25.0
    assert seconds(shared.table.first_token_ns)[1] <= 4.0
    assert seconds(shared.table.first_token_ns)[0] <= 1.1 * seconds(alone.table.first_token_ns)[0]


def test_the_long_prefill_threshold_caps_what_one_request_gets_in_a_step():
    cluster = run(table((0.0, 12, 1), (0.0, 4, 1)), max_num_batched_tokens=8, long_prefill_token_threshold=4)
    assert seconds(cluster.table.first_token_ns) == [3.0, 1.0]


def test_swapping_keeps_the_kv_and_costs_the_copy():
    options = {"blocks": 3, "block_bytes": 1000, "swap_space_bytes": 10_000, "host_link_bytes_per_s": 1000.0}
    swapped = run(table((0.0, 15, 4), (0.0, 15, 4)), preemption="swap_newest", **options)
    usage = swapped.replicas[0].usage
    assert (usage.preemptions, usage.swapped_blocks, usage.recomputed_tokens) == (1, 2, 0)
    # its one block out adds 1 s to the step that preempted, and in again to the step that brings it back
    assert seconds(swapped.table.finish_ns)[0] == 5.0
    assert seconds(swapped.table.finish_ns)[1] == 8.0


def test_a_full_host_pool_means_recompute_and_is_counted():
    cluster = run(table((0.0, 15, 4), (0.0, 15, 4)), preemption="swap_newest", blocks=3, block_bytes=1000)
    usage = cluster.replicas[0].usage
    assert (usage.swap_refused, usage.swapped_blocks) == (1, 0) and usage.recomputed_tokens > 0


def test_one_by_one_copies_cost_by_the_block():
    options = {"blocks": 3, "block_bytes": 1000, "swap_space_bytes": 10_000, "swap_block_s": 0.25}
    cluster = run(table((0.0, 15, 4), (0.0, 15, 4)), preemption="swap_newest", **options)
    assert seconds(cluster.table.finish_ns) == [4.25, 6.5]


@pytest.mark.parametrize("caching", [False, True])
def test_a_preempted_request_resumes_from_its_own_cached_blocks(caching):
    # 7 usable blocks of 4: the second loses all but keeps some cached, since the first takes only one block.
    cluster = run(
        table((0.0, 15, 6), (0.0, 11, 3)), blocks=8, block_size=4, enable_prefix_caching=caching, max_num_seqs=2
    )
    assert cluster.replicas[0].usage.preemptions > 0
    assert (cluster.replicas[0].usage.cached_tokens > 0) == caching


def with_priority(requests, priorities):
    made = table(*requests)
    made.data[INDEX["priority"]] = priorities
    return made


def test_the_urgent_go_first_and_are_sorted_in_again_after_a_preemption():
    requests = with_priority([(0.0, 4, 3), (0.1, 4, 1), (0.2, 4, 1)], [1, 1, 0])
    cluster = run(requests, max_num_seqs=1, ordering="priority")
    assert seconds(cluster.table.first_token_ns) == [1.0, 5.0, 4.0]


def test_the_least_urgent_gives_way_even_if_it_was_there_first():
    requests = with_priority([(0.0, 15, 4), (0.0, 15, 4)], [1, 0])
    options = {"ordering": "priority", "preemption": "recompute_least_urgent"}
    cluster = run(requests, blocks=3, **options)
    assert cluster.table.preemptions.tolist() == [1, 0]


def test_a_victim_that_had_its_tokens_in_this_step_gives_them_back():
    # The less urgent one is admitted first, grows first, and then loses its row to the urgent one in the same step.
    requests = with_priority([(0.0, 15, 4), (0.5, 15, 4)], [1, 0])
    options = {"ordering": "priority", "preemption": "recompute_least_urgent"}
    cluster = run(requests, blocks=3, **options)
    assert cluster.table.preemptions.tolist() == [1, 0]
    assert cluster.table.generated_tokens.tolist() == [4, 4]
    usage = cluster.replicas[0].usage
    assert usage.tokens == 2 * (15 + 3) + usage.recomputed_tokens
