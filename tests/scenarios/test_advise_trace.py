"""advise on a recorded trace: one run, whose intervals come from batches of its requests, and a note that says so."""

from __future__ import annotations

import pytest

from llmqsim.planner.advise.advise import advise
from llmqsim.planner.advise.trial import Bench
from llmqsim.planner.limits import ONE_TRAFFIC
from tests.cli.commands import ROOT

TRACE = ROOT.parent / "shared" / "data" / "traces" / "azure2023_conv.csv.gz"


@pytest.mark.long
@pytest.mark.skipif(not TRACE.is_file(), reason="needs the recorded traces in ../shared/data/traces")
def test_the_azure_conversation_trace_at_ten_times_its_pace():
    sets = (("workload.trace", {"file": str(TRACE), "rate_scale": 10}), ("replicas", 9))
    told = advise(Bench(str(ROOT / "scenarios" / "azure_conversation.yaml"), sets=sets))
    assert told["replications"] == 1 and ONE_TRAFFIC in told["notes"]
    assert told["gpus_spared"] is None
    weights = next(row for row in told["levers"] if row["lever"] == "quantisation")
    assert weights["attainment"]["difference"] > 0 and weights["capacity_per_s"]["difference"] > 0
    # one hour in bursts: its batches differ so much that nothing is shown, and nothing may be claimed
    assert not weights["helps"] and told["stack"] is None
    assert weights["attainment"]["verdict"] == "not enough runs" and weights["capacity_per_s"]["low"] is None
    assert told["verdict"] == "add_gpus" and told["hardware"]["attainment"]["low"] >= 0.95
    assert str(TRACE) in weights["command"] and "--replications" not in weights["command"]
