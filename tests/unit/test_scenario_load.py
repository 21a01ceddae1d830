"""Which value wins, where each comes from, and that a resolved scenario can be written down and read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from llmqsim.errors import ScenarioError
from llmqsim.scenario.load import from_mapping, load, load_text

BASE = """\
question: Is it enough?
workload:
  requests: 2000
  arrivals: {process: poisson, rate: 6 req/s}
  lengths:
    prompt: {lognormal: {mean: 900, cv: 1.2}, max: 8000}
    output: 250
model: llama-3.1-8b
gpu: a100-sxm-80gb
replicas: 2
engine:
  max_num_seqs: 64
  host: {per_step: 0.3 ms}
slo: {ttft: 500 ms}
variants:
  big:
    replicas: 4
  small_pool: {engine: {num_gpu_blocks_override: 500}, engine.host.per_step: 1 ms}
  bursty: {workload.arrivals: {process: gamma, cv: 2}}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s").mkdir()
    Path("s/base.yaml").write_text(BASE)
    return "s/base.yaml"


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return name


def test_values_are_si_and_the_name_is_the_files(file):
    scenario = load(file)
    assert scenario.spec.name == "base"
    assert scenario.spec.slo.ttft == 0.5
    assert scenario.spec.engine.host.per_step == 0.0003
    assert scenario.spec.workload.arrivals.rate == 6.0
    assert (scenario.path, scenario.folder, scenario.known_variants) == (
        file,
        Path("s"),
        ("big", "small_pool", "bursty"),
    )


def test_defaults_are_the_documented_ones(file):
    spec = load(file).spec
    assert (spec.tensor_parallel_size, spec.routing.policy, spec.cost.model) == (1, "round_robin", "calibrated")
    assert (spec.engine.preset, spec.workload.max_tokens, spec.slo.attainment) == ("vllm-0.19", "model", 0.95)
    assert (spec.run.seed, spec.run.replication, spec.run.engine, spec.run.until) == (0, 0, "auto", None)


def test_command_line_over_variant_over_file_over_extends(file):
    child = write("s/child.yaml", "extends: base.yaml\nreplicas: 3\nengine: {block_size: 32}\n")
    assert load(child).spec.replicas == 3
    assert load(child).spec.engine.max_num_seqs == 64
    assert load(child, "big").spec.replicas == 4
    assert load(child, "big", ["replicas=5", "replicas=6"]).spec.replicas == 6


def test_every_value_knows_its_origin(file):
    child = write("s/child.yaml", "extends: base.yaml\n\nengine:\n  block_size: 32\n")
    scenario = load(child, ["big", "small_pool"], ["engine.max_num_seqs=8"])
    origin = scenario.origins
    assert origin["engine.block_size"] == "s/child.yaml:4"
    assert origin["workload.arrivals.rate"] == "s/base.yaml:4"
    assert origin["workload.lengths.prompt.lognormal.mean"] == "s/base.yaml:6"
    assert origin["replicas"] == "variant big (s/base.yaml:17)"
    assert origin["engine.host.per_step"] == "variant small_pool (s/base.yaml:18)"
    assert origin["engine.max_num_seqs"] == "--set"
    assert origin["engine.max_model_len"] == origin["cost.model"] == "default"


def test_where_is_the_line_or_the_nearest_ancestors(file):
    scenario = load(file, sets=["engine.block_size=32"])
    assert scenario.where("engine.max_num_seqs") == "s/base.yaml:12"
    assert scenario.where("engine.max_num_batched_tokens") == "s/base.yaml:11"
    assert scenario.where("engine.block_size") == "--set"
    assert scenario.where("run.seed") == "s/base.yaml:1"
    assert scenario.fault("gpu", "unknown (got 'x')") == "s/base.yaml:9: gpu: unknown (got 'x')"


def test_variants_apply_in_the_order_given(file):
    both = BASE + "  huge: {replicas: 9}\n"
    assert load_text(both, variant=["big", "huge"]).spec.replicas == 9
    assert load_text(both, variant=["huge", "big"]).spec.replicas == 4


def test_a_child_inherits_variants_and_may_replace_them(file):
    child = write("s/child.yaml", "extends: base.yaml\nvariants:\n  big: {engine.block_size: 8}\n  none:\n")
    scenario = load(child, "big")
    assert scenario.known_variants == ("big", "small_pool", "bursty", "none")
    assert (scenario.spec.replicas, scenario.spec.engine.block_size) == (2, 8)
    assert load(child, "none") == load(child)


