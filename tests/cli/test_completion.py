"""Completion, asked of the shells themselves."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from llmqsim.cli import _parser
from llmqsim.cli_completion import words
from tests.cli.commands import llmqsim


@pytest.fixture(scope="module")
def script():
    said = llmqsim("completion", "bash")
    assert said.code == 0
    return said.out


def offered(script, *typed):
    """What bash offers for the last word of a line."""
    line = " ".join(f"'{word}'" for word in ("llmqsim", *typed))
    asked = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(typed)}; _llmqsim; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True, timeout=20)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes(script):
    assert offered(script, "comp") == {"compare", "completion"}
    assert {"run", "size", "report", "calibrate"} <= offered(script, "")
    assert offered(script, "compare", "s.yaml", "--repl") == {"--replications"}
    assert offered(script, "size", "--minimise", "") == {"gpus", "cost"}
    assert offered(script, "calibrate", "f") == {"fit"}
    assert "--json" in offered(script, "calibrate", "score", "--")
    assert offered(script, "run", "s") == set()  # files are bash's own


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_of_every_command_is_in_it(shell):
    text = llmqsim("completion", shell).out
    for path, options, commands in words(_parser()):
        for name in (*commands, *options):
            assert name.lstrip("-") in text, (path, name)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_it(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "c").write_text(llmqsim("completion", shell).out, encoding="utf-8")
    done = subprocess.run([shell, "-n", str(tmp_path / "c")], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def test_unknown_shells():
    said = llmqsim("completion", "cmd")
    assert said.code == 2 and "bash" in said.err
