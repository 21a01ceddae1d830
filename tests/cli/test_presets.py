"""`llmqsim presets`: names on one screen, what they are when they are asked for."""

from __future__ import annotations

import pytest

from llmqsim.hardware.model import model_names
from llmqsim.report import presets
from tests.cli.commands import llmqsim, strict_json


def test_the_names_fit_on_a_screen():
    lines = llmqsim("presets").out.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "h100…" in text and "least_outstanding" in text and "vllm-0.19" in text
    begins = sum(int(part.partition(" (")[2].rstrip(")") or 1) for part in " ".join(text.partition("gpus ")[0].split()[1:]).split(", "))
    assert begins == len(model_names())
    assert set(presets.kinds()) == {line.split()[0] for line in lines[:-1] if not line.startswith(" ")}


def test_one_kind_and_some_words(tmp_path):
    said = llmqsim("presets", "models", "qwen", "32b", "--json", tmp_path / "p.json")
    told = strict_json(tmp_path / "p.json")
    names = [name for name in model_names() if "qwen" in name and "32b" in name]
    assert names and set(names) <= told["models"].keys() and all(name in said.out for name in names)
    assert "llama" not in said.out and "mixtral" not in said.out
    assert len(said.out) < len(llmqsim("presets", "models").out) < len(llmqsim("presets", "--full").out)


def test_all_as_data(tmp_path):
    assert llmqsim("presets", "--json", tmp_path / "p.json").code == 0
    told = strict_json(tmp_path / "p.json")
    assert list(told) == presets.kinds() and set(told["models"]) == set(model_names())


@pytest.mark.parametrize(
    ("argv", "says"),
    [(("modls",), "did you mean 'models'"), (("gpus", "qwen"), "nothing holds 'qwen'"), (("gpus", "--full"), "--full")],
)
def test_bad_questions(argv, says):
    said = llmqsim("presets", *argv)
    assert said.code == 2 and says in said.err and said.out == ""
