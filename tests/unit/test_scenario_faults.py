"""Whatever is wrong with a scenario: every fault at once, each with file, line, key, what was found, what is right."""

from __future__ import annotations

import re

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.scenario.load import load_text

GOOD = """\
workload:
  requests: 10
  arrivals: {process: poisson, rate: 1}
  lengths: {prompt: 5, output: 5}
cost: {model: constant, step: 50 ms}
"""


def faults(text: str, **how) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        load_text(text, "x.yaml", **how)
    return caught.value.faults


def with_set(*sets: str) -> tuple[str, ...]:
    return faults(GOOD, sets=sets)


def test_all_faults_come_at_once_by_line_the_command_line_last():
    text = GOOD.replace("requests: 10", "requests: 0").replace("50 ms", "fifty") + "engine:\n  max_num_seq: 64\n"
    assert faults(text, sets=["replicas=-1", "gpu=7"]) == (
        "x.yaml:2: workload.requests: must be at least 1 (got 0); write a whole number from 1 to 2147483647",
        ("x.yaml:5: cost.step: must be a time (got 'fifty'); write a number and a unit, such as '500 ms' "
        "(units: ns, us, ms, s, min, h, d)"),
        "x.yaml:7: engine.max_num_seq: unknown key (got 64); did you mean 'max_num_seqs'?",
        ("--set: gpu: must be the name of a GPU preset, such as a100-sxm-80gb, or a mapping (got 7); its keys: name, like, "
        "memory, usable_memory, memory_bandwidth, flops, l2, multiprocessors"),
        "--set: replicas: must be at least 1 (got -1); write a whole number from 1 to 10000",
    )


