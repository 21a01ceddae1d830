"""Tuning finds the host time and derate that made-up measurements were made with, and refuses where it can't."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmqsim.errors import DataError
from llmqsim.validate.cases import Case
from llmqsim.validate.execute import execute
from llmqsim.validate.runs import plan
from llmqsim.validate.tune import _base_host_s, _with, keys, text, tune
from llmqsim.validate.tuning import START, Estimate, check, solve

CONFIG = {"engine": "vllm", "engine_version": "0.15.1", "model": "llama-3.1-8b", "gpu": "H100-SXM-80GB", "tp": 1, "max_num_seqs": 128}
TRUTH = Estimate(0.0012, 1.15)


def case(concurrency: int, **entry) -> Case:
    work = {"arrival": {"process": "closed_loop"}, "n_requests": 3 * concurrency, "prompt_tokens": {"exact": 200}, "output_tokens": {"exact": 30}}
    entry = {"stage": "all", "concurrency": concurrency, "tpot_ms": {"mean": 1.0}, "ttft_ms": {"mean": 1.0}, **entry}
    return Case("run", "own-runs", "closed_loop", CONFIG, work, (entry,), place=f"run-{concurrency}", model="m", gpu="g")


def measured(concurrency: int, truth: Estimate = TRUTH) -> Case:
    """A case whose figures are those of a simulation with the truth."""
    made = case(concurrency)
    (run,) = plan(made)
    tpot, ttft = execute(_with(run, _base_host_s(run), truth)).values[0]
    return case(concurrency, tpot_ms={"mean": tpot}, ttft_ms={"mean": ttft})


def test_the_truth_is_found_and_a_run_left_out_is_predicted():
    found = tune([measured(n) for n in (1, 16, 100)], workers=1)
    assert found.estimate.derate == pytest.approx(TRUTH.derate, rel=0.02)
    assert found.estimate.host_s == pytest.approx(TRUTH.host_s, abs=1e-4)
    before, after, left_out = found.errors["tpot", "mean"]
    assert before > 10 and after < 1 and left_out < 2 and found.helps
    assert "per_step" in keys(found) and "left out" in text(found)


def test_runs_that_are_alike_cannot_tell():
    with pytest.raises(DataError, match="can't tell host time from a slower GPU|don't determine"):
        tune([measured(n) for n in (7, 8, 8)], workers=1)


def test_too_few_runs_and_several_deployments():
    with pytest.raises(DataError, match="2 runs with TPOT"):
        tune([case(1), case(2)], workers=1)
    other = replace(case(4), config={**CONFIG, "gpu": "A100-80GB"})
    with pytest.raises(DataError, match="runs of different deployments .gpu"):
        tune([case(1), case(2), other], workers=1)
    with pytest.raises(DataError, match="dimensions of"):
        tune([replace(case(1), config={**CONFIG, "model": "acme/none-9b"})], workers=1)


def test_what_does_not_fit_is_refused():
    jacobian = np.array([[100.0, 0.5], [10.0, 0.95], [40.0, 0.8]])
    found = solve(np.array([0.9, -0.9, 0.8]), jacobian, START, -1.0)
    with pytest.raises(DataError, match="don't (fit|determine)"):
        check(found, jacobian, 0.01)
