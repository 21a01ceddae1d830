"""Every mistake a user can make: exit code 2, one clear message that names file, row or key, nothing written."""

from __future__ import annotations

import os
import shlex

import pytest

from tests.cli.bad_files import CONFIGS, EVENT_FILES, ROWS, SCENARIOS, TABLES, TRACES
from tests.cli.commands import EVENTS, LENGTHS, SCENARIO, SERVED, TRACE, llmqsim, write

FILES = [
    (f"{kind}: {name}", target, content, argv, fragments)
    for kind, table, target, argv in (
        ("scenario", SCENARIOS, "x.yaml", "run x.yaml"),
        ("trace", TRACES, "x.csv", "run s.yaml --trace x.csv"),
        ("trace to fit", TRACES, "x.csv", "workload fit x.csv -o fitted.yaml"),
        ("lengths", TABLES, "x.yaml", "run s.yaml --set 'workload.lengths={file: x.yaml}'"),
        ("events", EVENT_FILES, "x.csv", "metrics x.csv"),
        ("config", CONFIGS, "x.json", "run served.yaml --set 'model={config: x.json}'"),
        ("explained config", CONFIGS, "x.json", "explain served.yaml --set 'model={config: x.json}'"),
    )
    for name, (content, fragments) in table.items()
    if (kind, name) != ("trace to fit", "lengths only")  # which is fine there
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    return write(tmp_path, s_yaml=SCENARIO, served_yaml=SERVED, t_csv=TRACE, l_yaml=LENGTHS, e_csv=EVENTS,
                 child_yaml="extends: s.yaml\n")  # fmt: skip


def check(here, argv: list[str], fragments: str) -> None:
    """The command fails as it should. fragments : words that stderr must hold; an underscore may stand for a blank."""
    before = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
    said = llmqsim(*argv)
    assert (said.code, said.out) == (2, ""), said
    assert "Traceback" not in said.err
    assert all(line.startswith("llmqsim: ") for line in said.err.splitlines()), said.err
    for fragment in fragments.split():
        assert fragment in said.err or fragment.replace("_", " ") in said.err, (fragment, said.err)
    assert {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()} == before, "something written"


@pytest.mark.parametrize(("target", "content", "argv", "fragments"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_a_file_that_is_not_what_it_should_be(here, target, content, argv, fragments):
    if content is not None:
        (here / target).write_bytes(content if isinstance(content, bytes) else content.encode())
    outputs = {"run": ["--json", "out.json", "--requests", "out.csv"], "metrics": ["--json", "out.json"]}
    words = shlex.split(argv)
    check(here, [*words, *outputs.get(words[0], [])], fragments)


# The command line itself -------------------------------------------------------------------------------------------

LINES = {
    "scenario is a folder": ("run folder", "folder directory"),
    "trace is a folder": ("run s.yaml --trace folder", "folder"),
    "lengths are a folder": ("run s.yaml --set 'workload.lengths={file: folder}'", "folder"),
    "config is a folder": ("run served.yaml --set 'model={config: folder}'", "model.config folder directory config.json"),
    "events are a folder": ("metrics folder", "folder"),
    "fit a folder": ("workload fit folder -o x.yaml", "folder"),
    "a name too long": (f"run s.yaml --trace {'x' * 300}", "xxx"),
    "misspelt file": ("run s.yml", "s.yml did_you_mean 's.yaml'"),
    "json in no folder": ("run s.yaml --json nope/x.json", "nope/x.json nope folder"),
    "json is a folder": ("run s.yaml --json folder", "folder"),
    "json has no name": ("run s.yaml --json ''", "--json"),
    "json too long": (f"run s.yaml --json {'x' * 300}", "xxx"),
    "csv in no folder": ("run s.yaml --json ok.json --requests nope/x.csv", "nope/x.csv folder"),
    "csv is a folder": ("run s.yaml --json ok.json --requests folder", "folder"),
    "one file for two outputs": ("run s.yaml --json same --requests same", "same"),
    "output is the trace": ("run s.yaml --trace t.csv --requests t.csv", "t.csv"),
    "output is the scenario": ("run s.yaml --json s.yaml", "s.yaml"),
    "output is the length table": (
        "run s.yaml --set 'workload.lengths={file: l.yaml}' --json l.yaml", "--json l.yaml input"
    ),
    "output is what it extends": ("run child.yaml --json s.yaml", "--json s.yaml input"),
    "output is the same by another name": ("run s.yaml --json ./folder/../s.yaml", "s.yaml input"),
    "explain in no folder": ("explain s.yaml --json nope/x.json", "nope/x.json folder"),
    "metrics in no folder": ("metrics e.csv --json nope/x.json", "nope/x.json folder"),
    "metrics over its events": ("metrics e.csv --json e.csv", "e.csv"),
    "fit in no folder": ("workload fit many.csv -o nope/x.yaml", "nope/x.yaml nope"),
    "fit into a folder": ("workload fit many.csv -o folder", "folder"),
    "fit over its trace": ("workload fit many.csv -o many.csv", "many.csv"),
    "fit too few rows": ("workload fit t.csv -o x.yaml", "t.csv 3_rows 100"),
    "seed is text": ("run s.yaml --seed abc", "--seed: run.seed whole_number 'abc'"),
    "seed is negative": ("run s.yaml --seed -1", "run.seed at_least_0 -1"),
    "seed too large": ("run s.yaml --seed 99999999999999999999", "run.seed at_most"),
    "unknown variant": ("run s.yaml --variant slwo", "--variant 'slwo' 'slow'"),
    "no variants": ("run served.yaml --variant slow", "--variant none"),
}
SETS = {
    "no value": ("s.yaml workload.requests", "--set key=value 'workload.requests'"),
    "empty value": ("s.yaml workload.requests=", "--set key=value"),
    "no key": ("s.yaml =3", "--set key=value"),
    "unknown key": ("s.yaml nope=1", "--set nope unknown_key workload,"),
    "misspelt key": ("s.yaml engine.max_num_seq=1", "--set engine.max_num_seq did_you_mean 'max_num_seqs'"),
    "not YAML": ("s.yaml workload.requests=[", "--set workload.requests YAML"),
    "model": ("served.yaml model=llama-3.1-9b", "model 'llama-3.1-9b' did_you_mean llama-3.1-8b presets`_lists_all"),
    "gpu": ("served.yaml gpu=a100-sxm-60gb", "gpu 'a100-sxm-60gb' did_you_mean presets`_lists_all"),
    "engine": ("served.yaml engine.preset=vllm-0.99", "engine.preset 'vllm-0.99' Known vllm-0.19"),
    "routing": ("s.yaml routing=least_outstandig", "routing 'least_outstandig' did_you_mean 'least_outstanding'"),
    "routing parameter": ("s.yaml 'routing={policy: round_robin, x: 1}'", "routing 'x' takes"),
    "batching": ("s.yaml engine.batching=orka", "engine.batching 'orka' continuous did_you_mean orca"),
    "ordering": ("s.yaml engine.ordering=shortest", "engine.ordering 'shortest' fcfs"),
    "ordering without predictions": ("s.yaml engine.ordering=sjf", "engine.ordering 'sjf' workload.predictor oracle"),
    "ordering without deadlines": ("s.yaml engine.ordering=edf slo=null", "engine.ordering 'edf' slo ttft e2e"),
    "predictor": ("s.yaml 'workload.predictor={policy: ranker, tau: 2}'", "workload.predictor 'ranker' tau -1 1 2"),
    "preemption": ("s.yaml engine.preemption=swap", "engine.preemption 'swap' recompute_newest"),
    "workload": (
        "s.yaml workload.lengths=azure-conversatoin", "workload.lengths did_you_mean 'azure-conversation'? azure-code"
    ),
    "model too large": (
        "served.yaml model=llama-2-70b", "tensor_parallel_size llama-2-70b not_fit 128.48_GiB larger_GPU"
    ),
    "split unevenly": ("served.yaml tensor_parallel_size=64", "tensor_parallel_size 32_attention_heads 64"),
    "no power of two": ("served.yaml tensor_parallel_size=3", "tensor_parallel_size 3 power_of_two"),
    "length beyond the model": ("served.yaml engine.max_model_len=200000", "max_model_len 131,072 200,000"),
    "length beyond the pool": (
        "served.yaml engine.max_model_len=8192 engine.kv_cache_memory_bytes='512 MiB'", "engine.max_model_len 8,192 4,0"
    ),
    "length beyond the blocks": (
        "s.yaml engine.max_model_len=300 engine.num_gpu_blocks_override=11", "engine.max_model_len 300 160"
    ),
    "budget below seqs": (
        "s.yaml engine.max_num_batched_tokens=64 engine.max_num_seqs=65",
        "engine.max_num_batched_tokens engine.max_num_seqs 64 65 vLLM",
    ),
    "budget below default seqs": ("served.yaml engine.max_num_batched_tokens=8", "max_num_batched_tokens 256 8 vLLM"),
    "budget below a prompt": (
        "served.yaml engine.enable_chunked_prefill=false engine.max_num_batched_tokens=2048", "131,072 2,048 chunked"
    ),
    "no block": ("s.yaml engine.num_gpu_blocks_override=1", "num_gpu_blocks_override 1 2"),
    "pool smaller than all": ("s.yaml engine.num_gpu_blocks_override=7", "workload no_request 110 96"),
    "limit just below all": ("s.yaml engine.max_model_len=109", "workload no_request 110 109"),
    "budget smaller than all": (
        "s.yaml engine.enable_chunked_prefill=false engine.max_num_batched_tokens=64 engine.max_num_seqs=64",
        "max_num_batched_tokens 64",
    ),
    "eager with graphs": ("s.yaml engine.enforce_eager=true 'engine.cudagraph_capture_sizes=[1]'", "contradicts"),
    "attainment of one": ("s.yaml slo.attainment=1", "slo.attainment below_1"),
    "duration before anyone": ("s.yaml 'workload.duration=1 ms'", "workload.duration 0.001"),
    "past the end of the clock": ("s.yaml workload.arrivals.rate=1e-9", "workload clock"),
    "graphs beyond memory": ("served.yaml 'engine.cudagraph_capture_sizes=[1000000000000]'", "cudagraph_capture_sizes"),
    "cv too large": ("s.yaml 'workload.arrivals={process: gamma, rate: 5, cv: 1e200}'", "workload.arrivals cv"),
    "cv too small": ("s.yaml 'workload.arrivals={process: gamma, rate: 5, cv: 1e-200}'", "workload.arrivals cv"),
    "length cv too large": ("s.yaml 'workload.lengths.output={lognormal: {mean: 9, cv: 1e200}}'", "lengths.output cv"),
    "more replicas than memory": ("s.yaml replicas=2000000000", "replicas at_most 10000"),
    "more slots than memory": ("served.yaml engine.max_num_seqs=2147483647", "max_num_seqs at_most"),
    "more requests than memory": ("s.yaml workload.requests=1000000000", "workload GiB_of_memory lower_workload.requests"),
    "host time beyond the clock": ("s.yaml engine.host.per_mixed_layer=1e9", "engine.host.per_mixed_layer 1,000,000_s"),
    "file with a zero byte": (r"""s.yaml 'model={config: "a\0b"}'""", "model"),
}  # fmt: skip

RUNS = {
    "until no nanosecond": ("s.yaml 'run.until=0.1 ns'", "run.until"),
    "steps longer than the clock": ("s.yaml cost.step=1e9", "cost"),
    "KV reads longer than the clock": ("s.yaml 'cost={model: affine, per_kv_token: 1e9}'", "cost"),
}
"""what only a run can stumble over"""


@pytest.mark.parametrize(("argv", "fragments"), LINES.values(), ids=LINES)
def test_a_command_line_that_can_not_be_run(here, argv, fragments):
    write(here, many_csv=TRACE.splitlines()[0] + "\n" + ROWS[:3000].rsplit("\n", 1)[0])
    check(here, shlex.split(argv), fragments)


VALUES = {f"{command}: {name}": (command, *row) for command in ("run", "explain") for name, row in SETS.items()}
VALUES |= {f"run: {name}": ("run", *row) for name, row in RUNS.items()}


@pytest.mark.parametrize(("command", "overrides", "fragments"), VALUES.values(), ids=VALUES)
def test_a_value_that_can_not_be_run(here, command, overrides, fragments):
    path, *sets = shlex.split(overrides)
    check(here, [command, path, *(part for each in sets for part in ("--set", each)), "--json", "out.json"], fragments)


def test_an_old_output_survives_a_run_that_fails(here):
    write(here, out_json="old")
    check(here, ["run", "s.yaml", "--json", "out.json", "--requests", "nope/x.csv"], "nope")
    check(here, ["run", "s.yaml", "--json", "out.json", "--trace", "nope.csv"], "nope.csv")
    assert (here / "out.json").read_text() == "old"


def test_a_hundred_faults_are_not_all_shown(here):
    said = llmqsim("run", "s.yaml", *(part for i in range(100) for part in ("--set", f"nope{i}=1")))
    assert said.code == 2 and len(said.err.splitlines()) == 21 and "and 80 more" in said.err


def test_memory_that_runs_out_is_one_sentence(here, monkeypatch):
    def run_out(*_, **__):
        raise MemoryError

    monkeypatch.setattr("llmqsim.scenario.load.load", run_out)
    said = llmqsim("run", "s.yaml")
    assert (said.code, said.out) == (2, "") and said.err.startswith("llmqsim: not enough memory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_missing_permissions(here):
    (here / "t.csv").chmod(0)
    (here / "folder").chmod(0o500)
    for argv in ("run s.yaml --trace t.csv", "run s.yaml --json folder/x.json"):
        said = llmqsim(*argv.split())
        assert (said.code, said.out) == (2, "") and "ermission" in said.err
