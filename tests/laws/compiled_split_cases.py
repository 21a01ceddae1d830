"""Random small clusters with prefill and decode pools that the compiled engine knows, run by both engines and compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llmqsim.cluster import choose
from llmqsim.cluster.compiled_split import why_not
from llmqsim.cluster.fleet import Fleet
from llmqsim.engine.handoff import HandoffTerms
from llmqsim.kv.transfer import KvLink
from tests.laws.cases import GRID_NS
from tests.laws.split_cases import SplitCase


def split_case(seed: int) -> SplitCase:
    """A small random cluster, what the compiled engine knows of it; times random or on a grid that forces ties."""
    random = np.random.default_rng(seed)

    def pick(*options):
        return options[random.integers(len(options))]

    on_grid = pick(True, False)
    grid = GRID_NS if on_grid else 1
    count = int(random.integers(1, pick(6, 20, 50)))
    span = pick(0, 10, 60, 200) * (GRID_NS // grid)
    prompts, outputs = random.integers(1, pick(7, 41, 91), count), random.integers(1, pick(4, 13, 60), count)
    limits = outputs + random.integers(0, pick(1, 20), count)
    arrivals = np.sort(random.integers(0, span + 1, count)) * grid
    longest = int((prompts + outputs).max())
    size = pick(1, 4, 16)
    least = -(-longest // size) + 2
    step = random.integers(0, 4, 3) if on_grid else random.integers(0, (10**7, 10**6, 10**6))
    rows = zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), limits.tolist(), strict=True)

    def pool() -> dict:
        chunked = pick(True, True, False)
        return dict(
            batching="continuous",
            policy={},
            preemption="recompute_newest",
            block_bytes=1000,
            enable_prefix_caching=pick(False, True, True),
            unhashed_blocks_first=pick(False, True),
            watermark=pick(0.0, 0.0, 0.1),
            long_prefill_token_threshold=pick(0, 0, 2, 5),
            replicas=pick(1, 1, 2, 3),
            routing=pick("round_robin", "least_outstanding"),
            blocks=pick(None, least, least + 1, least + 3, 2 * least, 4 * least),
            block_size=size,
            max_num_seqs=pick(1, 2, 4, 8, 64),
            max_num_batched_tokens=pick(1, 3, 7, 16, 64) if chunked else pick(longest, 2 * longest),
            enable_chunked_prefill=chunked,
            scheduler_reserve_full_isl=pick(True, False),
            in_flight=pick(1, 2),
        )

    transfer = pick("pull", "pull", "push", "layerwise")
    terms = HandoffTerms(
        transfer,
        first_token=pick("prefill", "decode", *(["transfer"] if transfer != "pull" else [])),
        lease_ns=pick(None, None, 0, 1, GRID_NS, 10 * GRID_NS) if transfer == "pull" else None,
        reserve_tokens=pick(0, 0, 6),
        waiting_share=pick(None, None, 0.05, 0.5),
    )
    link = KvLink(
        "test", pick(1, 1, 400, 10**6), pick(0, 0, GRID_NS, 777, 40 * GRID_NS), pick(0, 0, 1000), pick(True, False)
    )
    placement = pick({}, {}, {"min_prompt_tokens": 15}, {"min_uncached_tokens": 8}, {"min_uncached_share": 0.5})
    step = tuple(int(part) * grid for part in (step[0] + 1, step[1] // 2, step[2] // 2))
    host = pick((0, 0), (0, 0), (GRID_NS, 2 * GRID_NS), (123, 4567))
    loop = (int(random.integers(1, 9)), int(pick(0, 0, 6) * grid), pick(None, None, int(40 * grid)))
    loop = pick(None, None, loop)
    pauses = pick((0, 0), (0, 2 * grid), (grid, 4 * grid))
    prefill, decode = pool(), pool()
    starved = dict(blocks=least + pick(0, 1, 3), max_num_seqs=pick(4, 8), scheduler_reserve_full_isl=False)
    if pick(True, False):
        decode |= starved
    if pick(True, False, False):  # prompts in small chunks, several of them half done
        chunks = pick(2, 5)
        prefill |= starved | dict(
            replicas=1,
            enable_chunked_prefill=True,
            long_prefill_token_threshold=chunks,
            max_num_batched_tokens=pick(2, 4) * chunks,
            watermark=0.0,
        )
    cap = pick(None, None, 1, 3) if loop is None else None
    waits = loop is not None or cap is not None
    if waits and placement.keys() == {"min_prompt_tokens"} and transfer == "pull":
        placement = {}  # which the compiled engine has no form for
    return SplitCase(
        tuple(rows), prefill, decode, step, terms, link, placement, host, (), None, loop, pauses, pick(1, 1, 3), cap
    )


def hosted(fleet: Fleet, seed: int) -> Fleet:
    """The same, now and then with another way to the client at the decode pool."""
    if seed % 3:
        return fleet
    prefill, decode = fleet.pools
    host = replace(decode.deployment.host, request_before_s=0.002, request_after_s=0.003)
    return replace(fleet, pools=(prefill, replace(decode, deployment=replace(decode.deployment, host=host))))


def differences(seed: int) -> list[str]:
    """What differs between the engines."""
    case = split_case(seed)
    fleet = hosted(case.fleet(), seed)
    until_ns = None if seed % 4 else case.step[0] * (3 + 7 * seed % 97)
    assert why_not(case.table(), fleet, case.clients()) is None
    found, tables = [], []
    for engine in ("reference", "compiled"):
        tables.append(case.table())
        found.append(choose.run(engine, tables[-1], fleet, case.clients(), True, until_ns))
    one, two = found
    told = [
        name
        for name, same in {
            "table": np.array_equal(tables[0].data, tables[1].data),
            "marks": np.array_equal(tables[0].handoffs.data, tables[1].handoffs.data),
            "usage": one.usage == two.usage,
            "gaps": np.array_equal(one.gaps.counts, two.gaps.counts) and one.gaps.sum_ns == two.gaps.sum_ns,
            "largest gaps": one.gaps.max_ns == two.gaps.max_ns,
            "links": one.links == two.links,
            "steps": one.step_log == two.step_log,
            "end": one.end_ns == two.end_ns,
        }.items()
        if not same
    ]
    return told
