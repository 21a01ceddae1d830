"""Options and commands that there are not: one sentence a mistake, exit code 2, and what is meant."""

from __future__ import annotations

import pytest

from tests.cli.commands import llmqsim

SAID = {
    ("size", "--isl", "1000", "--osl", "200"): ("--isl: llmqsim size has no such option; here it is --in MEAN:CV", "--out MEAN:CV"),
    ("size", "--input-len", "1000"): ("here it is --in MEAN:CV",),
    ("size", "--qps", "3"): ("here it is --rate R",),
    ("run", "s.yaml", "--isl=1000"): ("--isl: llmqsim run has no such option; here it is --set workload.lengths.prompt=N",),
    ("run", "s.yaml", "--varient", "a"): ("did you mean '--variant'?",),
    ("run", "s.yaml", "--qps", "3"): ("here it is --set workload.arrivals.rate=R",),
    ("run", "s.yaml", "--max-num-seqs", "8"): ("here it is --set engine.max_num_seqs=VALUE",),
    ("run", "s.yaml", "--max-concurrency", "8"): ("--set 'workload.arrivals={process: closed_loop, clients: N}'",),
    ("capacity", "s.yaml", "--output-len", "3"): ("here it is --set workload.lengths.output=N",),
    ("run", "s.yaml", "--slo", "ttft:500"): ("here it is --set slo=TEXT",),
    ("run", "s.yaml", "--ttft", "1s"): ("here it is --set slo.ttft=T",),
    ("run", "s.yaml", "--output", "o.json"): ("here it is --json OUT",),
    ("size", "--itl", "50ms"): ("`llmqsim size --help` lists its options",),
    ("compare", "s.yaml", "--trace", "t.csv"): ("here it is --set workload.trace.file=FILE",),
    ("run", "s.yaml", "--jsn", "o"): ("did you mean '--json'?",),
    ("run", "s.yaml", "--zzzzz"): ("`llmqsim run --help` lists its options",),
    ("run", "a", "b"): ("too many words (got 'b')",),
    ("rnu", "s.yaml"): ("there is no command 'rnu'; did you mean 'run'?",),
    ("size", "--minimise", "gpu"): ("--minimise has no 'gpu'; did you mean 'gpus'?",),
    ("run",): ("run: the following arguments are required: SCENARIO",),
}


@pytest.mark.parametrize("argv", SAID, ids=" ".join)
def test_what_was_meant(argv):
    said = llmqsim(*argv)
    assert (said.code, said.out) == (2, "")
    assert all(text in said.err for text in SAID[argv]), said.err
    assert "usage" not in said.err and all(line.startswith("llmqsim: ") for line in said.err.splitlines())


def test_flags_are_named_as_what_gave_a_wrong_name():
    told = {"--model": "lama-3", "--gpu": "h1000", "--engine": "vlm-0.9"}
    for wrong, value in told.items():
        given = {"--model": "llama-3.1-8b", "--gpu": "h100-sxm", wrong: value}
        flags = [part for pair in given.items() for part in pair]
        said = llmqsim("size", *flags, "--rate", "1", "--in", "100:1", "--out", "10:1", "--ttft", "1s")
        assert said.code == 2 and said.err.startswith(f"llmqsim: {wrong}: "), said.err
        assert "<mapping>" not in said.err
