"""Server options that one campaign leaves unstated: set where it is that campaign and nobody states them, nowhere else."""

from __future__ import annotations

import pytest

from llmqsim.validate.groups import closed_loop_case
from llmqsim.validate.runs import plan

GROUP = {
    "model": "Llama-3.1-8B", "gpu": "H100-SXM-80GB", "engine": "tensorrt-llm", "engine_version": "1.0.0rc3", "tp": 1,
    "isl": 1024, "osl": 128, "campaign": "aic-gap-analysis", "points": [[16, 100.0, 8.0]],
}  # fmt: skip


def planned(**changed):
    return plan(closed_loop_case({**GROUP, **changed}, "rows.csv:2", 0))[0]


def test_a_tensorrt_sweep_has_room_for_one_request_a_step_and_computes_every_prompt():
    run = planned()
    assert run.scenario["engine"]["max_num_batched_tokens"] == 1024 + 128
    assert "prefix" not in run.scenario["workload"]
    assert any("not stated" in reason for reason in run.outside)


def test_what_is_stated_stands():
    assert planned(max_num_batched_tokens=4096).scenario["engine"]["max_num_batched_tokens"] == 4096


@pytest.mark.parametrize(
    ("engine", "version", "recurs", "batching"),
    [
        ("vllm", "0.12.0", True, None),
        ("tensorrt-llm", "1.2.0rc6.post1", True, None),
        ("sglang", "0.5.1.post1", False, None),
        ("sglang", "0.5.6.post2", False, "continuous"),
    ],
)
def test_reuse_and_mixing_are_those_of_the_version(engine, version, recurs, batching):
    run = planned(engine=engine, engine_version=version)
    assert ("prefix" in run.scenario["workload"]) is recurs
    assert run.scenario["engine"].get("batching") == batching


def test_other_campaigns_are_left_alone():
    run = planned(campaign="inferencex")
    assert "max_num_batched_tokens" not in run.scenario["engine"]
    assert not any("not stated" in reason for reason in run.outside)