VALUES = {
    "replicas=true": "replicas: must be a whole number (got true); write a number without point, quotes or unit, at least 1",
    "replicas=2.0": "replicas: must be a whole number (got 2.0)",
    "replicas='2'": "replicas: must be a whole number (got '2')",
    "replicas=1e3": "replicas: must be a whole number (got 1000.0)",
    "replicas=0x10": "replicas: must be a whole number (got '0x10')",
    "replicas=[1]": "replicas: must be a whole number (got [1])",
    "replicas={a: 1}": "replicas: must be a whole number (got a mapping with 'a')",
    "replicas=99999999999": "replicas: must be at most 10000 (got 99999999999)",
    "tensor_parallel_size=3": "tensor_parallel_size: must be a power of two (got 3); one of: 1, 2, 4, 8, 16, 32, 64",
    "workload.arrivals.rate=-1 req/s": "workload.arrivals.rate: must be above 0 (got '-1 req/s')",
    "workload.arrivals.rate=0": "workload.arrivals.rate: must be above 0 (got 0)",
    "workload.arrivals.rate=.nan": "workload.arrivals.rate: must be a rate, and finite (got nan)",
    "workload.arrivals.rate=5 rps": "workload.arrivals.rate: unknown unit 'rps' (got '5 rps'); write a number and a unit, "
    "such as '12 req/s' (units: req/s, req/min, req/h)",
    "workload.arrivals.rate=1e99": "workload.arrivals.rate: must be at most 1e9 req/s (got 1e+99)",
    "workload.duration=-.inf": "workload.duration: must be a time, and finite (got -inf)",
    "workload.duration=500 years": "workload.duration: unknown unit 'years'",
    "workload.duration=20000 d": "workload.duration: must be at most 1,000,000,000 s (got '20000 d')",
    "workload.max_tokens=modle": "workload.max_tokens: unknown word (got 'modle'); did you mean 'model'? write model or "
    "output or a whole number ≥ 1",
    "workload.max_tokens=0": "workload.max_tokens: must be at least 1 (got 0)",
    "workload.arrivals.process=poison": "workload.arrivals.process: unknown process (got 'poison'); did you mean "
    "'poisson'? one of: poisson, constant, gamma, weibull, burst, closed_loop",
    "workload.arrivals=5": "workload.arrivals: must be a mapping (got 5); its keys: process, rate, stages, fixed_count, cv, "
    "burstiness, clients, think_time, ramp_up",
    "workload.arrivals.cv=2": "workload.arrivals.cv: belongs to process gamma or weibull, not to poisson (got 2); it takes: "
    "process, rate, stages, fixed_count",
    "workload.lengths.prompt=five": "workload.lengths.prompt: must be a whole number ≥ 1, or a mapping (got 'five'); its "
    "keys: constant, uniform, min, max, lognormal, exponential",
    "workload.lengths.prompt={lognorml: {mean: 5}}": "workload.lengths.prompt: does not tell its kind (got a mapping with "
    "'lognorml'); did you mean 'lognormal'? give one of: constant, uniform, lognormal, exponential",
    "workload.lengths.prompt={uniform: [9, 3]}": "workload.lengths.prompt.uniform: must be in order and at least 1 (got "
    "[9, 3]); write [lowest, highest], such as [100, 900]",
    "workload.lengths.prompt={uniform: 9}": "workload.lengths.prompt.uniform: must be two whole numbers (got 9)",
    "workload.lengths.prompt={constant: 5, exponential: {mean: 3}}": "workload.lengths.prompt: holds keys of "
    "different kinds (constant; exponential); keep those of one kind",
    "workload.lengths.prompt={exponential: {mean: yes}}": "workload.lengths.prompt.exponential.mean: must be a number (got "
    "'yes'); write a number above 0 and at most 1e+09, without quotes or unit",
    "workload.lengths.prompt={lognormal: {mean: 5}}": "workload.lengths.prompt.lognormal.cv: missing; give a number from 0.001",
    "workload.lengths={promt: 5, output: 3}": "workload.lengths.promt: unknown key (got 5); did you mean 'prompt'?",
    "workload.lengths={file: a, prompt: 3}": "workload.lengths: holds keys of different kinds (file; output, prompt); keep "
    "those of one kind",
    "workload.lengths=''": "workload.lengths: must not be empty (got ''); write the name of a length preset, such as "
    "azure-conversation",
    "engine.gpu_memory_utilization=90": "engine.gpu_memory_utilization: must be above 0 and at most 1 (got 90)",
    "engine.gpu_memory_utilization=.nan": "engine.gpu_memory_utilization: must be above 0 and at most 1 (got nan)",
    "engine.kv_cache_dtype=fp16": "engine.kv_cache_dtype: unknown choice (got 'fp16'); one of: auto, bfloat16, fp8",
    "engine.async_scheduling=yes": "engine.async_scheduling: must be true or false (got 'yes')",
    "engine.enable_chunked_prefill=1": "engine.enable_chunked_prefill: must be true or false (got 1)",
    "engine.in_flight=3": "engine.in_flight: must be at most 2 (got 3); write a whole number from 1 to 2",
    "engine.cudagraph_capture_sizes=[1, 0]": "engine.cudagraph_capture_sizes: must be a list of whole numbers from 1 to 1,048,576",
    "engine.host.per_step=-1 ms": "engine.host.per_step: must not be negative (got '-1 ms')",
    "engine.block_size.x=1": "engine.block_size: must be a whole number (got a mapping with 'x')",
    "engine=5": "engine: must be a mapping of keys (got 5); its keys: preset, max_num_seqs",
    "tp=2": "tp: unknown key (got 2); did you mean 'tensor_parallel_size'?",
    "max_num_seqs=5": "max_num_seqs: unknown key (got 5); did you mean 'engine.max_num_seqs'?",
    "engine.replicas=5": "engine.replicas: unknown key (got 5); 'replicas' stands at the top level, not under engine",
    "engine.max-num-seqs=5": "engine.max-num-seqs: unknown key (got 5); did you mean 'max_num_seqs'?",
    "engine.zzz=": "must be key=value (got 'engine.zzz='); 'key=null' resets a key to its default",
    "engine.zzz=null": "engine.zzz: unknown key (got nothing); known: preset, max_num_seqs",
    "variants.x.replicas=3": "variants: unknown key (got a mapping with 'x'); it belongs at the top of a scenario file, not "
    "in an override",
    "slo.attainment=1": "slo.attainment: must be above 0 and below 1 (got 1); write a share such as 0.95; no finite run can "
    "show 100 %",
    "slo.attainment=95%": "slo.attainment: must be a number (got '95%')",
    "slo.itl_p99=50 ms": "slo.itl_p99: unknown key (got '50 ms'); vLLM's is each gap between chunks, Dynamo's, AIPerf's and "
    "GuideLLM's a request's mean: for the mean write tpot; gaps are no target here",
    "slo.ttft=500": "slo.ttft: has no unit (got 500); write '500 ms' or '500 s'",
    "slo.attainment=0.9": "slo: has no latency target; give at least one of ttft, tpot, e2e",
    "slo.ttfp=1 s": "slo.ttfp: unknown key (got '1 s'); did you mean 'ttft'?",
    "run.seed=-1": "run.seed: must be at least 0 (got -1)",
    "run.engine=fast": "run.engine: unknown choice (got 'fast'); one of: auto, compiled, reference",
    "model=5": "model: must be the name of a model preset, such as llama-3.1-8b, or a mapping (got 5); its keys: config",
    "model={confg: c.json}": "model: does not tell its kind (got a mapping with 'confg'); did you mean 'config'? give one "
    "of: config",
    "routing={polcy: x}": "routing.policy: missing; give the name of a routing policy, such as least_outstanding",
    "question=5": "question: must be text (got 5); put it in quotes: '5'",
    "question=true": "question: must be text (got true); put it in quotes: 'true'",
    "cost.model=fixed": "cost.model: unknown model (got 'fixed'); one of: calibrated, constant, affine, stations",
    "cost.base=1 s": "cost.base: belongs to model affine, not to constant (got '1 s'); it takes: model, step",
    "cost={model: affine}": "cost: has no term, so steps would take no time; give base, per_token or another term",
    "cost=null": "model: missing; the calibrated cost model needs one, such as llama-3.1-8b (or give cost.model: constant)",
    "workload.requests=null": "workload.requests: missing; give workload.requests, workload.duration or both, or replay a "
    "trace",
    "workload.arrivals=null": "workload.arrivals: missing; say when requests come, such as {process: poisson, rate: 5 req/s}",
    "workload.lengths=null": "workload.lengths: missing; say how long requests are",
    "workload=null": "workload: missing; it is the traffic; its keys: requests, duration, trace",
    "workload.arrivals={process: constant, rate: null}": "workload.arrivals.rate: missing; give a rate > 0, such as 12 req/s",
    "workload.arrivals.process=gamma": "workload.arrivals.cv: missing; gamma arrivals need cv or burstiness",
    "workload.arrivals={rate: 3, process: burst}": "workload.arrivals.rate: belongs to process poisson or constant or gamma "
    "or weibull, not to burst (got 3); it takes: process",
    "a..b=3": "a..b: is no key; write names joined by single points",
    "replicas": "must be key=value (got 'replicas'); 'key=null' resets a key to its default",
    "=3": "must be key=value (got '=3')",
    "replicas=[1": "replicas: not valid YAML: expected ',' or ']', but got '<stream end>'",
    "engine={block_size: 1, block_size: 2}": "engine.block_size: written twice; keep one",
}


