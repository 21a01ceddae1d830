"""llmqsim advise: what it prints and writes, that its lines can be repeated, and the mistakes a user can make."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.commands import llmqsim, strict_json, write

QUEUE = """\
# one server that runs two at a time: steps have room for eight
question: Is it the GPU?
workload:
  requests: 200
  arrivals: {process: poisson, rate: 12 req/s}
  lengths: {prompt: {lognormal: {mean: 100, cv: 0.5}}, output: {lognormal: {mean: 20, cv: 0.5}}}
cost: {model: affine, base: 10 ms, per_prefill_token: 10 us, per_decode_request: 0.1 ms}
engine: {max_num_seqs: 2}
slo: {ttft: 200 ms, tpot: 20 ms, attainment: 0.9}
variants:
  roomy: {engine.max_num_seqs: 16}
  capped: {engine.max_num_seqs: 16, workload.clients: {max_in_flight: 2}}
  loop: {workload.arrivals: {process: closed_loop, clients: 4}}
  burst: {workload.arrivals: {process: burst}}
  no_target: {slo: null}
  at_once: {workload: {arrivals: null, classes: {all: {arrivals: {process: burst}, requests: 50}}, requests: null}}
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return write(tmp_path_factory.mktemp("advise"), q_yaml=QUEUE)


@pytest.fixture(scope="module")
def said(here):
    return llmqsim("advise", here / "q.yaml", "--json", here / "o.json")


def test_the_cause_the_lever_and_the_stack(here, said):
    assert (said.code, said.err) == (0, "")
    told = strict_json(here / "o.json")
    assert told["verdict"] == "levers" and told["causes"][0]["cause"] == "slot_limit"
    assert told["levers"][0]["lever"] == "slots" and told["levers"][0]["helps"]
    assert told["stack"]["levers"] == ["slots"] and told["stack"]["kept"]
    assert told["stack"]["vllm_serve"][0].startswith("--max-num-seqs ")
    assert told["levers"][-1]["buys"] == "replicas" and told["levers"][-1]["gpus"] == 2
    assert "slot limit" in said.out and "--max-num-seqs" in said.out


def test_a_line_is_repeated_by_the_command_that_it_prints(here, said):
    row = strict_json(here / "o.json")["levers"][0]
    _, *argv = shlex.split(row["command"])
    again = llmqsim(*argv, "--json", here / "c.json")
    assert again.code == 0 and row["command"] in said.out
    cell = strict_json(here / "c.json")["differences"]["slots"]["attainment"]
    for key in ("base", "difference", "low", "high", "verdict"):
        assert cell[key] == pytest.approx(row["attainment"][key], abs=1e-9), key


def test_the_same_question_has_the_same_answer(here, said):
    again = llmqsim("advise", here / "q.yaml", "--json", here / "p.json")
    assert again.out == said.out and (here / "p.json").read_bytes() == (here / "o.json").read_bytes()


def test_where_the_slo_is_kept_nothing_is_to_be_bought(here):
    told = llmqsim("advise", here / "q.yaml", "--variant", "roomy", "--json", here / "r.json")
    answer = strict_json(here / "r.json")
    assert told.code == 0 and answer["verdict"] == "no_hardware_needed"
    assert answer["stack"] is None and answer["hardware"] is None and answer["causes"] == []
    assert all("--variants roomy,roomy+" in row["command"] for row in answer["levers"])


@pytest.mark.long
def test_a_cap_of_the_clients_that_is_the_bottleneck_is_named(here):
    """By arithmetic: an answer of 20 tokens takes some 20 steps of 10 ms, so that two in flight are done 10 times a
    second at most, and 12 are due; without the cap the same server keeps the SLO (the variant `roomy`)."""
    said = llmqsim("advise", here / "q.yaml", "--variant", "capped", "--json", here / "c.json")
    told = strict_json(here / "c.json")
    assert said.code == 0 and told["verdict"] == "levers" and told["base"]["problem"] == "client"
    assert told["causes"][0]["cause"] == "client_cap" and told["stack"]["levers"] == ["client_cap"]
    assert told["rate_per_s"] == 12 and told["base"]["capacity_per_s"]["high"] < 12
    assert "the clients' own cap" in said.out and "the model's outputs stay as they are" in said.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--variant no_target", "slo: missing; advice needs a target to reach"),
        ("--variant loop", "clients wait for answers, so there is no rate to serve within the SLO"),
        ("--variant burst", "workload.arrivals: all at once is no rate to serve within the SLO; give a rate"),
        ("--variant at_once", "workload: has no rate of arrivals"),
        ("--set run.warmup={requests:200}", "slo: no measured request has this target; check run.warmup"),
        ("--price h100-sxm=free", "--price: must be GPU=DOLLARS"),
        ("--seed x", "--seed: must be a whole number"),
        ("--variant roomie", "unknown variant (got 'roomie')"),
        ("--json q.yaml", "is an input of this command"),
    ],
)
def test_mistakes_are_one_sentence(here, monkeypatch, arguments, sentence):
    monkeypatch.chdir(here)
    told = llmqsim("advise", "q.yaml", *arguments.replace(":200", ": 200").split(maxsplit=1))
    assert told.code == 2 and sentence in told.err and "Traceback" not in told.err
    assert len(told.err.splitlines()) == 1
