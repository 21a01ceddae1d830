"""Files that are not what they should be: what is in each (None: there is none), and what the message must hold.

An underscore in the expected words may stand for a blank.
"""

from __future__ import annotations

import gzip
import json

from tests.cli.commands import AZURE, CONFIG, EVENTS, LENGTHS, SCENARIO, TRACE

BINARY = bytes(range(256))
CUT_GZ = gzip.compress(TRACE.encode() * 200, mtime=0)[:60]
ROWS = "".join(f"{i},10,5\n" for i in range(1, 20_000))


def config(**changes: object) -> str:
    """A config.json with keys changed; None takes a key away."""
    return json.dumps({k: v for k, v in {**CONFIG, **changes}.items() if v is not None})


def trace(old: str, new: str) -> str:
    assert old in TRACE
    return TRACE.replace(old, new)


def events(old: str, new: str) -> str:
    assert old in EVENTS
    return EVENTS.replace(old, new)


def lengths(old: str, new: str) -> str:
    assert old in LENGTHS
    return LENGTHS.replace(old, new)


def scenario(old: str, new: str) -> str:
    assert old in SCENARIO
    return SCENARIO.replace(old, new)


SCENARIOS = {
    "missing": (None, "x.yaml no_such_file"),
    "empty": ("", "x.yaml empty"),
    "only comments": ("# nothing\n", "x.yaml empty"),
    "binary": (BINARY, "x.yaml binary"),
    "gzip": (gzip.compress(SCENARIO.encode(), mtime=0), "x.yaml binary"),
    "latin-1": (scenario("up?", "für?").encode("latin-1"), "x.yaml:1: UTF-8 0xfc"),
    "truncated": (SCENARIO[: SCENARIO.index("poisson") + 3], "x.yaml:4: cut_off"),
    "tabs": (scenario("  requests", "\trequests"), "x.yaml:3: tabs"),
    "a list": ("- a\n", "x.yaml:1: mapping ['a']"),
    "two documents": (SCENARIO + "---\n", "x.yaml: document"),
    "written twice": (SCENARIO + "slo: {e2e: 1 s}\n", "x.yaml:11: slo line_7"),
    "unknown key": (scenario("requests:", "request:"), "x.yaml:3: workload.request: did_you_mean 'requests'?"),
    "wrong unit": (scenario("200 ms", "200 msec"), "x.yaml:7: slo.ttft '200_msec' ms,"),
    "text for a number": (scenario("150", "many"), "x.yaml:3: workload.requests: whole_number 'many'"),
    "negative": (scenario("150", "-3"), "x.yaml:3: at_least_1 -3"),
    "NaN": (scenario("4 req/s", ".nan"), "x.yaml:4: workload.arrivals.rate nan"),
    "no traffic": ("cost: {model: constant, step: 1 s}\n", "x.yaml:1: workload: missing"),
    "no rate": (scenario(", rate: 4 req/s", ""), "x.yaml:4: workload.arrivals.rate: missing"),
    "two faults": (scenario("150", "0").replace("10 ms}", "-1 s}"), "x.yaml:3: workload.requests x.yaml:6: cost.step"),
    "fault in a variant": (scenario("replicas: 2", "replicas: 0"), "x.yaml:10: variants.two.replicas at_least_1"),
    "extends itself": ("extends: x.yaml\n", "x.yaml:1: extends circle"),
    "extends nothing": ("extends: nope.yaml\n" + SCENARIO, "x.yaml:1: extends: nope.yaml no_such_file"),
    "cv and burstiness": (
        scenario("poisson,", "gamma, cv: 2, burstiness: 1,"), "x.yaml:4: burstiness contradicts workload.arrivals.cv"
    ),
    "trace and arrivals": (SCENARIO.replace("  req", "  trace: t.csv\n  req"), "arrivals contradicts workload.trace"),
    "bad anchors": ("a: &a [b, *a]\n" + SCENARIO, "x.yaml:1: nested"),
}  # fmt: skip

