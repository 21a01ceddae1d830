"""Runs long enough for the backlog verdict: how they become longer, where they can't, and what that does to answers.

Right values come from queueing theory and from a queue of a few lines (Lindley's recursion), which share nothing with the
simulator.
"""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping
from llmqsim.planner.bracket import smallest
from llmqsim.planner.settle import MOST_SLOW, STEP, Length, longer, why_fixed
from llmqsim.planner.size import Effort, Search
from llmqsim.scenario.build import build_workload
from llmqsim.simulation import prepare
from tests.unit.test_size import LINE

SHORT = LINE | {
    "workload": LINE["workload"] | {"requests": 150},
    "slo": {"e2e": 3.0, "attainment": 0.9},
}
"""6 s of traffic for single servers that are busy 2.5 at a time: with two of them the queue has no time to grow to 3 s"""


def lindley(replicas: int, requests: int, seed: int) -> np.ndarray:
    """E2E times of round robin over single servers: W' = max(0, W + S - A), waits plus service, seconds."""
    draw = np.random.default_rng(seed)
    arrival, service = np.cumsum(draw.exponential(1 / 25, requests)), draw.geometric(1e-3, requests) * 1e-4
    e2e = np.empty(requests)
    for server in range(replicas):
        at, work = arrival[server::replicas], service[server::replicas]
        free = 0.0
        for i, (t, s) in enumerate(zip(at, work, strict=True)):
            free = max(free, t) + s
            e2e[server + i * replicas] = free - t
    return e2e


def test_a_short_run_does_not_make_an_overloaded_fleet_feasible():
    """Two servers are offered 1.25 times what they complete: 0.1 s of work, 25 times a second."""
    prepared = prepare(from_mapping(SHORT))
    fooled = prepared.run(0, 0).summary()["slo"]
    answer = Search(prepared, Effort()).answer()
    assert fooled is not None and answer.replicas >= 3
    assert answer.attained.settled and answer.attained.verdict == "stable"


def test_the_answer_is_that_of_a_long_queue():
    """The smallest number by Lindley's recursion over 200,000 requests, whatever the run that was asked for shows."""
    search = Search(prepare(from_mapping(SHORT)), Effort())
    answer = search.answer()
    shares = {n: float((lindley(n, 200_000, 1) <= 3.0).mean()) for n in (answer.replicas - 1, answer.replicas)}
    assert shares[answer.replicas] >= 0.9 > shares[answer.replicas - 1]
    told = search.length.told()
    assert told.run > told.asked == 150 and f"runs lengthened to {told.run:,} requests" in told.sentence


def test_no_answer_is_below_what_arithmetic_asks_for():
    search = Search(prepare(from_mapping(SHORT | {"slo": {"e2e": 1000.0, "attainment": 0.5}})), Effort())
    assert search.fewest == 3, "25 a second, of which one server completes 10"
    assert search.answer().replicas >= 3


@pytest.mark.parametrize(("share", "fewest"), [(0.9, 3), (0.5, 2), (0.35, 1)])
def test_who_may_be_refused_need_not_be_served(share, fewest):
    """25 a second, of which one server completes 10: ceil(2.5 x share), since a share of 1 - share may be turned away."""
    open_door = SHORT | {"slo": {"ttft": 1.0, "attainment": share}}
    assert Search(prepare(from_mapping(open_door)), Effort()).fewest == 3
    assert Search(prepare(from_mapping(open_door | {"admission": "deadline"})), Effort()).fewest == fewest


def test_a_service_that_refuses_is_as_large_as_its_share_asks_for():
    """M/M/1/K serves 1 - (1 - r) r^K / (1 - r^(K + 1)) of what comes (Erlang 1917): 40 % with r = 2.5, K = 10."""
    door = {"policy": "queue_cap", "most": 10, "of": "outstanding"}
    refusing = SHORT | {"slo": {"e2e": 60.0, "attainment": 0.35}, "admission": door}
    answer = Search(prepare(from_mapping(refusing)), Effort()).answer()
    served = 1 - (1 - 2.5) * 2.5**10 / (1 - 2.5**11)
    assert answer.replicas == 1 and answer.attained.told()["mean"] == pytest.approx(served, abs=0.01)


def test_a_longer_run_goes_on_where_the_shorter_one_ended():
    classes = {"a": {"share": 0.5}, "b": {"share": 0.5}}
    prepared = prepare(from_mapping(LINE | {"workload": LINE["workload"] | {"requests": 100, "classes": classes}}))
    short, long = (
        build_workload(one, prepared.servers, 0, 0).table for one in (prepared.scenario, longer(prepared.scenario, 4))
    )
    assert len(long) == 4 * len(short)
    for column in ("arrival_ns", "prompt_tokens", "output_tokens", "class_id"):
        assert np.array_equal(getattr(short, column), getattr(long, column)[:100]), column


