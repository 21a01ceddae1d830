"""Parameters of published configurations against the counts that their makers publish, within 1 %.

Right values: in the names and cards of the models, from memory, but for Kimi-Linear's, which is in
../shared/data/model_configs/README.md to the last digit. Towers count; layers that only draft tokens do not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from llmqsim.hardware.hf_config import model_from_config
from tests.unit import model_files

CONFIGS = Path(__file__).parents[3] / "shared" / "data" / "model_configs"
BILLIONS = {
    "deepseek-r1": 671, "deepseek-v3": 671, "deepseek-v3.2": 671, "exaone-4.0-32b": 32.0, "falcon-h1-0.5b": 0.521,
    "gemma-2-27b-it": 27.2, "gemma-3-27b-it": 27.4, "gemma-3-4b-it": 4.3, "glm-4.5": 355, "glm-4.5-air": 106,
    "glm-5": 744, "gpt-oss-120b": 116.8, "gpt-oss-20b": 20.9, "hunyuan-a52b-instruct": 389, "kimi-linear-48b-a3b-instruct": 49.12,
    "lfm2.5-vl-1.6b": 1.6, "llama-3.1-405b": 405.9, "llama-3.1-70b": 70.55, "llama-3.1-8b": 8.03, "mimo-v2-flash": 309,
    "minimax-m1-80k": 456, "minimax-m2.5": 229, "mistral-nemo-instruct-2407": 12.25, "mixtral-8x22b-v0.1": 140.6,
    "mistral-small-3.1-24b-instruct-2503": 23.6, "devstral-small-2-24b": 24.0,
    "mixtral-8x7b-v0.1": 46.7, "nemotron-3-nano-30b-a3b": 31.6, "nemotron-3-super-120b-a12b-fp8": 120.6,
    "nemotron-3-ultra-550b-a55b": 550, "nemotron-h-56b": 56.3, "phi-4": 14.7, "qwen2.5-32b-instruct": 32.76,
    "qwen2.5-7b-instruct": 7.62, "qwen2.5-vl-7b-instruct": 8.29, "qwen3-14b": 14.77, "qwen3-235b-a22b": 235.1,
    "qwen3-30b-a3b": 30.5, "qwen3-32b": 32.76, "qwen3-8b": 8.19, "qwen3-coder-480b-a35b": 480.2,
    "qwen3-next-80b-a3b": 79.7, "qwen3-vl-8b": 8.77, "qwen3.5-35b-a3b": 35.1, "qwen3.5-397b-a17b": 397,
    "seed-oss-36b": 36.15, "step-3.7-flash": 196, "gemma-4-31b-it-nvfp4": 31.3,
}  # fmt: skip
ACTIVE = {
    "deepseek-v3": 37, "gpt-oss-120b": 5.1, "glm-4.5": 32, "glm-5": 40, "kimi-k2-instruct": 32, "mimo-v2-flash": 15, "minimax-m2.5": 10,
    "nemotron-3-super-120b-a12b-fp8": 12, "nemotron-3-ultra-550b-a55b": 55, "qwen3.5-397b-a17b": 17, "qwen3-235b-a22b": 22,
    "gemma-4-26b-a4b": 3.8, "hunyuan-a52b-instruct": 52, "step-3.7-flash": 11,
}  # fmt: skip

pytestmark = pytest.mark.skipif(not CONFIGS.is_dir(), reason="the model configurations are not in this checkout")


@pytest.mark.parametrize("name", BILLIONS)
def test_parameters_are_the_published_ones(name):
    assert model_from_config(CONFIGS / f"{name}.json").parameters / 1e9 == pytest.approx(BILLIONS[name], rel=0.01)


@pytest.mark.parametrize("name", ACTIVE)
def test_parameters_that_a_token_visits_are_about_the_published_ones(name):
    """Makers round to a billion, and count embeddings or not."""
    made = model_from_config(CONFIGS / f"{name}.json")
    most = made.active_parameters / 1e9
    least = most - made.vocab * made.hidden * (1 if made.tied_embeddings else 2) / 1e9
    assert 0.93 * least <= ACTIVE[name] <= 1.07 * most


def test_the_one_that_is_known_to_the_last_digit():
    made = model_from_config(CONFIGS / "kimi-linear-48b-a3b-instruct.json")
    assert made.parameters == pytest.approx(49_122_681_728, rel=2e-7)
    assert made.weight_bytes() / 2**30 == pytest.approx(91.50, abs=0.005)


def test_the_page_shows_what_each_file_does():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    assert all(line in page for line in model_files.table())
