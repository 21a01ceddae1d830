"""The schema as documentation: every key is explained, and the published files say what the classes say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from llmqsim import policies, registry
from llmqsim.scenario import json_schema, markdown, shape
from llmqsim.scenario.deployment import Admission, Batching, Ordering, Preemption, Routing
from llmqsim.scenario.load import load, load_text
from llmqsim.scenario.schema import ScenarioSpec

ROOT = Path(__file__).parents[2]
POLICIES = {"admission": Admission, "routing": Routing, "batching": Batching, "ordering": Ordering, "preemption": Preemption}
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))


def models():
    """All classes of the schema, by where they stand."""
    yield "top", ScenarioSpec
    for path in shape.all_paths():
        for its in shape.at(path):
            for kind, model in its.models.items():
                yield f"{'.'.join(path)} {kind}", model


def test_published_files_are_up_to_date():
    told = (
        "write it again with `llmqsim schema > docs/scenario.schema.json; llmqsim schema --markdown > docs/scenario.md`"
    )
    assert json.loads((ROOT / "docs/scenario.schema.json").read_text()) == json_schema(), told
    assert (ROOT / "docs/scenario.md").read_text(encoding="utf-8").rstrip() == markdown().rstrip(), told


def test_every_part_and_every_key_is_explained_in_whole_sentences():
    for place, model in models():
        assert (model.__doc__ or "").strip().endswith("."), place
        for name, (info, _) in shape.fields(model).items():
            assert re.fullmatch(r"[`A-Za-z0-9].*[.?]", info.description or ""), f"{place}.{name}"


def test_every_key_takes_a_value_that_can_be_described():
    for place, model in models():
        for name, (_, its) in shape.fields(model).items():
            assert its.rule or its.models or its.named, f"{place}.{name}"


def test_the_page_lists_every_key():
    page = markdown()
    for path in shape.all_paths():
        assert f"| `{path[-1]}` |" in page or path[-1] == shape.ANY_NAME, path


def test_the_examples_of_the_page_and_the_rules_hold():
    block = re.search(r"```yaml\n(.*?)```", markdown(), re.S)
    scenario = load_text(block.group(1), variant=["four", "fp8"])
    assert (scenario.spec.replicas, scenario.spec.engine.kv_cache_dtype) == (4, "fp8")
    for place, model in models():
        for name, (_, its) in shape.fields(model).items():
            for example in re.findall(r"such as `([^`]+)`", its.rule.says if its.rule else ""):
                its.rule.check(example)
                assert example in json.dumps(its.rule.json), f"{place}.{name}"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_scenario_of_the_project_loads_with_each_of_its_variants(path):
    scenario = load(path)
    assert scenario.spec.question
    assert path.read_text(encoding="utf-8").startswith("# ")
    for variant in scenario.known_variants:
        assert load(path, variant) != scenario
    assert matches(yaml.safe_load(path.read_text()), json_schema())


def matches(value, schema, root=None) -> bool:
    """Does a value satisfy a JSON Schema? The keywords that ours uses, and no others."""
    root = root or schema
    known = {
        "$ref",
        "$schema",
        "$defs",
        "title",
        "description",
        "default",
        "examples",
        "type",
        "enum",
        "anyOf",
        "const",
    }
    known |= {"properties", "additionalProperties", "items", "minItems", "maxItems", "minLength", "pattern"}
    known |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        return matches(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    types |= {"integer": int, "number": (int, float)}
    wanted = schema.get("type", [])
    wanted = wanted if isinstance(wanted, list) else [wanted]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    numeric = {"integer", "number"}
    tests = [
        not wanted or any(isinstance(value, types[t]) and (number or t not in numeric) for t in wanted),
        value in schema.get("enum", [value]),
        "anyOf" not in schema or any(matches(value, option, root) for option in schema["anyOf"]),
        not isinstance(value, str) or re.search(schema.get("pattern", ""), value) is not None,
        not number or schema.get("minimum", value) <= value <= schema.get("maximum", value),
        not number or schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1),
    ]
    if isinstance(value, dict) and "properties" in schema:
        rest = schema.get("additionalProperties", True)
        for key, inner in value.items():
            part = schema["properties"].get(key, rest)
            tests.append(matches(inner, part, root) if isinstance(part, dict) else part)
    if isinstance(value, list) and "items" in schema:
        tests += [matches(item, schema["items"], root) for item in value]
        tests.append(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)))
    return all(tests)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("workload: {trace: t.csv}", True),
        ("workload: {trace: {file: t.csv, rate_scale: 2}}", True),
        ("workload: {lengths: {prompt: 5, output: {lognormal: {mean: 5, cv: 1}, max: 9}}}", True),
        ("workload: {arrivals: {process: gamma, rate: 5 req/s, cv: 2}}", True),
        ("{routing: least_outstanding, engine: {max_model_len: auto}}", True),
        ("{extends: base.yaml, variants: {a: {engine.block_size: 8}, b: }}", True),
        ("cost: {model: affine, per_prefill_token: 0.1 s / 1024}", True),
        ("workload: {trcae: t.csv}", False),
        ("workload: {arrivals: {process: poisson, cv: 2}}", False),
        ("workload: {lengths: {prompt: 0, output: 1}}", False),
        ("engine: {max_num_seqs: 2.5}", False),
        ("engine: {kv_cache_dtype: fp16}", False),
        ("replicas: 0", False),
        ("cost: {model: constant, step: fifty}", False),
        ("slo: {attainment: 1}", False),
    ],
)
def test_the_json_schema_tells_right_from_wrong(text, right):
    assert matches(yaml.safe_load(text), json_schema()) is right


def test_a_resolved_scenario_satisfies_the_json_schema():
    text = "workload: {requests: 5, arrivals: {process: burst}, lengths: {prompt: 1, output: {uniform: [1, 2]}}}\n"
    plain = load_text(text + "cost: {model: constant, step: 1 ms}\nslo: {e2e: 10 s}\n").to_dict()
    assert matches(json.loads(json.dumps(plain)), json_schema())


@pytest.mark.parametrize("kind", POLICIES)
def test_every_policy_is_named_where_its_key_is_described(kind):
    ours = [n for n in registry.names(kind) if registry.classes(kind)[n].__module__.startswith(policies.__name__)]
    described = POLICIES[kind].model_fields["policy"].description
    assert len(ours) > 1 and [name for name in ours if name not in described] == []
