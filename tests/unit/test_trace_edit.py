"""Edits of a trace, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.cli import main
from llmqsim.errors import UserError
from llmqsim.workload import edit
from llmqsim.workload.trace import Trace, read_trace


def trace(**more) -> Trace:
    return Trace(np.array([10.0, 11.0, 13.0, 20.0]), np.array([5, 100, 30, 8]), np.array([1, 2, 3, 40]), "trace t",
                 max_tokens=np.array([0, 2, 9, 64]), **more)  # fmt: skip


def test_rates_and_lengths_are_scaled():
    made = edit.scale_rate(trace(), 2.0)
    assert made.arrival_s.tolist() == [10, 10.5, 11.5, 15] and "2 times as fast" in made.notes[0]
    made = edit.scale_lengths(trace(), prompt=0.1, output=1.5)
    assert made.prompt_tokens.tolist() == [1, 10, 3, 1] and made.output_tokens.tolist() == [2, 3, 4, 60]
    assert made.max_tokens.tolist() == [0, 3, 14, 96] and (made.max_tokens[1:] >= made.output_tokens[1:]).all()
    for wrong in (lambda: edit.scale_rate(trace(), 0), lambda: edit.scale_lengths(trace(), prompt=-1)):
        with pytest.raises(UserError, match="above 0"):
            wrong()


def test_windows_cuts_and_samples():
    made = edit.window(trace(labels={"class": np.array(list("abcd"), dtype=object)}, start_s=1000.0), 1, 10)
    assert made.arrival_s.tolist() == [0, 2] and made.labels["class"].tolist() == ["b", "c"] and made.start_s == 1011
    assert edit.clip(trace(), prompt=30).prompt_tokens.tolist() == [5, 30, 30, 8]
    assert edit.clip(trace(), output=3, drop=True).prompt_tokens.tolist() == [5, 100, 30]
    with pytest.raises(UserError, match="the trace lasts 10 s"):
        edit.window(trace(), 20, 30)
    with pytest.raises(UserError, match="no request is left"):
        edit.clip(trace(), prompt=1, drop=True)
    many = Trace(np.arange(10_000.0), np.arange(1, 10_001), np.ones(10_000, dtype=np.int64), "trace t")
    kept = edit.thin(many, 0.3)
    assert abs(len(kept) - 3000) < 200 and np.all(np.diff(kept.prompt_tokens) > 0)


def test_mixed_traces_keep_their_prefixes_apart():
    one, two = trace(prefix_ids=[[0, 1], [0, 2], [], [7]]), trace(prefix_ids=[[0], [0, 1], [3], []])
    made = edit.mix([one, two])
    assert made.arrival_s.tolist() == [0, 0, 1, 1, 3, 3, 10, 10] and len(made) == 8
    mine = made.labels["tenant"] == "1: t"
    first = {block for row, own in zip(made.prefix_ids, mine, strict=True) if own for block in row}
    second = {block for row, own in zip(made.prefix_ids, mine, strict=True) if not own for block in row}
    assert not first & second and len(first) == 4 and len(second) == 3
    timeless = Trace(np.full(2, np.nan), np.ones(2, dtype=np.int64), np.ones(2, dtype=np.int64), "trace t")
    with pytest.raises(UserError, match="no arrival times"):
        edit.mix([one, timeless])


def test_the_command_edits_in_one_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,1\n1,10,2\n2,40,3\n")
    argv = ["workload", "edit", "a.csv", "b.csv"]
    assert main([*argv, "--window", "1,9", "--scale-rate", "2", "--scale-lengths", "prompt=2", "--clip", "prompt=50"]) == 0
    made = read_trace("b.csv")
    assert made.arrival_s.tolist() == [0, 0.5] and made.prompt_tokens.tolist() == [20, 50]
    assert main(["workload", "edit", "a.csv", "c.csv", "--mix", "b.csv"]) == 0
    assert read_trace("c.csv").prompt_tokens.tolist() == [5, 20, 50, 10, 40]
    for wrong, said in ((["--clip", "promt=5"], "--clip: must be prompt=N"), (["--window", "5"], "--window"),
                        (["--scale-rate", "fast"], "--scale-rate: must be a number")):  # fmt: skip
        capsys.readouterr()
        assert main(["workload", "edit", "a.csv", "d.csv", *wrong]) == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "d.csv").exists()
