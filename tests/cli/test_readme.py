"""What README.md shows is run as it is printed: commands, Python, the scenario, and the answer of the demo."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest
import yaml

from llmqsim import load, load_text, simulate
from tests.cli.bad_files import config
from tests.cli.commands import EVENTS, ROOT, llmqsim
from tests.cli.test_other_commands import long_trace

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"(?:\.venv/bin/)?llmqsim ")
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
COMMANDS = [
    line
    for line in [*(line for kind, block in BLOCKS if kind in ("", "sh") for line in block.splitlines()), *INLINE]
    if PROGRAM.match(line)
]
ROWS = [line for line in README.splitlines() if line.startswith("| ")]
KEYS = [key for row in ROWS for key in re.findall(r"`([\w.]+: [^`]+)`", row)]
SCRIPTS = [block for kind, block in BLOCKS if kind == "python"]
SCENARIOS = [block for kind, block in BLOCKS if kind == "yaml"]
STARTED = """\
INFO Model loading took 14.99 GiB and 4.2 seconds
INFO Available KV cache memory: 54.31 GiB
INFO GPU KV cache size: 444,912 tokens
"""
"""lines that a vLLM server prints when it starts"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The folder that a reader stands in, with the files that the README takes as the reader's own."""
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    (tmp_path / "my_trace.csv").write_text(long_trace(200))
    (tmp_path / "EVENTS.csv").write_text(EVENTS)
    (tmp_path / "server.log").write_text(STARTED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_shows_what_is_tested_here():
    assert len(COMMANDS) >= 6 and len(SCRIPTS) >= 1 and len(SCENARIOS) >= 1 and len(KEYS) >= 10


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(checkout, line):
    _, *argv = shlex.split(line, comments=True)
    said = llmqsim(*argv)
    assert (said.code, said.err) == (0, "")
    assert said.out


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_questions(checkout, key):
    name, _, value = key.partition(": ")
    value = yaml.safe_load(value.replace("path/to/config.json", "config.json"))
    (checkout / "config.json").write_text(config())
    base = load("scenarios/first_answer.yaml").spec
    asked = load("scenarios/first_answer.yaml", sets={name: value, "workload.requests": 20})
    assert asked.spec != base and simulate(asked).summary()["requests"]["arrived"] == 20


@pytest.mark.parametrize("script", SCRIPTS)
def test_python(checkout, script, capsys):
    exec(compile(script, "README.md", "exec"), {})  # noqa: S102 our own text
    assert capsys.readouterr().out


@pytest.mark.parametrize("text", SCENARIOS)
def test_scenario(text):
    scenario = load_text(text, sets=["workload.requests=50"])
    for variant in scenario.known_variants:
        load_text(text, variant=variant)
    assert simulate(scenario).summary()["requests"]["arrived"] == 50


def test_links_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_the_demo_shows_the_answer_that_it_gives(checkout):
    """`make demo` runs scenarios/first_answer.yaml; the block after it is its screen, to the letter."""
    said = llmqsim("run", "scenarios/first_answer.yaml")
    assert said.code == 0
    assert said.out.rstrip("\n") in [block.rstrip("\n") for _, block in BLOCKS]