TRACES = {
    "missing": (None, "x.csv no_such_file"),
    "empty": ("", "x.csv empty arrival_s"),
    "header only": (TRACE.splitlines()[0], "x.csv no_rows"),
    "binary": (BINARY, "x.csv binary"),
    "UTF-16": (TRACE.encode("utf-16"), "x.csv binary"),
    "truncated gz": (CUT_GZ, "x.csv truncated"),
    "wrong column": (trace("prompt_tokens", "promt_tokens"), "x.csv:1: 'prompt_tokens' did_you_mean 'promt_tokens'"),
    "column twice": (trace("output_tokens", "prompt_tokens"), "x.csv:1: 'prompt_tokens' twice"),
    "decimal commas": (TRACE.replace(",", ";").replace(".", ","), "x.csv:2: arrival_s '0,5' decimal_comma"),
    "spaces": (TRACE.replace(",", " "), "x.csv:1: commas"),
    "negative time": (trace("0.5", "-0.5"), "x.csv:2: arrival_s '-0.5' at_least_0"),
    "NaN time": (trace("1.0", "nan"), "x.csv:3: arrival_s 'nan'"),
    "infinite time": (trace("2.5", "inf"), "x.csv:4: arrival_s 'inf'"),
    "milliseconds": (trace("2.5", "1700000000000"), "x.csv:4: arrival_s milliseconds"),
    "out of order": (trace("2.5", "0.7"), "x.csv:4: arrival_s '0.7' '1.0' line_3"),
    "zero prompt": (trace("20", "0"), "x.csv:3: prompt_tokens at_least_1 '0'"),
    "NaN output": (trace(",7", ",nan"), "x.csv:4: output_tokens 'nan'"),
    "empty length": (trace(",7", ","), "x.csv:4: output_tokens ''"),
    "fraction": (trace("20", "20.5"), "x.csv:3: prompt_tokens whole_number '20.5'"),
    "too long": (trace("20", "3000000000"), "x.csv:3: prompt_tokens at_most '3000000000'"),
    "short row": (trace("1.0,20,6", "1.0,20"), "x.csv:3: 2_fields 3"),
    "one bad row of many": (TRACE.splitlines()[0] + "\n" + ROWS + "20000,10,0\n" + "20001,5,5\n",
                            "x.csv:20001: output_tokens '0'"),
    "two bad rows": (trace("0.5", "x").replace("30", "y"), "x.csv:2: 'x' x.csv:4: 'y'"),
    "bad Azure stamp": (AZURE.replace("2023-11-16 18:15:47", "16/11/2023"), "x.csv:3: TIMESTAMP '16/11/2023"),
    "lengths only": (trace("0.5", "").replace("1.0", "").replace("2.5", ""), "x.csv arrival_s lengths_only"),
}  # fmt: skip

TABLES = {
    "missing": (None, "x.yaml no_such_file"),
    "empty": ("", "x.yaml empty"),
    "binary": (BINARY, "x.yaml binary"),
    "truncated": (LENGTHS[:30], "x.yaml YAML"),
    "a scenario": (SCENARIO, "x.yaml kind 'bins'"),
    "wrong kind": (lengths("bins", "bin"), "x.yaml kind 'bin'"),
    "wrong key": (lengths("weight: [3, 1]", "wieght: [3, 1]"), "x.yaml:2: prompt.wieght did_you_mean 'weight'"),
    "zero length": (lengths("[10, 50]", "[0, 50]"), "x.yaml:2: prompt.low[0] at_least_1"),
    "NaN weight": (lengths("[3, 1]", "[.nan, 1]"), "x.yaml:2: prompt.weight[0] nan"),
    "negative weight": (lengths("[3, 1]", "[-3, 1]"), "x.yaml:2: prompt.weight[0] -3"),
    "no weight": (lengths("[3, 1]", "[0, 0]"), "x.yaml:2: prompt.weight zero"),
    "overlap": (lengths("[40, 90]", "[60, 90]"), "x.yaml:2: prompt.low[1] above"),
    "ragged": (lengths("[3, 1]", "[3]"), "x.yaml:2: prompt equally_long"),
    "no outputs": (lengths("output:", "outputs:"), "x.yaml output"),
}