@pytest.mark.parametrize(("override", "expected"), VALUES.items(), ids=VALUES)
def test_a_wrong_value_is_named_with_what_would_be_right(override, expected):
    found = [re.sub(r"^(x\.yaml:\d|--set): ", "", fault) for fault in with_set(override)]
    assert any(fault.startswith(expected) for fault in found), found


CONTRADICTIONS = {
    "trace and arrivals": (
        "workload: {trace: t.csv, arrivals: {process: burst}}\n",
        ("x.yaml:1: workload.arrivals: contradicts workload.trace (x.yaml:1), which brings its own arrivals; set one of "
        "them to null; trace.rate_scale changes the load"),
    ),
    "trace and lengths": (
        "workload:\n  trace: t.csv\n  lengths: azure-code\n",
        ("x.yaml:3: workload.lengths: contradicts workload.trace (x.yaml:2), which brings its own lengths; set one of them "
        "to null"),
    ),
    "cv and burstiness": (
        "workload:\n  requests: 1\n  lengths: a\n  arrivals: {process: gamma, rate: 1, cv: 2, burstiness: 1}\n",
        ("x.yaml:4: workload.arrivals.burstiness: contradicts workload.arrivals.cv (x.yaml:4); give one of them "
        "(burstiness = 1 / cv²)"),
    ),
    "burst without number": (
        "workload: {duration: 1 s, arrivals: {process: burst}, lengths: a}\n",
        "x.yaml:1: workload.requests: missing; a burst comes at time zero, so only a number of requests can end it",
    ),
    "min and max": (
        ("workload:\n  requests: 1\n  arrivals: {process: burst}\n  lengths:\n    prompt: {exponential: {mean: 5}, min: 9,\n"
        "      max: 3}\n    output: 1\n"),
        "x.yaml:6: workload.lengths.prompt.max: is below workload.lengths.prompt.min (x.yaml:5) (got 3, min 9); swap them",
    ),
    "budget below slots": (
        GOOD + "engine:\n  max_num_seqs: 256\n  max_num_batched_tokens: 128\n",
        ("x.yaml:8: engine.max_num_batched_tokens: is below engine.max_num_seqs (x.yaml:7) (got 128 and 256), which vLLM "
        "refuses; give at least 256 tokens, or at most 128 seqs"),
    ),
    "budget below an unchunked prompt": (
        GOOD + "engine: {enable_chunked_prefill: false, max_num_batched_tokens: 2048, max_model_len: 4096}\n",
        ("x.yaml:6: engine.max_num_batched_tokens: is below engine.max_model_len (x.yaml:6) (got 2048 and 4096) while "
        "engine.enable_chunked_prefill (x.yaml:6) is false, which vLLM refuses; give at least 4096 tokens or chunk prefills"),
    ),
    "blocks and bytes": (
        GOOD + "model: m\nengine: {num_gpu_blocks_override: 5, kv_cache_memory_bytes: 1 GiB}\n",
        ("x.yaml:7: engine.num_gpu_blocks_override: contradicts engine.kv_cache_memory_bytes (x.yaml:7); give the KV pool in "
        "blocks or in bytes"),
    ),
    "bytes without model": (
        GOOD + "engine: {kv_cache_memory_bytes: 1 GiB}\n",
        ("x.yaml:6: engine.kv_cache_memory_bytes: needs a model, which says how many bytes a token takes; give model, or "
        "num_gpu_blocks_override"),
    ),
    "in_flight and async_scheduling": (
        GOOD + "engine: {in_flight: 1, async_scheduling: true}\n",
        ("x.yaml:6: engine.in_flight: contradicts engine.async_scheduling (x.yaml:6) (got 1 and true); give one of them "
        "(true is 2, false is 1)"),
    ),
    "eager and captures": (
        GOOD + "engine: {enforce_eager: true, cudagraph_capture_sizes: [1]}\n",
        ("x.yaml:6: engine.cudagraph_capture_sizes: contradicts engine.enforce_eager (x.yaml:6), which captures no graphs; "
        "set one of them to null"),
    ),
}


