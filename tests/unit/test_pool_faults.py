"""What can't be right about pools is refused with the place, and with the arithmetic where numbers disagree."""

from __future__ import annotations

import pytest

from llmqsim.errors import ScenarioError
from llmqsim.scenario import load_text
from llmqsim.simulation import prepare, simulate

TOP = """\
workload: {requests: 20, arrivals: {process: poisson, rate: 5 req/s}, lengths: {prompt: 600, output: 20}}
model: llama-3.1-8b
gpu: h100-sxm
"""
POOLS = "pools: {prefill: {}, decode: {}}\n"
LINK = "handoff: {link: rdma-400g}\n"


def faults(text: str, **how) -> list[str]:
    """The faults of a scenario, without a first run."""
    with pytest.raises(ScenarioError) as caught:
        prepare(load_text(text, "x.yaml", **how)).run(0, 0)
    return list(caught.value.faults)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TOP + POOLS, ["x.yaml:1: handoff: missing", "prefill to decode", "link"]),
        (TOP + POOLS + "handoff: {link: rdma-40g}\n", ["x.yaml:5: handoff.link: unknown preset", "rdma-400g"]),
        (TOP + POOLS + "handoff: {link: {latency: 1 ms}}\n", ["handoff.link.bandwidth: missing", "like"]),
        (TOP + POOLS + "handoff: {link: {bandwidth: 5 kB/s}}\n", ["handoff.link.bandwidth: must be at least 1 MB/s"]),
        (TOP + POOLS + "handoff: {preset: nixl, link: pcie5}\n", ["handoff.preset: unknown protocol", "vllm_nixl"]),
        (TOP + POOLS + "handoff: {link: pcie5, first_token: transfer}\n", ["handoff.first_token", "prefill or decode"]),
        (TOP + POOLS + "handoff: {preset: sglang, link: pcie5, lease: 3 s}\n", ["handoff.lease", "got 3 s"]),
        (TOP + LINK, ["x.yaml:4: handoff: means nothing without pools"]),
        (TOP + "placement: split\n", ["x.yaml:4: placement: means nothing without pools"]),
        (TOP + "pools: {}\n", ["x.yaml:4: pools: holds no pool"]),
        (TOP + "pools: {prefill: {}}\n", ["pools: one pool alone must do everything", "role: both"]),
        (TOP + "pools: {a: {}, b: {}}\n", ["placement: missing", "a (both), b (both)"]),
        (TOP + "pools: {a: {role: decoder}}\n", ["x.yaml:4: pools.a.role: unknown choice", "decode"]),
        (TOP + "pools: {a: {replica: 2}}\n", ["x.yaml:4: pools.a.replica: unknown key", "replicas"]),
        (
            TOP + "pools: {prefill: {}, decode: {}, spare: {}}\nplacement: split\n" + LINK,
            ["x.yaml:4: pools.spare: no request can visit it", "prefill then decode"],
        ),
        (
            TOP + POOLS + LINK + "placement: {policy: split, min_prompt_tokens: 700}\n",
            ["x.yaml:4: pools.prefill: no request of this workload can visit it", "20 requests", "600 tokens"],
        ),
        (
            TOP + "pools: {a: {}, b: {}}\nplacement: {policy: by_class, rest: c}\n",
            ["placement.classes.all: no such pool (got 'c')", "Known: a, b"],
        ),
        (
            TOP + "pools: {a: {role: prefill}, b: {}}\nplacement: {policy: by_class, rest: [a, b]}\n",
            ["a request can't go a (prefill) then b (both)"],
        ),
        (
            TOP + POOLS + LINK + "placement: {policy: split, min_prompt: 3}\n",
            ["x.yaml:6: placement: 'split': unknown parameter (got 'min_prompt')", "min_prompt_tokens"],
        ),
        (
            TOP + "pools: {prefill: {}, decode: {engine: {block_size: 32}}}\n" + LINK,
            ["x.yaml:4: pools.decode.engine.block_size", "got 32 tokens, 4,194,304 bytes", "16 tokens, 2,097,152 bytes"],
        ),
        (
            TOP + "pools: {prefill: {}, decode: {engine: {kv_cache_dtype: fp8}}}\n" + LINK,
            ["x.yaml:4: pools.decode.engine.kv_cache_dtype", "2 bytes an element, 131,072 a token (got 1 and 65,536)"],
        ),
        (
            TOP + "pools: {prefill: {tensor_parallel_size: 4}, decode: {tensor_parallel_size: 2}}\n" + LINK,
            ["pools.decode.tensor_parallel_size", "4 of 8 KV heads", "of the prefill pool 2", "at least 4"],
        ),
        (
            TOP + "pools: {prefill: {pipeline_parallel_size: 2}, decode: {}}\n" + LINK,
            ["pools.decode.pipeline_parallel_size", "16 layers", "32"],
        ),
        (
            TOP + "pools: {prefill: {engine: {preset: vllm-0.6, preemption: swap_newest, swap_space: 4 GiB}}, decode: {}}\n" + LINK,
            ["pools.prefill.engine.preemption", "recompute_newest"],
        ),
        (
            TOP + "pools: {prefill: {}, decode: {engine: {batching: static}}}\n" + LINK,
            ["pools.decode.engine.batching", "take continuous"],
        ),
        (
            TOP + "pools: {prefill: {engine: {max_num_seqs: 0}}, decode: {}}\n" + LINK,
            ["x.yaml:4: pools.prefill.engine.max_num_seqs: must be at least 1"],
        ),
        (
            TOP + "pools: {prefill: {gpu: a1000}, decode: {}}\n" + LINK,
            ["x.yaml:4: pools.prefill.gpu: unknown preset (got 'a1000')"],
        ),
        (
            TOP.replace("gpu: h100-sxm\n", "") + "pools: {prefill: {gpu: h100-sxm}, decode: {}}\n" + LINK,
            ["pools.decode.gpu: missing"],
        ),
        (
            TOP + "pools: {prefill: {}, decode: {cost: {model: stations, prefill: 1 s}}}\n" + LINK,
            ["pools.decode.cost.model: stations are no engine"],
        ),
        (
            TOP.replace("model: llama-3.1-8b\n", "cost: {model: constant, step: 10 ms}\n") + POOLS + LINK,
            ["handoff.link: KV has no size without a model"],
        ),
    ],
)
def test_a_fault_says_where_and_what_would_be_right(text, told):
    said = "\n".join(faults(text))
    for part in told:
        assert part in said, said


