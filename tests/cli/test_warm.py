"""`llmqsim warm`: what it compiles is there for the next process, and mistakes come before any work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from llmqsim.cli import main
from llmqsim.warm import COMMON, _common

SCENARIO = """
workload: {duration: 3 h, arrivals: {process: poisson, rate: 2 req/s}, lengths: azure-conversation}
model: llama-3.1-8b
gpu: a100-sxm-80gb
"""


@pytest.mark.parametrize("watched", [True, False])
def test_a_scenario_is_made_short_and_run(tmp_path, capsys, monkeypatch, watched):
    path = tmp_path / "long.yaml"
    path.write_text(SCENARIO)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
    assert main(["warm", str(path)]) == 0
    told = capsys.readouterr()
    assert f"{path}: compiled engine" in told.out and "machine code is kept in" in told.out
    assert ("1 of 1" in told.err) == watched


def test_a_mistake_is_told_before_anything_is_compiled(tmp_path, capsys):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(SCENARIO)
    bad.write_text(SCENARIO.replace("llama-3.1-8b", "llama-9-8b"))
    assert main(["warm", str(good), str(bad)]) == 2
    told = capsys.readouterr()
    assert str(bad) in told.err and "llama-9-8b" in told.err
    assert told.out == "" and "1 of 2" not in told.err


def test_common_things_are_scenarios_of_their_own():
    assert [what for what, _ in _common()] == list(COMMON.values())


@pytest.mark.long
def test_what_is_warm_compiles_no_more(tmp_path):
    """In an empty folder, then in another process, which may compile nothing and says nothing of it."""
    path = tmp_path / "x.yaml"
    path.write_text(SCENARIO)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "llmqsim.cli"]
    subprocess.run([*command, "warm", str(path)], env=environment, check=True, capture_output=True)
    run = [*command, "run", str(path), "--set", "workload.duration=60 s"]
    told = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    assert "compiling" not in told.stderr
