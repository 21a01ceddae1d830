"""The five deployments of docs/engine_presets.md: they explain, they run, and the page says what they resolve to."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmqsim import load, simulate
from llmqsim.report.explain import explain
from llmqsim.report.explain_page import explain_text

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "scenarios" / "deployments").glob("*.yaml"))
PAGE = (ROOT / "docs" / "engine_presets.md").read_text(encoding="utf-8")


def deployment_row(path: Path) -> str:
    """The row of the page's table of deployments."""
    told = explain(load(path))
    engine = {key: entry["value"] for key, entry in told["engine"].items()}
    cells = (
        f"[{path.stem}](../scenarios/deployments/{path.name})",
        engine["preset"],
        engine["batching"],
        str(engine["in_flight"]),
        f"{engine['max_num_seqs']:,} / {engine['max_num_batched_tokens']:,}",
        str(engine["enable_chunked_prefill"]).lower(),
        f"{engine['gpu_memory_utilization']:.3g}",
        f"{told['kv']['blocks']:,} x {engine['block_size']}",
    )
    return f"| {' | '.join(cells)} |"


def test_there_is_one_deployment_of_each_engine_family():
    presets = {explain(load(path))["engine"]["preset"]["value"].split("-")[0] for path in FILES}
    assert len(FILES) == 5 and presets == {"vllm", "sglang", "trtllm", "static"}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_page_says_what_explain_says(path):
    assert deployment_row(path) in PAGE


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_value_of_a_deployment_has_an_origin_and_its_steps_add_up(path):
    told = explain(load(path))
    assert all(entry["origin"] for entry in told["engine"].values())
    for step in told["steps"]:
        assert step["seconds"] == pytest.approx(sum(op["seconds"] for op in step["operators"]))
        assert step["seconds"] == pytest.approx(step["simulated_seconds"], rel=0.01)
    assert max(map(len, explain_text(told).splitlines())) <= 100


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_few_requests_run(path):
    summary = simulate(load(path, sets=["workload.requests=20"])).summary()
    assert summary["requests"]["completed"] == 20


@pytest.mark.parametrize("model", ["mistral-7b-v0.1", "gpt-oss-120b", "qwen3-30b-a3b"])
def test_steps_of_other_models_add_up_too(model):
    told = explain(load(FILES[-1], sets=[f"model={model}", "engine.enforce_eager=true", "engine.max_model_len=4096"]))
    for step in told["steps"]:
        assert step["seconds"] == pytest.approx(step["simulated_seconds"], rel=0.01)
