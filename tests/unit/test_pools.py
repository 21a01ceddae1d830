"""Prefill and decode pools with times that can be worked out by hand: every step takes 1 s, a block takes 2 s on a link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmqsim import registry
from llmqsim.clients import Clients
from llmqsim.cluster.cluster import Cluster
from llmqsim.cluster.fleet import BOTH, DECODE, PREFILL, Fleet, Pool
from llmqsim.engine.handoff import HandoffTerms
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.requests import Handoff, Outcome
from tests.support import deployment, seconds, table

LINK = KvLink("test", bytes_per_us=1)
LANE = KvLane(block_bytes=4_000_000, lane_bytes=2_000_000, fragments=4, layers=2)


def fleet(prefill=None, decode=None, link=LINK, placement=None, **terms) -> Fleet:
    """One replica of each kind unless told otherwise; blocks of 4 tokens."""
    servers = [deployment(**{"block_size": 4, **(own or {})}) for own in (prefill, decode)]
    pools = tuple(Pool(role, role, its) for role, its in zip((PREFILL, DECODE), servers, strict=True))
    split = registry.make("placement", "split", placement)
    return Fleet(pools, split, HandoffTerms(**terms), link, {(PREFILL, DECODE): LANE})


def run(requests, servers: Fleet, until_s: float | None = None, timeout_s: float | None = None) -> Cluster:
    """Simulate and return the cluster, finished."""
    clients = Clients(timeout_ns=None if timeout_s is None else round(timeout_s * 1e9))
    cluster = Cluster(requests, servers, keep_steps=True, clients=clients)
    cluster.run(None if until_s is None else round(until_s * 1e9))
    return cluster


def marks(cluster: Cluster, name: str) -> list[float]:
    """A column of the hand-off, seconds."""
    return seconds(getattr(cluster.table.handoffs, name))


def test_pull():
    """Prompt 0 to 1 s; 8 tokens are 2 blocks, read from 1 to 5 s; then two more tokens."""
    done = run(table((0, 8, 3)), fleet())
    assert marks(done, "prefilled_ns") == [1] and marks(done, "transfer_start_ns") == [1]
    assert marks(done, "transfer_end_ns") == marks(done, "resumed_ns") == [5]
    assert seconds(done.table.first_token_ns) == [1] and seconds(done.table.finish_ns) == [7]
    assert seconds(done.table.max_itl_ns) == [5]
    assert done.table.handoffs.transfer_bytes.tolist() == [8_000_000]
    assert [(link.name, link.bytes, link.busy_ns) for link in done.links] == [
        ("replica 0 out", 4_000_000, 4 * 10**9),
        ("replica 1 in", 4_000_000, 4 * 10**9),
    ]


def test_first_token_from_decode():
    """The last prompt token is computed again: the client waits for transfer and one step more."""
    done = run(table((0, 8, 3)), fleet(first_token="decode"))
    assert seconds(done.table.first_token_ns) == [6] and seconds(done.table.finish_ns) == [8]
    assert done.replicas[1].usage.recomputed_tokens == 1


def test_push_overlaps_chunks():
    """12 tokens in chunks of 4: each block is sent while the next chunk is computed, behind the one before it."""
    done = run(table((0, 12, 2)), fleet({"max_num_batched_tokens": 4}, transfer="push", first_token="transfer"))
    assert marks(done, "transfer_start_ns") == [1] and marks(done, "prefilled_ns") == [3]
    assert marks(done, "transfer_end_ns") == [7]  # three blocks one after the other from 1 s
    assert seconds(done.table.first_token_ns) == [7] and seconds(done.table.finish_ns) == [8]
    pulled = run(table((0, 12, 2)), fleet({"max_num_batched_tokens": 4}))
    assert marks(pulled, "transfer_end_ns") == [9]


def test_layer_by_layer_leaves_only_the_last_layer_behind():
    """A fast link: half of the bytes, one of two layers, has gone by the end of the step; the rest takes half a block."""
    quick = replace(LINK, bytes_per_us=4)  # half a second a block
    done = run(table((0, 4, 2)), fleet(link=quick, transfer="layerwise"))
    assert marks(done, "transfer_start_ns") == [0]
    assert marks(done, "transfer_end_ns") == [1.25]
    assert marks(run(table((0, 4, 2)), fleet(link=quick)), "transfer_end_ns") == [1.5]


def test_latency_and_fragments():
    """A block has 4 fragments: at 1 s each they take longer than its bytes."""
    link = replace(LINK, per_fragment_ns=10**9, latency_ns=250_000_000)
    assert marks(run(table((0, 4, 2)), fleet(link=link)), "transfer_end_ns") == [5.25]


def test_transfers_queue_where_they_share_an_end():
    """Two prompts end at 1 s on two prefill replicas: one decode replica reads them one after the other."""
    requests = table((0, 4, 2), (0, 4, 2))
    one = run(requests, fleet({"replicas": 2}, {"replicas": 1}))
    assert marks(one, "transfer_end_ns") == [3, 5]
    two = run(table((0, 4, 2), (0, 4, 2)), fleet({"replicas": 2}, {"replicas": 2}))
    assert marks(two, "transfer_end_ns") == [3, 3]
    shared = run(table((0, 4, 2), (0, 4, 2)), fleet({"replicas": 2}, {"replicas": 2}, replace(LINK, shared=True)))
    assert marks(shared, "transfer_end_ns") == [3, 5]


def test_back_pressure_reaches_the_prefill_pool():
    """Decode has room for one prompt, prefill for two: the third prompt can't start until the first has been read."""
    small = {"blocks": 3}  # two usable blocks of 4 tokens
    requests = table((0, 4, 4), (0, 4, 4), (0, 4, 4))
    done = run(requests, fleet(small, small))
    # 0 decodes from 3 to 6 s; only then has 1 a place: read from 6 to 8 s, it decodes to 11 s
    assert marks(done, "transfer_start_ns")[:2] == [1, 6]
    assert seconds(done.table.first_scheduled_ns) == [0, 0, 3]
    assert marks(done, "transfer_start_ns")[2] == 11
    assert seconds(done.table.wait_kv_ns)[2] == 3 + 7  # where its prompt is computed, and where it decodes
    assert (done.table.outcome == Outcome.COMPLETED).all()