def test_a_fault_at_the_top_is_told_once():
    """Pools inherit it, but it stands in one place."""
    found = faults(TOP + "engine: {max_num_seqs: 0, block_size: x}\n" + POOLS + LINK)
    assert len(found) == 2 and all(fault.startswith("x.yaml:4: engine.") for fault in found)
    found = faults(TOP + "engine: {max_num_seqs: 512, max_num_batched_tokens: 256}\n" + POOLS + LINK)
    assert len(found) == 1 and found[0].startswith("x.yaml:4: engine.max_num_batched_tokens")


def test_pools_take_from_the_top_what_they_do_not_say():
    scenario = load_text(
        TOP
        + "engine: {block_size: 32, max_num_seqs: 64, async_scheduling: true}\nreplicas: 3\nrouting: least_outstanding\n"
        + "pools: {prefill: {replicas: 2, engine: {max_num_seqs: 8, in_flight: 1}}, decode: {gpu: a100-sxm-80gb}}\n"
        + LINK,
        "x.yaml",
    )
    prefill, decode = (scenario.spec.pools[name] for name in ("prefill", "decode"))
    assert (prefill.replicas, decode.replicas) == (2, 3)
    assert (prefill.engine.block_size, prefill.engine.max_num_seqs, decode.engine.max_num_seqs) == (32, 8, 64)
    assert (prefill.engine.in_flight, prefill.engine.async_scheduling, decode.engine.async_scheduling) == (1, None, True)
    assert (prefill.gpu, decode.gpu) == ("h100-sxm", "a100-sxm-80gb")
    assert prefill.routing.policy == decode.routing.policy == "least_outstanding"
    assert scenario.origins["pools.decode.replicas"] == "x.yaml:5"


def test_a_scenario_with_pools_round_trips():
    from llmqsim.scenario import from_mapping

    scenario = load_text(TOP + POOLS + LINK, "x.yaml", variant=None)
    again = from_mapping(scenario.to_dict())
    assert again.to_dict() == scenario.to_dict()
    one, two = simulate(scenario), simulate(again)
    assert (one.table.data == two.table.data).all()


def test_two_pools_that_do_everything():
    """Classes side by side, no hand-off: each on its own GPU."""
    text = TOP.replace(
        "lengths: {prompt: 600, output: 20}}",
        "classes: {chat: {share: 0.5, lengths: {prompt: 200, output: 50}}, code: {share: 0.5, lengths: {prompt: 900, output: 9}}}}",
    )
    text += "pools: {small: {gpu: l40s}, large: {replicas: 2}}\n"
    text += "placement: {policy: by_class, classes: {chat: small, code: large}}\n"
    result = simulate(load_text(text, "x.yaml"))
    assert set(result.table.replica[result.table.class_id == 0]) == {0}
    assert set(result.table.replica[result.table.class_id == 1]) == {1, 2}
    summary = result.summary()
    assert summary["handoff"] is None and list(summary["pools"]) == ["small", "large"]


def test_figures_of_a_run_with_pools_add_up():
    result = simulate(load_text(TOP + POOLS + LINK, "x.yaml"))
    summary, marks = result.summary(), result.table.handoffs
    way = summary["handoff"]
    assert way["requests"]["done"] == 20 and way["split_share"] == 1
    assert way["total_s"]["mean"] == pytest.approx(sum(way[k]["mean"] for k in ("wait_s", "transfer_s", "resume_s")))
    assert way["bytes"] == int(marks.transfer_bytes.sum()) == 20 * 38 * 2_097_152
    assert {link["bytes"] for link in way["links"].values()} == {way["bytes"]}
    assert summary["pools"]["prefill"]["requests"] == summary["pools"]["decode"]["requests"] == 20
    frame = result.to_frame()
    assert (frame["handoff"] == "done").all() and (frame["transfer_end_s"] >= frame["prefilled_s"]).all()
