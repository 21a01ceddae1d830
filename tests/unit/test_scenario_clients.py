"""What may be written about classes, clients, stages and warm-up, and what contradicts what."""

from __future__ import annotations

import pytest

from llmqsim import from_mapping
from llmqsim.errors import ScenarioError
from llmqsim.scenario import load_text

LENGTHS = "{prompt: 10, output: 5}"
COST = "cost: {model: constant, step: 1 ms}\n"


def scenario(workload: str, more: str = "", **how):
    return load_text(f"workload: {workload}\n{COST}{more}", **how)


def faults(workload: str, more: str = "", **how) -> str:
    with pytest.raises(ScenarioError) as caught:
        scenario(workload, more, **how)
    return "\n".join(caught.value.faults)


LOOP = f"{{requests: 9, lengths: {LENGTHS}, arrivals: {{process: closed_loop, clients: 3}}}}"
OPEN = f"{{requests: 9, lengths: {LENGTHS}, arrivals: {{process: poisson, rate: 1}}}}"


@pytest.mark.parametrize(
    ("workload", "more"),
    [
        (LOOP, "run: {warmup: auto}"),
        (LOOP, "run: {warmup: {requests: 3, drain: true}}"),
        (OPEN, "run: {warmup: {time: 60 s}}"),
        (f"{{lengths: {LENGTHS}, arrivals: {{process: poisson, stages: [{{rate: 5 req/s, duration: 1 min}}, {{rate: 2, duration: 9}}], "
         "fixed_count: true}}", ""),
        (f"{{requests: 9, lengths: {LENGTHS}, arrivals: {{process: weibull, rate: 2, cv: 2}}, clients: {{max_in_flight: 4, "
         "turnaround: 1 ms, timeout: 300 s}}", ""),
        (f"{{requests: 9, arrivals: {{process: poisson, rate: 1}}, lengths: {LENGTHS}, classes: {{chat: {{share: 0.7, slo: {{ttft: "
         "500 ms}, tenant: acme}, batch: {share: 0.3, priority: 2, lengths: {prompt: 99, output: 1}}}}", ""),
        (f"{{lengths: {LENGTHS}, classes: {{a: {{arrivals: {{process: gamma, rate: 1, cv: 2}}, requests: 4}}, b: {{requests: 5, "
         "arrivals: {process: closed_loop, clients: 2, think_time: {lognormal: {mean: 2 s, cv: 1}}, ramp_up: 5 s}}}}", ""),
    ],
)  # fmt: skip
def test_what_may_be_written_round_trips(workload, more):
    loaded = scenario(workload, more)
    again = from_mapping(loaded.to_dict())
    assert again == loaded and again.to_dict() == loaded.to_dict()


