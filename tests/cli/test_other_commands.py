"""`explain`, `metrics`, `workload fit`, `schema`, `presets`, and the parser itself, end to end."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

from llmqsim.version import __version__
from tests.cli.commands import EVENTS, LENGTHS, SCENARIO, SERVED, TRACE, llmqsim, process, strict_json, write


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, s_yaml=SCENARIO, served_yaml=SERVED, t_csv=TRACE, e_csv=EVENTS, l_yaml=LENGTHS)


def words(text: str) -> str:
    return " ".join(text.split())


# explain --------------------------------------------------------------------------------------------------------


def test_explain_names_values_and_origins(here):
    said = llmqsim("explain", "served.yaml", "--set", "replicas=3", "--json", "out.json")
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.lines)) <= 100
    values = strict_json(here / "out.json")["values"]
    assert (values["replicas"]["value"], values["replicas"]["origin"]) == (3, "--set")
    assert (values["model"]["value"], values["model"]["origin"]) == ("llama-3.1-8b", "served.yaml:5")
    assert values["tensor_parallel_size"]["origin"].startswith("default")
    line = next(line for line in said.lines if line.split()[:1] == ["replicas"])
    assert "3" in line and "--set" in line


def test_explain_names_the_variant_as_origin(here):
    said = llmqsim("explain", "s.yaml", "--variant", "slow", "--json", "out.json")
    assert said.code == 0
    assert strict_json(here / "out.json")["values"]["cost.step"]["origin"] == "variant slow (s.yaml:9)"


def test_explain_itemises_the_pool_exactly(here):
    said = llmqsim("explain", "served.yaml", "--json", "out.json")
    kv = strict_json(here / "out.json")["kv"]
    items = {item["name"]: item["bytes"] for item in kv["items"]}
    pool = items.pop("KV pool")
    assert pool == sum(items.values()) > 0
    assert kv["blocks"] == pool // (kv["block_size"] * kv["bytes_per_token"])
    assert f"{kv['blocks']:,}" in said.out
    run = llmqsim("run", "served.yaml", "--json", "run.json")
    assert run.code == 0
    assert strict_json(here / "run.json")["kv"]["blocks"] == kv["blocks"]


def test_explain_is_the_same_in_two_processes(here):
    first, second = (process("explain", "served.yaml", PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first.code == 0 and first == second


# metrics --------------------------------------------------------------------------------------------------------


def test_metrics_of_events_by_arithmetic(here):
    said = llmqsim("metrics", "e.csv", "--json", "out.json")
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.lines)) <= 100
    measured = strict_json(here / "out.json")
    expected = {"ttft_s": [0.1, 0.2], "e2e_s": [0.2, 0.2], "tpot_s": [0.05], "chunk_gap_s": [0.1], "itl_s": [0.05]}
    for name, values in expected.items():
        assert measured[name]["values"] == pytest.approx(values), name
        assert measured[name]["mean"] == pytest.approx(np.mean(values)), name


def test_metrics_of_one_request_with_one_token(here):
    write(here, one_csv="request,arrival,time,tokens\na,0,1,1\n")
    assert llmqsim("metrics", "one.csv", "--json", "out.json").code == 0
    measured = strict_json(here / "out.json")
    assert measured["ttft_s"]["mean"] == 1 and measured["tpot_s"]["mean"] is None


def test_metrics_counts_many_tokens_without_listing_them(here):
    """A chunk of a billion tokens is one entry with a weight, not 8 GB of equal entries."""
    write(here, big_csv=EVENTS.replace("0.2,2", "0.2,300000"))
    assert llmqsim("metrics", "e.csv").code == 0  # imports done
    tracemalloc.start()
    try:
        assert llmqsim("metrics", "big.csv", "--json", "out.json").code == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert strict_json(here / "out.json")["itl_s"]["n"] == 300_000
    assert peak < 4_000_000


# workload fit ---------------------------------------------------------------------------------------------------


def long_trace(rows: int = 3000) -> str:
    draw = np.random.default_rng(7)
    prompt = draw.lognormal(6, 1, rows).astype(int) + 1
    output = draw.lognormal(4, 1, rows).astype(int) + 1
    lines = (f"{i * 0.1:.1f},{p},{o}\n" for i, (p, o) in enumerate(zip(prompt, output, strict=True)))
    return "arrival_s,prompt_tokens,output_tokens\n" + "".join(lines)


def test_fit_makes_a_table_that_run_takes(here):
    write(here, long_csv=long_trace())
    said = llmqsim("workload", "fit", "long.csv", "-o", "fitted.yaml")
    assert (said.code, said.err) == (0, "")
    for figure in ("mean", "CV", "P50", "P99", "last third"):
        assert figure.lower() in said.out.lower()
    assert max(map(len, said.lines)) <= 100
    drawn = llmqsim("run", "s.yaml", "--set", "workload.lengths={file: fitted.yaml}", "--set", "workload.requests=3000",
                    "--set", "workload.arrivals.rate=1", "--json", "out.json")  # fmt: skip
    assert drawn.code == 0, drawn.err
    rows = [line.split(",") for line in long_trace().splitlines()[1:]]
    result = strict_json(here / "out.json")
    assert result["total_input_tokens"] == pytest.approx(sum(int(r[1]) for r in rows), rel=0.15)
    assert result["total_output_tokens"] == pytest.approx(sum(int(r[2]) for r in rows), rel=0.15)


def test_fit_is_the_same_in_two_processes(here):
    write(here, long_csv=long_trace())
    for seed in ("1", "2"):
        done = process("workload", "fit", "long.csv", "-o", f"{seed}.yaml", PYTHONHASHSEED=seed)
        assert done.code == 0, done.err
    # the table's name is that of its file
    first, second = ((here / f"{seed}.yaml").read_text().split("source:")[1] for seed in ("1", "2"))
    assert first == second


def test_fit_takes_a_trace_without_times(here):
    lines = long_trace(200).splitlines()
    write(here, long_csv="\n".join([lines[0], *("," + line.split(",", 1)[1] for line in lines[1:])]) + "\n")
    assert llmqsim("workload", "fit", "long.csv", "-o", "fitted.yaml").code == 0


def test_a_small_table_by_hand_is_enough(here):
    said = llmqsim("run", "s.yaml", "--set", "workload.lengths={file: l.yaml}", "--requests", "out.csv")
    assert said.code == 0, said.err


# schema, presets, the parser ------------------------------------------------------------------------------------


def test_schema_is_json_and_its_table_names_every_top_key(here):
    schema = json.loads(llmqsim("schema").out)
    table = llmqsim("schema", "--markdown").out
    assert {"workload", "model", "gpu", "engine", "slo"} <= set(schema["properties"])
    assert all(f"`{key}`" in table for key in schema["properties"])


@pytest.mark.parametrize(
    "override",
    [f"model={name}" for name in ("llama-3.1-8b", "llama-2-7b", "llama-2-13b", "opt-13b")]
    + [f"gpu={name}" for name in ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm")]
    + [f"engine.preset={name}" for name in ("vllm-0.8", "vllm-0.14", "vllm-0.19")]
    + [f"workload.lengths={name}" for name in ("azure-conversation", "azure-code", "mooncake-conversation")]
    + [f"routing={name}" for name in ("round_robin", "least_outstanding")],
)
def test_every_preset_that_is_listed_can_be_run(here, override):
    listed = words(llmqsim("presets", "--full").out)
    assert override.split("=")[1] in listed
    said = llmqsim("run", "served.yaml", "--set", "workload.requests=5", "--set", override)
    assert said.code == 0, said.err


def test_the_large_preset_runs_on_four_gpus(here):
    said = llmqsim("run", "served.yaml", "--set", "model=llama-2-70b", "--set", "tensor_parallel_size=4")
    assert said.code == 0, said.err


def test_version_and_help(here):
    said = llmqsim("--version")
    assert (said.code, said.out.strip()) == (0, f"llmqsim {__version__}")
    for command in ("", "run", "explain", "metrics", "workload", "workload fit", "schema", "presets"):
        said = llmqsim(*command.split(), "--help")
        assert said.code == 0 and said.out.startswith("usage: llmqsim")


@pytest.mark.parametrize("line", ("", "nonsense", "run", "workload", "workload fit t.csv", "presets gpus --x"))
def test_a_command_that_is_not_one(here, line):
    said = llmqsim(*line.split())
    assert (said.code, said.out) == (2, "") and "--help" in said.err.replace("one of: run", "--help")
