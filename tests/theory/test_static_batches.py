"""Static batches against fifty lines written from the statement alone (static_batches.py), in both engines."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.cluster.compiled import CompiledCluster
from llmqsim.cost import lower
from tests.support import deployment, run, table
from tests.theory.static_batches import Server, first_and_last_tokens


def random_case(seed: int):
    """A server that holds each request alone, and up to 40 requests of very unequal lengths, many at one instant."""
    draw = np.random.default_rng(seed)
    block_size = int(draw.choice([1, 4, 16]))
    limit = int(draw.integers(20, 200))
    least = -(-limit // block_size)
    server = Server(
        slots=int(draw.integers(1, 9)),
        limit=limit,
        blocks=least * int(draw.choice([1, 2, 3, 40])) + int(draw.integers(0, least)),
        block_size=block_size,
        base=int(draw.integers(1, 50)),
        prompt_token=int(draw.integers(0, 20)),
        row=int(draw.integers(0, 20)),
        kv_token=int(draw.integers(0, 3)),
        size=int(draw.choice([1, 1, 2, 5])),
        max_wait=int(draw.choice([0, 0, 40, 4000])),
    )
    arrivals = np.sort(draw.integers(0, int(draw.choice([1, 500, 20_000])), int(draw.integers(1, 40))))
    requests = []
    for arrival in arrivals.tolist():
        prompt = int(draw.integers(1, draw.choice([8, limit - 1])))
        most = limit - prompt if draw.random() < 0.3 else int(draw.integers(1, limit - prompt + 1))
        requests.append((arrival, prompt, int(draw.integers(1, min(most, 30) + 1)), most))
    return server, requests


def served(server: Server, requests, engine: str):
    """The same marks from an engine."""
    rows = table(*((arrival / 1e9, *rest) for arrival, *rest in requests))
    servers = deployment(
        cost=lower.affine(
            base_s=server.base / 1e9,
            per_prefill_token_s=server.prompt_token / 1e9,
            per_decode_request_s=server.row / 1e9,
            per_kv_token_s=server.kv_token / 1e9,
        ),
        blocks=server.blocks + 1,  # one is the null block
        block_size=server.block_size,
        batching="static",
        policy={"size": server.size, "max_wait_s": server.max_wait / 1e9},
        max_num_seqs=server.slots,
        max_model_len=server.limit,
        enable_chunked_prefill=False,
    )
    if engine == "reference":
        done = run(rows, servers).table
    else:
        cluster = CompiledCluster(rows, servers)
        cluster.run(None)
        done = cluster.table
    return list(zip(done.first_token_ns.tolist(), done.finish_ns.tolist(), strict=True))


ENGINES = pytest.mark.parametrize("engine", ("reference", "compiled"))


@ENGINES
def test_random_batches_are_the_statements(engine):
    for seed in range(200):
        server, requests = random_case(seed)
        assert served(server, requests, engine) == first_and_last_tokens(requests, server), (seed, server)


@pytest.mark.long
@ENGINES
def test_thousands_of_random_batches_are_the_statements(engine):
    for seed in range(200, 4_000):
        server, requests = random_case(seed)
        assert served(server, requests, engine) == first_and_last_tokens(requests, server), (seed, server)


MS = 1_000_000


@ENGINES
def test_a_batch_is_padded_to_the_longest_prompt_of_its_own(engine):
    """By hand: two slots, 1 ms a prompt token; two prompts of 10 are 20 ms, whoever waits behind them."""
    server = Server(slots=2, limit=2000, blocks=10_000, block_size=16, base=0, prompt_token=MS, row=0, kv_token=0)
    marks = served(server, [(0, 10, 1, 1), (0, 10, 1, 1), (0, 1000, 1, 1)], engine)
    assert [first for first, _ in marks] == [20 * MS, 20 * MS, 1020 * MS]


@ENGINES
def test_a_row_holds_no_more_than_the_longest_sequence(engine):
    """By hand: no sequence passes 1,024 tokens, 64 blocks of 16, so two rows fit into 128 that may answer to it."""
    server = Server(slots=8, limit=1024, blocks=128, block_size=16, base=MS, prompt_token=0, row=0, kv_token=0)
    marks = served(server, [(0, 16, 1, 1008), (0, 1008, 1, 16)], engine)
    assert [first for first, _ in marks] == [MS, MS]
