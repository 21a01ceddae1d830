"""SLOs in the spellings of the field: one internal form, and a plain word where a text can't be read."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import UserError, from_mapping, load_text, simulate
from llmqsim.metrics import slo
from llmqsim.scenario.slo_text import SloError, parse_slo

READ = {
    "ttft:500 tpot:50 e2el:2000": {"ttft": 0.5, "tpot": 0.05, "e2e": 2.0},
    "vllm ttft:500": {"ttft": 0.5},
    "ttft p99 < 500 ms": {"ttft_p99": 0.5},
    "p99 ttft<=500ms": {"ttft_p99": 0.5},
    "p99_ttft_ms:500": {"ttft_p99": 0.5},
    "median ttft < 200ms; e2e p95 < 10 s": {"ttft_p50": 0.2, "e2e_p95": 10.0},
    "ttft<2s and tpot<50ms at 95%": {"ttft": 2.0, "tpot": 0.05, "attainment": 0.95},
    "ttft 2s": None,
    "aiperf request_latency:90000": {"e2e": 90.0},
    "dynamo ttft:200 itl:20": {"ttft": 0.2, "tpot": 0.02},
    "aiperf time_to_first_token:370 inter_token_latency:20": {"ttft": 0.37, "tpot": 0.02},
    "guidellm time_to_first_token_ms:200 request_latency:3": {"ttft": 0.2, "e2e": 3.0},
    "inference-perf: time_to_first_token:0.5 time_per_output_token:0.05": {"ttft": 0.5, "tpot": 0.05},
}
REFUSED = {
    "ttft:500 ttft:300": "names ttft twice",
    "ttft<500": "ttft has no unit; write '500 ms' or '500 s'",
    "ttff:500": "unknown latency 'ttff'; did you mean 'ttft'?",
    "mean ttft < 5 ms": "a mean is no promise to a request",
    "ttft p42 < 3 ms": "unknown percentile p42",
    "ttft < 3 s 100 %": "can't be shown by any finite run",
    "guidellm tpot:50": "its TPOT counts the first token, too",
    "vllm itl:50": "its ITL is the gap between chunks",
    "ttft:500 itl:50": "'itl' is not one thing: vLLM's is each gap between chunks",
    "itl < 50 ms": "for the mean write 'tpot < 50 ms', or the tool's name first, 'dynamo itl:20'",
    "p99 inter_token_latency < 50 ms": "is not one thing",
    "inference-perf inter_token_latency:0.05": "give time_per_output_token",
    "vllm ttft:500 inter_token_latency:50": "the gap between chunks",
    "ttft:0.5 tpot:50": "ttft of 0.5 would be 0.5 ms, the unit of a bare number here; write '0.5 s' or '0.5 ms'",
    "inference-perf ttft:500": "write '500 ms' or '500 s'",
    "ttft_ms: 500 s": "ttft has two units, ms in its name and s behind its value",
    "p99 ttft p50 < 500 ms": "names two percentiles of ttft, p99 and p50",
    "ttft > 500 ms": "can't be read",
    "dynamo e2e:50": "dynamo has no 'e2e'; its names: ttft, itl",
    "attainment 0.9": "has no latency target",
    "ttft < 5 parsecs": "unknown unit 'parsecs'",
    "": "has no latency target",
}


@pytest.mark.parametrize("text", [t for t, want in READ.items() if want])
def test_spellings(text):
    assert parse_slo(text) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text):
    with pytest.raises(SloError) as caught:
        parse_slo(text)
    assert REFUSED[text] in str(caught.value)


SERVER = """\
workload: {requests: 400, arrivals: {process: poisson, rate: 4 req/s}, lengths: {prompt: 100, output: 10}}
cost: {model: constant, step: 10 ms}
"""


def test_text_and_keys_are_one_scenario():
    text = load_text(SERVER + 'slo: "ttft:200 tpot:50 e2el:2000"\n')
    keys = load_text(SERVER + "slo: {ttft: 200 ms, tpot: 50 ms, e2e: 2 s}\n")
    assert text.spec == keys.spec


def test_a_variant_may_tighten_what_a_text_said():
    text = SERVER + 'slo: "ttft:200 tpot:50"\nvariants: {strict: {slo.ttft: 100 ms}}\n'
    spec = load_text(text, variant="strict").spec.slo
    assert (spec.ttft, spec.tpot) == (0.1, 0.05)


def test_a_class_has_its_own_in_text():
    scenario = load_text(
        SERVER.replace("}}", "}, classes: {chat: {share: 0.5, slo: 'ttft p90 < 300 ms'}, batch: {share: 0.5}}}")
        + "slo: {e2e: 1 s}\n"
    )
    assert scenario.spec.workload.classes["chat"].slo.ttft_p90 == 0.3
    told = simulate(scenario)
    found = slo.objectives(told.promise, told.table.classes)
    assert [(one.label, one.share) for one in found] == [("chat: ttft_p90", 0.9), ("batch: attainment", 0.95)]


def test_an_unreadable_text_is_a_fault_of_its_line():
    with pytest.raises(UserError, match=r"<text>:3: slo: ttft has no unit \(got 'ttft < 500'\); write '500 ms'"):
        load_text(SERVER + 'slo: "ttft < 500"\n')


def test_a_percentile_target_is_a_share_with_misses():
    scenario = from_mapping(
        {
            "workload": {"requests": 300, "arrivals": {"process": "poisson", "rate": 30}, "lengths": {"prompt": 9, "output": 2}},
            "cost": {"model": "constant", "step": 0.02},
            "engine": {"max_num_seqs": 1},
            "slo": {"ttft_p90": 0.3},
        }
    )
    result = simulate(scenario)
    told = result.summary()
    (one,) = told["slo"]["percentiles"]
    ttft = (result.table.first_token_ns - result.table.arrival_ns) / 1e9
    assert one["share"] == np.mean(ttft <= 0.3) and one["met"] == (np.mean(ttft <= 0.3) >= 0.9)
    assert told["attainment"] is None and told["slo"]["targets"] == {}
    from llmqsim.report.tables import render

    assert "TTFT p90 ≤ 300 ms: " in render(told)
