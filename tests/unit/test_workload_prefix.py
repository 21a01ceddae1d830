"""What prompts have in common: groups, recurring prompts, a trace's own block ids."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.errors import ScenarioError, UserError
from llmqsim.workload.prefix import recur, shared_blocks, trace_blocks

PROMPTS = np.array([40, 64, 20, 50, 33, 16])


def blocks(spec: dict, prompt=PROMPTS, size: int = 16):
    which, prompt = recur(spec, prompt, 0, 0)
    table = shared_blocks(spec, which, prompt, size, 0, 0)
    return [table.row(i) for i in range(len(prompt))]


def test_a_shared_start_covers_only_full_blocks_of_it():
    rows = blocks({"shared_tokens": 40})
    assert [len(row) for row in rows] == [2, 2, 1, 2, 2, 1]
    assert all(row == rows[0][: len(row)] for row in rows)


def test_groups_share_within_and_not_across():
    rows = blocks({"shared_tokens": 16, "groups": 2, "order": "round_robin"})
    assert rows[0] == rows[2] == rows[4] != rows[1] == rows[3] == rows[5]


def test_recurring_prompts_are_equal_in_length_and_content():
    spec = {"distinct_prompts": 2, "order": "round_robin"}
    _, prompt = recur(spec, PROMPTS, 0, 0)
    assert prompt.tolist() == [40, 64] * 3
    rows = blocks(spec)
    assert rows[0] == rows[2] == rows[4] and rows[1] == rows[3] == rows[5]
    assert [len(row) for row in rows[:2]] == [2, 4] and not set(rows[0]) & set(rows[1])


def test_recurring_prompts_of_a_group_share_its_start():
    rows = blocks({"distinct_prompts": 4, "groups": 2, "shared_tokens": 16, "order": "round_robin"})
    assert rows[0][0] == rows[2][0] and rows[0][1] != rows[2][1:2]
    assert rows[0][0] != rows[1][0]


def test_the_choice_of_a_row_does_not_depend_on_how_many_there_are():
    spec = {"distinct_prompts": 3}
    short, long = (recur(spec, np.arange(1, n), 5, 1)[0] for n in (50, 100))
    assert (short == long[:49]).all() and set(short.tolist()) == {0, 1, 2}


def test_trace_ids_chain_from_the_front():
    table = trace_blocks([[1, 2], [1, 3], [2, 2], [1, 2]], np.array([64, 64, 64, 40]), 32, 16, "key")
    rows = [table.row(i) for i in range(4)]
    assert rows[0][:2] == rows[1][:2] and not set(rows[0][2:]) & set(rows[1])
    assert not set(rows[0]) & set(rows[2])  # the same id behind another start is another content
    assert rows[3] == rows[0][:2]  # 40 tokens fill two blocks of 16


def test_trace_ids_of_smaller_blocks_than_the_engine_has():
    table = trace_blocks([[1, 2, 3, 4], [1, 2, 3, 9]], np.array([64, 64]), 16, 32, "key")
    assert table.row(0)[0] == table.row(1)[0] and table.row(0)[1] != table.row(1)[1]


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ScenarioError, match="don't divide"):
        trace_blocks([[1]], np.array([64]), 48, 32, "workload.prefix.hash_block_tokens")


def chat(**prefix) -> dict:
    return {
        "workload": {
            "requests": 200,
            "arrivals": {"process": "poisson", "rate": 5},
            "lengths": {"prompt": 1000, "output": 20},
            "prefix": prefix or None,
        },
        "cost": {"model": "affine", "base": "5 ms", "per_prefill_token": "100 us"},
        "engine": {"num_gpu_blocks_override": 5000, "enable_prefix_caching": True},
    }


def test_recurring_prompts_cost_one_block_of_prefill_once_they_are_known():
    summary = simulate(from_mapping(chat(distinct_prompts=10, order="round_robin"))).summary()
    # 1,000 tokens are 62 full blocks and a rest of 8: each prompt is computed once, then 992 tokens are hit
    assert summary["prefix_cache"]["hit_tokens"] == 190 * 992
    cold = simulate(from_mapping(chat())).summary()
    assert cold["prefix_cache"]["hit_tokens"] == 0
    assert summary["ttft_s"]["p50"] < 0.2 * cold["ttft_s"]["p50"]


def test_a_warm_start_hits_from_the_first_request_on():
    summary = simulate(from_mapping(chat(distinct_prompts=10, warm=True))).summary()
    assert summary["prefix_cache"]["hit_tokens"] == 200 * 992


def test_prefixes_without_a_cache_are_told():
    scenario = chat(shared_tokens=500)
    scenario["engine"]["enable_prefix_caching"] = False
    summary = simulate(from_mapping(scenario)).summary()
    assert any("enable_prefix_caching is off" in note for note in summary["notes"])


def test_a_trace_with_block_ids_is_replayed_with_its_hits(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{i},1024,5,{7} {8 + i % 2}\n" for i in range(6))
    path.write_text("arrival_s,prompt_tokens,output_tokens,prefix_hash_blocks\n" + rows)
    scenario = {**chat(), "workload": {"trace": str(path)}}
    table = simulate(from_mapping(scenario)).table
    assert table.cached_tokens.tolist() == [0, 512, 1008, 1008, 1008, 1008]


def test_block_ids_that_are_no_numbers_are_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,prefix_hash_blocks\n0,10,5,1 2\n1,10,5,1 x\n")
    with pytest.raises(UserError, match=r"prefix_hash_blocks', request 2.*1 x"):
        simulate(from_mapping({**chat(), "workload": {"trace": str(path)}}))


def test_equal_stamps_are_spread_over_the_time_to_the_next(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{t},10,5\n" for t in (0, 0, 0, 3, 3, 6)))
    scenario = {**chat(), "workload": {"trace": {"file": str(path), "spread_stamps": True}}}
    arrivals = simulate(from_mapping(scenario)).table.arrival_ns / 1e9
    assert arrivals.tolist() == [0, 1, 2, 3, 4.5, 6]