EVENT_FILES = {
    "missing": (None, "x.csv no_such_file"),
    "empty": ("", "x.csv empty request,arrival,time,tokens"),
    "header only": (EVENTS.splitlines()[0], "x.csv no_rows"),
    "binary": (BINARY, "x.csv not_a_text_file"),
    "truncated gz": (CUT_GZ, "x.csv cut_off"),
    "wrong column": (events("tokens", "token"), "x.csv:1: tokens did_you_mean 'token'"),
    "negative time": (events("0.2", "-1"), "x.csv:3: time '-1'"),
    "NaN time": (events("0.2", "nan"), "x.csv:3: time 'nan'"),
    "before arrival": (events("0.7", "0.3"), "x.csv:4: time arrival '0.3'"),
    "out of order": (events("0.2", "0.05"), "x.csv:3: time order '0.05' line_2"),
    "two arrivals": (events("a,0,0.2", "a,0.1,0.2"), "x.csv:3: arrival 'a' line_2"),
    "zero tokens": (events("0.2,2", "0.2,0"), "x.csv:3: tokens '0'"),
    "no name": (events("b,", ","), "x.csv:4: request empty"),
    "short row": (events("b,0.5,0.7,1", "b,0.5"), "x.csv:4: 2_fields"),
    "long row": (events("0.7,1", "0.7,1,9,9"), "x.csv:4: 6_fields"),
    "open quote": (EVENTS + '"c,1,2,3\n', "x.csv:5: CSV"),
    "more tokens than memory": (events("0.2,2", "0.2,1000000000000"), "x.csv:3: tokens '1000000000000'"),
}

CONFIGS = {
    "missing": (None, "x.json no_such_file"),
    "empty": ("", "x.json JSON"),
    "binary": (BINARY, "x.json text"),
    "truncated": (config()[:60], "x.json:1: JSON"),
    "a list": ("[]", "x.json object list"),
    "nested too deeply": ("[" * 100_000, "x.json deeply"),
    "too many digits": ('{"hidden_size": ' + "9" * 5000 + "}", "x.json"),
    "missing dimensions": (config(hidden_size=None, vocab_size=None), "hidden_size: missing vocab_size: missing"),
    "text for a number": (config(hidden_size="2048"), "x.json hidden_size whole_number '2048'"),
    "zero layers": (config(num_hidden_layers=0), "x.json num_hidden_layers from_1 0"),
    "heads that don't divide": (config(num_key_value_heads=5), "x.json num_key_value_heads 32 5"),
    "more heads than width": (config(hidden_size=16), "x.json num_attention_heads 32 16"),
    "experts without their number per token": (config(num_local_experts=8), "x.json num_experts_per_tok"),
    "latent attention without its head sizes": (config(kv_lora_rank=512), "x.json qk_rope_head_dim"),
    "quantised": (config(quantization_config={"bits": 4}), "x.json quantization_config"),
    "window is text": (config(sliding_window="wide"), "x.json sliding_window 'wide'"),
    "unknown dtype": (config(torch_dtype="int4"), "x.json torch_dtype bfloat16 'int4'"),
    "a flag in quotes": (config(tie_word_embeddings="false"), "x.json tie_word_embeddings true_or_false 'false'"),
    "dtype is a list": (config(torch_dtype=["bfloat16"]), "x.json torch_dtype ['bfloat16']"),
    "gpt2 width is text": (
        config(model_type="gpt2", hidden_size=None, intermediate_size=None, n_embd="x"), "x.json n_embd 'x'"
    ),
}  # fmt: skip
