"""mlfq with proactive swapping against a simulator of FastServe that shares nothing with the engine (fastserve.py)."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.clients import Clients
from llmqsim.cluster.compiled import why_not
from llmqsim.cost import lower
from llmqsim.errors import ScenarioError
from tests.support import deployment, run, table
from tests.theory.fastserve import Job, serve

MS = 1_000_000
STEP_MS, PER_TOKEN_NS, BLOCK = 10, 50_000, 16


def jobs_of(seed: int, count: int, rate: float) -> list[Job]:
    """Poisson arrivals on a grid of ms; answers of very different lengths, which is what the queues are for."""
    random = np.random.default_rng([20261201, seed])
    arrivals = np.cumsum(random.exponential(1000 / rate, count)).astype(int) * MS
    prompts = random.integers(1, 300, count)
    outputs = np.minimum(1 + random.lognormal(3, 1.2, count).astype(int), 400)
    return [Job(*map(int, row)) for row in zip(arrivals, prompts, outputs, strict=True)]


def engine(jobs: list[Job], proactive: bool = True, preemption: str = "swap_newest", **given):
    """The cluster, finished, that has served the same jobs."""
    return run(
        table(*((job.arrival / 1e9, job.prompt, job.output) for job in jobs)),
        ordering="mlfq",
        order={"quantum_s": given["quantum"] / 1e9, "levels": 6, "starvation_s": given["starve"] / 1e9}
        | {"proactive": proactive},
        cost=lower.affine(STEP_MS / 1e3, per_prefill_token_s=PER_TOKEN_NS / 1e9),
        blocks=given["blocks"] + 1,  # one is not usable
        preemption=preemption,
        block_bytes=1000,
        swap_space_bytes=10**7,
        swap_block_s=given["copy"] / 1e9,
        host_link_bytes_per_s=1e30,
        max_num_seqs=given["batch"],
        max_num_batched_tokens=1 << 20,
        block_size=BLOCK,
    )


@pytest.mark.parametrize("seed", [0, 2, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 16))])
def test_every_request_ends_when_fastserve_ends_it(seed):
    given = {
        "batch": (4, 8)[seed % 2],
        "blocks": (60, 120, 90)[seed % 3],
        "copy": (1000, 100_000, 2 * MS)[seed % 3],
        "quantum": (12, 30, 100)[seed % 3] * MS,
        "starve": 10**15,  # the statement does not say who is first of those rescued together
    }
    jobs = jobs_of(seed, count=100, rate=8)
    ahead, needed = serve(
        jobs,
        **given,
        size=BLOCK,
        levels=6,
        step=lambda prompts, decodes: STEP_MS * MS + PER_TOKEN_NS * prompts,
        prefill=lambda prompt: STEP_MS * MS + PER_TOKEN_NS * prompt,
    )
    cluster = engine(jobs, **given)
    assert cluster.table.finish_ns.tolist() == [job.end for job in jobs]
    assert cluster.replicas[0].usage.swapped_blocks == ahead + needed
    assert ahead > 0 or seed % 3 == 1  # those have memory enough


# One H100 under twice the load that it can serve for 20 s: answers of very different lengths, memory for a third of a batch.
SERVICE = {
    "workload": {
        "requests": 100,
        "arrivals": {"process": "poisson", "rate": 20},
        "lengths": {"prompt": {"lognormal": {"mean": 300, "cv": 1}}, "output": {"lognormal": {"mean": 150, "cv": 1.5}}},
    },
    "run": {"engine": "reference"},
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "engine": {"preset": "vllm-0.6", "batching": "continuous", "max_num_seqs": 16, "num_gpu_blocks_override": 600},
}


def served(ordering, **engine):
    """Figures of the service under an ordering."""
    return simulate(from_mapping({**SERVICE, "engine": {**SERVICE["engine"], "ordering": ordering, **engine}}))


def test_copies_ahead_of_need_take_less_of_the_gpu_than_computing_again():
    """FastServe's point: levels need preemption, and that is cheap only where nothing is computed twice."""
    recomputed = served("mlfq", preemption="recompute_newest")
    ahead = served({"policy": "mlfq", "proactive": True}, preemption="swap_newest")
    assert ahead.usage[0].recomputed_tokens == 0 < recomputed.usage[0].recomputed_tokens
    assert ahead.usage[0].preemptions < recomputed.usage[0].preemptions
    assert ahead.usage[0].end_ns < recomputed.usage[0].end_ns


def test_what_proactive_swapping_asks_for_is_named():
    with pytest.raises(ScenarioError, match=r"engine.ordering.*proactive.*recomputes; use one that swaps"):
        served({"policy": "mlfq", "proactive": True}, preemption="recompute_newest")
    servers = deployment(ordering="mlfq", order={"proactive": True}, preemption="swap_newest")
    assert "proactive swapping" in why_not(table((0, 1, 1)), servers, Clients())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(30))
def test_every_request_is_served_in_no_more_slots_than_there_are(seed):
    """Whatever memory is short of: the GPU's, the host's or neither; whole prompts or chunks; cached or not."""
    random = np.random.default_rng(seed)

    def pick(*options):
        return options[random.integers(len(options))]

    lengths = {"prompt": {"uniform": [10, pick(50, 400)]}, "output": {"uniform": [1, pick(5, 100)]}}
    workload = {"requests": 40, "arrivals": {"process": "poisson", "rate": pick(5, 20, 100)}, "lengths": lengths}
    engine = {
        "max_num_seqs": pick(1, 3, 8, 64),
        "num_gpu_blocks_override": pick(40, 80, 300),
        "max_model_len": 512,
        "max_num_batched_tokens": pick(512, 2048),
        "enable_chunked_prefill": pick(True, False),
        "enable_prefix_caching": pick(True, False),
        "preemption": pick("swap_newest", {"policy": "newest", "kv": "cheaper"}),
        "swap_space": pick("8 MiB", "64 MiB", "4 GiB"),
        "ordering": {"policy": "mlfq", "proactive": True, "quantum_s": 0.005, "starvation_s": pick(0.05, 3.0)},
    }
    run_ = {"engine": "reference", "seed": seed}
    result = simulate(
        from_mapping({**SERVICE, "workload": workload, "engine": {**SERVICE["engine"], **engine}, "run": run_})
    )
    assert result.table.generated_tokens.tolist() == result.table.output_tokens.tolist()
    assert result.usage[0].running_peak <= engine["max_num_seqs"]