@pytest.mark.parametrize(
    ("workload", "more", "said"),
    [
        (f"{{lengths: {LENGTHS}, arrivals: {{process: closed_loop, clients: 3}}}}", "",
         "workload.requests: missing; a closed loop needs a number of requests"),
        (LOOP.replace("clients: 3", "clients: 0"), "", "workload.arrivals.clients: must be at least 1 (got 0)"),
        (LOOP.replace("clients: 3", "clients: 3, rate: 5"), "",
         "workload.arrivals.rate: belongs to process poisson or constant or gamma or weibull, not to closed_loop"),
        (LOOP[:-1] + ", clients: {max_in_flight: 2}}", "", "workload.clients.max_in_flight: says nothing about a closed loop"),
        (OPEN[:-1] + ", clients: {turnaround: 1 ms}}", "", "workload.clients.turnaround: needs something that waits"),
        (OPEN[:-1] + ", clients: {timeout: 0 s}}", "", "workload.clients.timeout: must be above 0"),
        (OPEN.replace("rate: 1", "rate: 1, stages: [{rate: 1, duration: 1}]"), "",
         "workload.arrivals.stages: contradicts workload.arrivals.rate (<text>:1); give one of them"),
        (OPEN.replace("rate: 1", "stages: []"), "", "workload.arrivals.stages: must be a list with at least one entry"),
        (OPEN.replace("rate: 1", "stages: [{rate: 1}]"), "",
         "workload.arrivals.stages: must have rate and duration in every entry; entry 1 does not"),
        (OPEN.replace("rate: 1", "stages: [{rate: 1, duration: -3 s}]"), "",
         "workload.arrivals.stages: entry 1: duration must be above 0" ),
        (OPEN[:-1] + ", classes: {a: {share: 0.5}, b: {share: 0.4}}}", "",
         "workload.classes: shares add up to 0.9; they must add up to 1"),
        (OPEN[:-1] + ", classes: {a: {share: 0.5, arrivals: {process: burst}}, b: {}}}", "",
         "workload.classes.b.share: missing; give its share of workload.arrivals"),
        (OPEN[:-1] + ", classes: {a: {share: 0.5, arrivals: {process: burst}}, b: {}}}", "",
         "workload.classes.a.arrivals: contradicts workload.arrivals"),
        (OPEN[:-1] + ", classes: [a]}", "", "workload.classes: must be a mapping of keys (got ['a']); its keys are names"),
        (OPEN[:-1] + ", classes: {a: {shaer: 1}}}", "", "workload.classes.a.shaer: unknown key (got 1); did you mean 'share'?"),
        (f"{{requests: 5, lengths: {LENGTHS}, classes: {{a: {{arrivals: {{process: closed_loop, clients: 2}}, requests: 5}}}}}}", "",
         "workload.requests: can't limit workload.classes.a.arrivals (<text>:1), a closed loop"),
        ("{duration: 9, classes: {a: {arrivals: {process: poisson, rate: 1}}}}", "",
         "workload.classes.a.lengths: missing; say how long requests are"),
        (f"{{duration: 9, lengths: {LENGTHS}, classes: {{a: {{arrivals: {{process: gamma, rate: 1}}}}}}}}", "",
         "workload.classes.a.arrivals.cv: missing; gamma arrivals need cv or burstiness"),
        (f"{{duration: 9, lengths: {LENGTHS}, classes: {{a: {{share: 1}}}}}}", "",
         "workload.arrivals: missing"),
        ("{trace: t.csv, classes: {a: {share: 1}}}", "", "workload.classes.a.share: contradicts workload.trace"),
        (OPEN[:-1] + ", classes: {a: {share: 1, slo: {ttft: 500}}}}", "", "workload.classes.a.slo.ttft: has no unit (got 500)"),
        (OPEN, "run: {warmup: {requests: 3, drain: true}}", "run.warmup.drain: is for workload.arrivals of process closed_loop"),
        (OPEN, "run: {warmup: aut}", "run.warmup: unknown choice (got 'aut')"),
        (OPEN, "run: {warmup: {requests: 3, time: 4 s}}", "run.warmup: holds keys of different kinds"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_both_keys(workload, more, said):
    assert said in faults(workload, more)


def test_stations_take_no_engine_options():
    text = f"workload: {OPEN}\ncost: {{model: stations, prefill: 0.1 s, decode: 10 s}}\nengine: {{max_num_seqs: 4}}\n"
    with pytest.raises(ScenarioError, match=r"engine\.max_num_seqs: means nothing to cost\.model"):
        load_text(text)
    with pytest.raises(ScenarioError, match=r"cost\.prefill: missing"):
        load_text(f"workload: {OPEN}\ncost: {{model: stations, decode: 10 s}}\n")


def test_variants_and_the_command_line_reach_into_classes(tmp_path):
    text = OPEN[:-1] + ", classes: {a: {share: 0.5}, b: {share: 0.5, priority: 1}}}"
    loaded = scenario(text, sets=["workload.classes.b.priority=7", "workload.classes.a.slo.ttft=1 s"])
    assert loaded.spec.workload.classes["b"].priority == 7 and loaded.spec.workload.classes["a"].slo.ttft == 1.0
    gone = scenario(text, sets=["workload.classes.b=null", "workload.classes.a.share=1"])
    assert list(gone.spec.workload.classes) == ["a"]
    staged = scenario(OPEN, sets=["workload.arrivals.stages=[{rate: 2, duration: 5 s}]"])
    assert staged.spec.workload.arrivals.rate is None and staged.spec.workload.arrivals.stages[0]["rate"] == 2.0
    (tmp_path / "base.yaml").write_text(
        "workload: {requests: 1, arrivals: {process: burst}, classes: {a: {share: 1, lengths: {file: l.yaml}}}}\n" + COST
    )
    (tmp_path / "sub").mkdir()
    extended = load_text("extends: ../base.yaml\n", folder=str(tmp_path / "sub"))
    assert extended.spec.workload.classes["a"].lengths.file == "../l.yaml"