def test_null_resets_to_the_default_at_every_level(file):
    child = write("s/child.yaml", "extends: base.yaml\nengine: {max_num_seqs: null}\nslo: ~\nreplicas:\n")
    spec = load(child).spec
    assert (spec.engine.max_num_seqs, spec.slo, spec.replicas) == (None, None, 1)
    assert spec.engine.host.per_step == 0.0003
    assert load(file, sets=["engine=null"]).spec.engine.max_num_seqs is None
    assert load(file, sets=["engine=null"]).origins["engine.max_num_seqs"] == "default"


def test_lists_are_replaced_whole():
    base = BASE.replace("max_num_seqs: 64", "cudagraph_capture_sizes: [8, 1, 8, 4]")
    assert load_text(base).spec.engine.cudagraph_capture_sizes == (1, 4, 8)
    assert load_text(base, sets=["engine.cudagraph_capture_sizes=[2]"]).spec.engine.cudagraph_capture_sizes == (2,)


def test_a_new_kind_keeps_only_the_keys_it_knows(file):
    bursty = load(file, "bursty").spec.workload.arrivals
    assert (bursty.process, bursty.rate, bursty.cv) == ("gamma", 6.0, 2.0)
    burst = load(file, "bursty", ["workload.arrivals.process=burst"]).to_dict()["workload"]["arrivals"]
    assert burst == {"process": "burst"}
    constant = load(file, sets=["workload.lengths.prompt={exponential: {mean: 5}}"]).to_dict()["workload"]["lengths"]
    assert constant == {"prompt": {"exponential": {"mean": 5.0}}, "output": 250}


def test_the_same_kind_merges_key_by_key(file):
    lengths = load(file, sets=["workload.lengths.prompt.lognormal.cv=3"]).to_dict()["workload"]["lengths"]["prompt"]
    assert lengths == {"lognormal": {"mean": 900.0, "cv": 3.0}, "max": 8000}


def test_a_preset_replaces_distributions_and_back(file):
    assert load(file, sets=["workload.lengths=azure-code"]).spec.workload.lengths == "azure-code"
    back = load(file, sets=["workload.lengths=azure-code", "workload.lengths={prompt: 1, output: 2}"])
    assert back.to_dict()["workload"]["lengths"] == {"prompt": 1, "output": 2}


def test_a_later_layer_may_use_the_other_spelling(file):
    spec = load(file, "bursty", ["workload.arrivals.burstiness=0.25", "engine.kv_cache_memory_bytes=1 GiB"]).spec
    assert (spec.workload.arrivals.cv, spec.workload.arrivals.burstiness) == (None, 0.25)
    pool = load(file, "small_pool", ["engine.kv_cache_memory_bytes=1 GiB"]).spec.engine
    assert (pool.num_gpu_blocks_override, pool.kv_cache_memory_bytes) == (None, 2**30)


def test_a_trace_on_the_command_line_replaces_arrivals_and_lengths(file):
    workload = load(file, sets=["workload.trace=t.csv", "workload.trace.rate_scale=2"]).spec.workload
    assert (workload.arrivals, workload.lengths, workload.trace.rate_scale) == (None, None, 2.0)
    assert workload.requests == 2000


def test_a_short_trace_replaces_a_long_one():
    text = "workload: {trace: {file: a.csv, format: azure, rate_scale: 3}}\ncost: {model: constant, step: 1 ms}\n"
    trace = load_text(text, sets=["workload.trace=b.csv"]).spec.workload.trace
    assert (trace.file, trace.format, trace.rate_scale) == ("b.csv", "auto", 1.0)


def test_files_are_relative_to_whoever_wrote_them(file):
    write("lib/base.yaml", "workload: {trace: t/a.csv}\nmodel: {config: ../c.json}\ngpu: h100-sxm\n")
    child = write("s/child.yaml", "extends: ../lib/base.yaml\nvariants:\n  own: {workload.trace: mine.csv}\n")
    inherited = load(child)
    assert inherited.spec.workload.trace.file == "../lib/t/a.csv"
    assert inherited.file(inherited.spec.workload.trace.file) == "lib/t/a.csv"
    assert inherited.file(inherited.spec.model.config) == "c.json"
    assert load(child, "own").spec.workload.trace.file == "mine.csv"
    told = load(child, sets=["workload.trace=data/x.csv"])
    assert told.file(told.spec.workload.trace.file) == "data/x.csv"
    absolute = load(child, sets=["workload.trace=/data/x.csv"])
    assert absolute.file(absolute.spec.workload.trace.file) == "/data/x.csv"


def test_python_users_give_mappings_for_files_and_for_sets(file):
    made = from_mapping(yaml.safe_load(BASE), sets={"replicas": 7, "engine": {"block_size": 8}})
    assert (made.spec.replicas, made.spec.engine.block_size, made.path) == (7, 8, None)
    assert made.where("engine.max_num_seqs") == "<mapping>"


