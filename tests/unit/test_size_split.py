"""size --split: xPyD against trying every fleet, the answer as data and as a scenario, and what is refused."""

from __future__ import annotations

import pytest
import yaml

from llmqsim import UserError, from_mapping
from llmqsim.cli import main
from llmqsim.planner import splitting
from llmqsim.planner.attain import KEPT
from llmqsim.planner.size import Effort
from llmqsim.planner.sizing import Question, as_yaml, command, size
from llmqsim.planner.split import SplitSearch
from llmqsim.planner.splitting import smaller
from llmqsim.simulation import prepare

POOLS = {
    "workload": {
        "requests": 400,
        "arrivals": {"process": "poisson", "rate": 12},
        "lengths": {"prompt": {"exponential": {"mean": 2000}}, "output": {"exponential": {"mean": 100}}},
    },
    "model": "llama-3.1-8b",
    "gpu": "a100-sxm-80gb",
    "routing": "least_outstanding",
    "pools": {"prefill": {}, "decode": {}},
    "handoff": {"link": "nvlink3"},
    "slo": {"ttft": "1 s", "tpot": "25 ms", "attainment": 0.9},
}
FLAGS = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm", "rate": "6", "in": "1000:1", "out": "60:1", "ttft": "500ms", "tpot": "12ms",
    "attainment": "0.9",
}  # fmt: skip


def test_the_fleet_is_what_trying_every_one_finds():
    search = SplitSearch(prepare(from_mapping(POOLS)), Effort(), (1, 1))
    found = search.bracket().pair
    kept = [(x, y) for x in range(1, 7) for y in range(1, 5) if search.at((x, y)).judged == KEPT]
    assert found in kept and sum(found) == min(map(sum, kept)) and found[0] > 1
    dear = SplitSearch(prepare(from_mapping(POOLS)), Effort(), (1, 50))
    assert dear.measure(dear.bracket().pair) == min(x + 50 * y for x, y in kept)


def test_arithmetic_is_below_the_answer_and_near_it():
    search = SplitSearch(prepare(from_mapping(POOLS)), Effort(), (1, 1))
    answer = search.judge(search.bracket().pair)
    assert search.fewest[0] <= answer.pair[0] <= search.fewest[0] + 3 and search.fewest[1] <= answer.pair[1]
    assert answer.attained.told()["low"] >= 0.9
    assert all(one is None or one.judged != KEPT for one in answer.less.values())


def test_no_fleet_up_to_the_most_that_may_cost():
    search = SplitSearch(prepare(from_mapping(POOLS)), Effort(), (1, 1))
    assert search.bracket(2).reason == "dearer"
    few = SplitSearch(prepare(from_mapping(POOLS)), Effort(most_replicas=2), (1, 1)).bracket()
    assert (few.pair, few.reason) == (None, "most_replicas_reached") and "1P1D" in few.sentence
    hopeless = SplitSearch(prepare(from_mapping(POOLS | {"slo": {"tpot": "1 ms"}})), Effort(), (1, 1)).bracket()
    assert (hopeless.reason, hopeless.attained) == ("decode_exceeds_tpot", None)


def test_beside_the_answer_for_replicas_of_one_kind():
    asked = Question(flags=FLAGS, split=True, effort=Effort(headroom=False))
    told, alone = size(asked), size(Question(flags=FLAGS, effort=Effort(headroom=False)))
    same = [key for key in alone if key not in ("seconds", "command", "runs", "notes", "smaller") and "split" not in key]
    assert {key: told[key] for key in same} == {key: alone[key] for key in same} and alone["split"] is None
    split = told["split"]
    assert split["gpus"] == split["prefill_replicas"] + split["decode_replicas"]
    assert split["attainment"]["low"] >= 0.9 and set(split["one_less"]) == {"prefill", "decode"}
    assert told["smaller"] == ("same" if split["gpus"] == told["gpus"] else min((split["gpus"], "split"), (told["gpus"], "colocated"))[1])
    assert any("rdma-400g" in note for note in told["notes"]) and told["command"].endswith("--split")
    saved = from_mapping(split["scenario"])
    assert [pool.replicas for pool in saved.spec.pools.values()] == [split["prefill_replicas"], split["decode_replicas"]]
    assert saved.spec.handoff.link == "rdma-400g"
    made = yaml.safe_load(as_yaml(told | {"smaller": "split"}))
    assert made == split["scenario"] and "pools" not in yaml.safe_load(as_yaml(told | {"smaller": "colocated"}))


def test_a_scenario_with_pools_is_sized_by_both_counts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(POOLS, sort_keys=False))
    assert main(["size", "p.yaml", "--no-headroom", "--save", "out.yaml"]) == 0
    said = capsys.readouterr().out
    pools = yaml.safe_load((tmp_path / "out.yaml").read_text())["pools"]
    fleet = f"{pools['prefill']['replicas']}P{pools['decode']['replicas']}D"
    assert [line for line in said.splitlines() if line.startswith("split ") and f" {fleet}: " in line]
    told = size(Question(path="p.yaml", effort=Effort(headroom=False)))
    assert told["replicas"] == told["gpus"] == sum(pool["replicas"] for pool in pools.values()) and told["verdict"] == "feasible"


BAD = {
    "--split --link warp": "unknown preset (got 'warp'). Known: nvlink3",
    "--link nvlink4": "--link: goes with --split",
}


@pytest.mark.parametrize("options", BAD)
def test_links_that_can_not_be(options, capsys):
    words = [word for name, value in FLAGS.items() for word in (f"--{name}", value)]
    assert main(["size", *words, *options.split()]) == 2
    assert BAD[options] in capsys.readouterr().err


def test_what_knows_no_hand_off():
    mapping = {key: value for key, value in POOLS.items() if key not in ("pools", "handoff", "model", "gpu")}
    affine = {"model": "affine", "per_prefill_token": 1e-5}
    made = lambda sets: from_mapping(mapping | {"cost": affine}, sets=sets)
    with pytest.raises(UserError, match="give model"):
        splitting.candidates(made, splitting.pools_of(None), {}, {}, Effort(), False)
    with pytest.raises(UserError, match="one prefill and one decode pool"):
        three = POOLS["pools"] | {"more": {"role": "both"}}
        placed = {"placement": {"policy": "by_prompt", "tokens": 1000, "short": "more", "long": ["prefill", "decode"]}}
        SplitSearch(prepare(from_mapping(POOLS | {"pools": three} | placed)), Effort(), (1, 1))


def test_which_is_smaller():
    one = {"gpus": 3, "usd_per_hour": 9.0}
    assert smaller(one, {"replicas": 4, "gpus": 4, "usd_per_hour": 8.0}, False) == "split"
    assert smaller(one, {"replicas": 4, "gpus": 4, "usd_per_hour": 8.0}, True) == "colocated"
    assert smaller(one, {"replicas": 3, "gpus": 3}, False) == "same"
    assert smaller(one, {"replicas": None}, False) == "split" and smaller(None, {"replicas": 1}, False) == "colocated"
    assert smaller(None, {"replicas": None}, False) is None


def test_the_command_asks_the_same_again():
    assert command(Question(flags=FLAGS, split=True, link="nvlink4")).endswith("--split --link nvlink4")