def test_everything_that_ends_a_run_is_moved():
    workload = {k: v for k, v in LINE["workload"].items() if k != "requests"} | {"duration": 10}
    spec = longer(from_mapping(LINE | {"workload": workload, "run": {"until": 20, "warmup": {"time": 1}}}), 4).spec
    assert (spec.workload.duration, spec.run.until, spec.run.warmup.time) == (40, 80, 1)
    own = {"a": {"arrivals": {"process": "poisson", "rate": 5}, "requests": 30}}
    spec = longer(from_mapping(LINE | {"workload": {"lengths": LINE["workload"]["lengths"], "classes": own}}), 4).spec
    assert spec.workload.classes["a"].requests == 120


@pytest.mark.parametrize(
    ("arrivals", "said"),
    [
        ({"process": "poisson", "stages": [{"rate": 5, "duration": 10}]}, "timetable"),
        ({"process": "burst"}, "at once"),
        ({"process": "poisson", "rate": 5}, None),
        ({"process": "closed_loop", "clients": 5}, None),
    ],
)
def test_what_has_a_length_of_its_own(arrivals, said):
    given = LINE["workload"] | {"arrivals": arrivals}
    if "stages" in arrivals:
        given = {k: v for k, v in given.items() if k != "requests"}
    scenario = from_mapping(LINE | {"workload": given})
    why = why_fixed(scenario)
    assert (why is None) == (said is None) and (said or "") in (why or "")
    length = Length(scenario, 100)
    assert length.lengthen("so") == (said is None) and length.times == (1 if said else STEP)


def test_the_limit_is_stated_and_kept():
    told, length = [], Length(from_mapping(LINE), 1500)
    while length.lengthen("why"):
        told.append(length.told().run)
    assert told == [6000, 24_000, 96_000] and length.told().most == 96_000
    slow = Length(from_mapping(LINE), 1500)
    slow.saw("reference")
    while slow.lengthen("why"):
        pass
    assert slow.told().run <= MOST_SLOW


def test_a_trace_too_short_to_tell_is_undecided(tmp_path):
    """80 requests within 4 s: below the hundred that a verdict takes, and no run can be longer."""
    rows = "\n".join(f"{i / 20:.3f},500,1" for i in range(80))
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows + "\n")
    scenario = from_mapping(LINE | {"workload": {"trace": {"file": "t.csv"}}}, folder=str(tmp_path))
    found = Search(prepare(scenario), Effort(most_replicas=8)).answer()
    assert (found.replicas, found.reason) == (None, "not_decided")
    assert "a trace is as long as it is" in found.sentence and "show that no backlog grows" in found.sentence


def test_a_closed_loop_can_not_overload():
    loop = {"process": "closed_loop", "clients": 40}
    workload = LINE["workload"] | {"arrivals": loop, "requests": 300}
    slow = {"e2e": 30.0, "attainment": 0.9}
    answer = Search(prepare(from_mapping(LINE | {"workload": workload, "slo": slow})), Effort()).answer()
    assert answer.replicas == 1 and answer.attained.verdict == "stable"


@pytest.mark.parametrize(("start", "most"), [(1, 100), (7, 100), (37, 100), (90, 100), (100, 100)])
def test_the_smallest_is_found_from_anywhere(start, most):
    for true in (1, 2, 36, 37, 99, 100):
        assert smallest(lambda n, true=true: n >= true, start, 1, most) == true
    assert smallest(lambda n: n >= 101, start, 1, most) is None
    assert smallest(lambda n: True, start, 5, most) == 5


@pytest.mark.long
def test_six_seconds_of_1500_requests_a_second():
    """Llama-3.1-8B on H100s: by means 33 replicas; with 60,000 requests 31 keep 16 % and 34 keep 84 %, 95 % are asked."""
    lengths = {
        "prompt": {"lognormal": {"mean": 600, "cv": 0.7}, "max": 4000},
        "output": {"lognormal": {"mean": 120, "cv": 0.7}, "max": 700},
    }
    mapping = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "routing": "least_outstanding",
        "workload": {"requests": 9000, "arrivals": {"process": "poisson", "rate": 1500}, "lengths": lengths},
        "slo": {"ttft": 0.5, "tpot": 0.03, "attainment": 0.95},
    }  # fmt: skip
    answer = Search(prepare(from_mapping(mapping)), Effort()).answer()
    assert answer.replicas == 35 and answer.one_less.judged == "broken"
    assert 0.7 < answer.one_less.interval(0).mean < 0.95
