"""`llmqsim explain --request`: what a request, a class or a length decile waited for, in words that add up."""

from __future__ import annotations

import pytest

from llmqsim import from_mapping, simulate
from llmqsim.metrics.attribution import attribution, chosen
from llmqsim.report.why import why_text
from tests.cli.commands import SCENARIO, llmqsim, strict_json

ONE_SLOT = {
    "workload": {
        "requests": 3,
        "arrivals": {"process": "constant", "rate": 10},
        "lengths": {"prompt": 100, "output": 100},
    },
    "cost": {"model": "constant", "step": "10 ms"},
    "engine": {"max_num_seqs": 1, "num_gpu_blocks_override": 100, "in_flight": 1},
}


def scenario(folder):
    (folder / "s.yaml").write_text(SCENARIO)
    return folder / "s.yaml"


def test_the_second_in_line_waited_for_the_slot_of_the_first():
    """Steps of 10 ms: the first runs from 0.1 to 1.1 s, the second comes at 0.2 s, the third at 0.3 s."""
    frame = simulate(from_mapping(ONE_SLOT)).to_frame()
    told = attribution(frame, chosen(frame, "2", None, None)[1])
    assert told["waits"]["slots"] + told["waits"]["step"] == pytest.approx(1.8)
    assert told["waits"]["slots"] > 1.79
    assert told["computing_s"] == pytest.approx(1.0) and told["e2e_s"] == pytest.approx(2.8)
    assert told["ahead"] == {
        "waiting": 1,
        "running": 1,
        "largest": {"request": "0", "prompt_tokens": 100, "output_tokens": 100},
    }
    page = why_text("request 2", told)
    assert "waited 1.80 s before the first step" in page and "a free slot (max_num_seqs)" in page
    assert "1 request running and 1 waiting" in page
    first = attribution(frame, chosen(frame, "0", None, None)[1])
    assert first["ahead"]["running"] == 0 and "Its replica was empty" in why_text("request 0", first)


def test_groups_are_means_and_deciles_hold_a_tenth_each():
    base = {
        **ONE_SLOT,
        "workload": {
            **ONE_SLOT["workload"],
            "requests": 205,
            "lengths": {"prompt": {"uniform": [1, 500]}, "output": 5},
        },
    }
    frame = simulate(from_mapping(base)).to_frame()
    masks = [chosen(frame, None, None, str(i))[1] for i in range(1, 11)]
    assert [int(mask.sum()) for mask in masks] == [21, 20, 21, 20, 21, 20, 21, 20, 21, 20]
    assert sum(masks).max() == 1
    longest = [frame["prompt_tokens"][mask].max() for mask in masks]
    assert longest == sorted(longest)
    everybody = attribution(frame, chosen(frame, None, "all", None)[1])
    assert everybody["waits"] == everybody["all"]["waits"] and everybody["ahead"] is None
    each = [attribution(frame, mask)["waits"]["slots"] * mask.sum() for mask in masks]
    assert sum(each) == pytest.approx(everybody["waits"]["slots"] * 205)


def test_a_table_of_requests_says_the_same_as_the_scenario(tmp_path):
    path = scenario(tmp_path)
    assert llmqsim("run", path, "--requests", tmp_path / "r.csv").code == 0
    of_table = llmqsim("explain", tmp_path / "r.csv", "--request", 7, "--json", tmp_path / "o.json")
    assert of_table.code == 0 and of_table.out == llmqsim("explain", path, "--request", 7).out
    assert strict_json(tmp_path / "o.json")["what"] == "request 7"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--request", "999"), "no such request (got '999'); there are 0 to 149"),
        (("--class", "chat"), "no such class (got 'chat')"),
        (("--decile", "0"), "from 1 (shortest) to 10"),
        (("--request", "1", "--set", "replicas=2"), "give the scenario instead"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path, arguments, said):
    llmqsim("run", scenario(tmp_path), "--requests", tmp_path / "r.csv")
    told = llmqsim("explain", tmp_path / "r.csv", *arguments)
    assert told.code == 2 and said in told.err


@pytest.mark.parametrize(
    ("text", "said"),
    [("a,b\n1,2\n", "r.csv:1: no column 'request'"), ("", "is no table"), (None, "no such file")],
)
def test_another_table_is_refused(tmp_path, text, said):
    if text is not None:
        (tmp_path / "r.csv").write_text(text)
    told = llmqsim("explain", tmp_path / "r.csv", "--request", 1)
    assert told.code == 2 and said in told.err


def test_a_value_that_is_no_number_is_named_by_its_row(tmp_path):
    llmqsim("run", scenario(tmp_path), "--requests", tmp_path / "r.csv")
    lines = (tmp_path / "r.csv").read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[1], "soon", 1)
    (tmp_path / "r.csv").write_text("\n".join(lines))
    told = llmqsim("explain", tmp_path / "r.csv", "--request", 1)
    assert told.code == 2 and "r.csv:4: arrival_s: must be a number (got 'soon')" in told.err