@pytest.mark.parametrize(("text", "expected"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_names_both_keys(text, expected):
    text = text if "cost" in text else text + "cost: {model: constant, step: 1 ms}\n"
    assert faults(text) == (expected,)


def test_what_agrees_is_no_contradiction():
    load_text(
        GOOD + "engine: {in_flight: 2, async_scheduling: true, enforce_eager: false, cudagraph_capture_sizes: [1]}\n"
    )
    load_text(GOOD + "slo: {ttft: 10 ms, e2e: 9}\n")


def test_contradictions_are_found_in_the_same_go_as_wrong_values():
    found = faults(GOOD + "replicas: x\nengine: {in_flight: 1, async_scheduling: true}\n")
    assert [fault.split(": ")[1] for fault in found] == ["replicas", "engine.in_flight"]


def test_unknown_variants_list_the_known_ones():
    text = GOOD + "variants:\n  big: {replicas: 4}\n  small: {replicas: 1}\n"
    assert faults(text, variant="bgi") == (
        "x.yaml: --variant: unknown variant (got 'bgi'); did you mean 'big'? known: big, small",
    )
    assert faults(GOOD, variant="big") == ("x.yaml: --variant: unknown variant (got 'big'); this scenario has none",)


def test_variants_that_do_not_run_are_checked_too():
    text = (
        GOOD
        + "variants:\n  big: {replicas: 0}\n  odd: {engine.foo: 1}\n  part: {workload.arrivals: {process: gamma}}\n"
    )
    assert [fault.split(" (got")[0] for fault in faults(text)] == [
        "x.yaml:7: variants.big.replicas: must be at least 1",
        "x.yaml:8: variants.odd.engine.foo: unknown key",
    ]


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ("variants: [a]\n", "x.yaml:6: variants: must be a mapping of names (got ['a']); write NAME: {key: value}"),
        ("variants: {a: 5}\n", "x.yaml:6: variants.a: must be a mapping of overrides (got 5); write {key: value}"),
        (
            "variants: {a: {run.seed: 1, run: {seed: 2}}}\n",
            "x.yaml:6: variants.a.run.seed: written twice, first at x.yaml:6; keep one",
        ),
        ("extends: 5\n", "x.yaml:6: extends: must be a file (got 5)"),
    ],
)
def test_variants_and_extends_of_the_wrong_form_are_refused(variants, expected):
    assert faults(GOOD + variants) == (expected,)