def test_numpy_numbers_and_paths_are_plain_values():
    np = pytest.importorskip("numpy")
    given = {"workload": {"trace": Path("t.csv")}, "cost": {"model": "constant", "step": np.float64(0.5)}}
    spec = from_mapping(given | {"replicas": np.int64(3)}).spec
    assert (spec.workload.trace.file, spec.cost.step, spec.replicas) == ("t.csv", 0.5, 3)


def test_routing_passes_parameters_of_its_policy(file):
    assert load(file, sets=["routing=least_outstanding"]).spec.routing.parameters == {}
    made = load(file, sets=["routing={policy: mine, every: 0.1}"]).spec.routing
    assert (made.policy, made.parameters) == ("mine", {"every": 0.1})
    switched = load(file, sets=["routing={policy: mine, every: 0.1}", "routing.policy=other"]).spec.routing
    assert switched.parameters == {}


def test_engine_overrides_speak_the_names_of_engine_options(file):
    spec = load(
        file, sets=["engine.async_scheduling=false", "engine.enforce_eager=true", "engine.max_model_len=auto"]
    ).spec
    assert spec.engine.overrides() == {
        "max_num_seqs": 64,
        "max_model_len": "auto",
        "in_flight": 1,
        "cudagraph_capture_sizes": (),
    }


def test_a_scenario_is_frozen(file):
    scenario = load(file)
    with pytest.raises(ValueError, match="frozen"):
        scenario.spec.replicas = 5
    with pytest.raises(AttributeError):
        scenario.path = "x"


TRIPS = {
    "plain": ([], []),
    "variants": (["small_pool", "bursty"], []),
    "trace": ([], ["workload.trace={file: t.csv, format: azure}"]),
    "affine": ([], ["cost={model: affine, base: 0.9 s, per_prefill_token: 0.1 s / 1024}", "run.until=1 h"]),
    "uniform": ([], ["workload.lengths.output={uniform: [3, 9], min: 4}", "workload.max_tokens=12"]),
    "burst": ([], ["workload.arrivals={process: burst}", "routing={policy: mine, every: 0.1}"]),
    "sizes": ([], ["engine.kv_cache_memory_bytes=10.5 GiB", "engine.cudagraph_capture_sizes=[4, 1]"]),
    "config": ([], ["model={config: c/config.json}", "workload.lengths={file: l.yaml}"]),
}


@pytest.mark.parametrize(("variants", "sets"), TRIPS.values(), ids=TRIPS)
def test_a_resolved_scenario_reads_back_equal_also_through_json(file, variants, sets):
    scenario = load(file, variants, sets)
    plain = scenario.to_dict()
    again = from_mapping(json.loads(json.dumps(plain, allow_nan=False)), folder="s")
    assert again == scenario
    assert again.to_dict() == plain
    assert load_text(yaml.safe_dump(plain)).spec == scenario.spec


def test_affine_costs_lose_nothing_on_the_way():
    text = "workload: {requests: 1, arrivals: {process: burst}, lengths: {prompt: 1, output: 1}}\n"
    cost = load_text(text + 'cost: {model: affine, base: 0.9 s, per_prefill_token: "1 s / 1024"}\n').spec.cost
    assert cost.per_prefill_token * 1e9 * 2048 == 2e9
    assert (cost.base, cost.per_token) == (0.9, 0.0)


def test_extends_may_be_a_chain_and_may_not_be_a_circle(file):
    write("s/b.yaml", "extends: base.yaml\nreplicas: 5\n")
    assert load(write("s/c.yaml", "extends: b.yaml\n")).spec.replicas == 5
    write("s/x.yaml", "extends: y.yaml\n")
    write("s/y.yaml", "\nextends: x.yaml\n")
    with pytest.raises(ScenarioError) as caught:
        load("s/x.yaml")
    assert caught.value.faults == (
        "s/y.yaml:2: extends: goes in a circle (s/x.yaml -> s/y.yaml -> s/x.yaml); remove one 'extends'",
    )


def test_faults_of_an_extended_file_name_that_file(file):
    write("s/bad.yaml", BASE.replace("replicas: 2", "replicas: two"))
    child = write("s/child.yaml", "extends: bad.yaml\nreplicsa: 3\n")
    with pytest.raises(ScenarioError) as caught:
        load(child)
    assert [fault.split(" (got")[0] for fault in caught.value.faults] == [
        "s/child.yaml:2: replicsa: unknown key",
        "s/bad.yaml:10: replicas: must be a whole number",
    ]


def test_a_file_that_extends_nothing_readable_says_so_at_its_line(file):
    child = write("s/child.yaml", "name: x\nextends: bse.yaml\n")
    with pytest.raises(ScenarioError) as caught:
        load(child)
    assert caught.value.faults == ("s/child.yaml:2: extends: s/bse.yaml: no such file; did you mean 'base.yaml'?",)