def test_push_takes_blocks_before_the_prompt_starts():
    """The same with push: prompts wait for a place where they decode, and the prefill pool stays free."""
    requests = table((0, 4, 4), (0, 4, 4))
    done = run(requests, fleet(None, {"blocks": 3}, transfer="push"))
    assert seconds(done.table.first_scheduled_ns) == [0, 6]


def test_an_answer_of_one_token_is_not_handed_over():
    """Its prefill replica has all of it, unless decode makes the first token."""
    done = run(table((0, 4, 1)), fleet())
    assert seconds(done.table.finish_ns) == [1] and done.table.handoffs.handoff.tolist() == [Handoff.ENDED]
    again = run(table((0, 4, 1)), fleet(first_token="decode"))
    assert seconds(again.table.finish_ns) == [4] and again.table.handoffs.handoff.tolist() == [Handoff.DONE]
    pushed = run(table((0, 4, 1)), fleet(transfer="push"))
    assert all(replica.pool.held_blocks == 0 for replica in pushed.replicas)


def test_a_lease_runs_out():
    """Nobody has begun to read after 2 s: the blocks are free, and the decode replica computes the prompt again."""
    requests = table((0, 4, 4), (0, 4, 4))
    done = run(requests, fleet(None, {"blocks": 3}, lease_ns=2 * 10**9))
    assert done.table.handoffs.handoff.tolist() == [Handoff.DONE, Handoff.EXPIRED]
    assert done.replicas[1].usage.recomputed_tokens == 4
    assert done.table.handoffs.transfer_blocks.tolist() == [1, 0]
    assert seconds(done.table.finish_ns) == [6, 9]  # prompt and first token again in one step, from 6 s


def test_short_prompts_stay_at_the_decode_pool():
    """By length, and by what the decode replica does not have cached."""
    done = run(table((0, 4, 2), (0, 8, 2)), fleet(placement={"min_prompt_tokens": 5}))
    assert done.table.handoffs.handoff.tolist() == [Handoff.NONE, Handoff.DONE]
    assert done.table.handoffs.prefill_replica.tolist() == [-1, 0]
    assert done.table.replica.tolist() == [1, 1]


def test_waiting_share_and_reserve():
    """What decode may hold of prompts that do not run yet."""
    requests = table((0, 4, 9), (0, 4, 9), (0, 4, 9))
    free = run(requests, fleet(None, {"blocks": 41, "max_num_seqs": 8}))
    assert marks(free, "transfer_start_ns") == [1, 1, 1]
    # 5 % of 40 blocks are 2: one prompt with the place of its first token; the next is taken once it runs
    some = run(table((0, 4, 9), (0, 4, 9)), fleet(None, {"blocks": 41, "max_num_seqs": 8}, waiting_share=0.05))
    assert marks(some, "transfer_start_ns") == [1, 3]


def test_clients_that_give_up_anywhere_leave_nothing_behind():
    """While the prompt is computed, while it is read, while it decodes."""
    for timeout_s in (0.5, 2, 5.5):
        done = run(table((0, 8, 9)), fleet(), timeout_s=timeout_s)
        assert done.table.outcome.tolist() == [Outcome.TIMED_OUT]
        assert all(replica.pool.held_blocks == 0 for replica in done.replicas)


def test_pools_side_by_side():
    """Two pools that do everything, each for its prompts."""
    pools = (Pool("a", BOTH, deployment()), Pool("b", BOTH, deployment(replicas=2)))
    placement = registry.make("placement", "by_prompt", {"tokens": 10, "short": "a", "long": "b"})
    done = run(table((0, 4, 1), (0, 20, 1), (0, 30, 1)), Fleet(pools, placement))
    assert done.table.replica.tolist() == [0, 1, 2] and done.table.handoffs is None


def test_a_run_that_is_cut_keeps_what_had_happened():
    done = run(table((0, 8, 3)), fleet(), until_s=3)
    assert done.table.outcome.tolist() == [Outcome.UNFINISHED]
    assert seconds(done.table.first_token_ns) == [1] and done.table.handoffs.handoff.tolist() == [Handoff.PENDING]


@pytest.mark.parametrize("transfer", ["pull", "push", "layerwise"])
def test_a_preempted_prompt_is_not_sent_twice(transfer):
    """Prefill has room for two of three prompts that grow by chunks."""
    tight = {"blocks": 6, "max_num_batched_tokens": 6, "scheduler_reserve_full_isl": False}
    done = run(table((0, 12, 3), (0, 12, 3)), fleet(tight, None, transfer=transfer))
    assert done.table.handoffs.transfer_blocks.tolist() == [3, 3]
    assert (done.table.outcome == Outcome.COMPLETED).all()
