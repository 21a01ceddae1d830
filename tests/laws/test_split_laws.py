"""Laws of prefill and decode pools: requests, blocks, bytes and tokens are conserved through the hand-off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from llmqsim.requests import UNSET, Handoff, Outcome
from tests.laws.split_cases import LANE, SplitCase, split_cases

SHORT = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))


def check_requests(case: SplitCase) -> None:
    """Everybody is served or refused, once; nobody is left on the way."""
    table = case.run().table
    counts = [int((table.outcome == o).sum()) for o in Outcome]
    assert sum(counts) == len(table) == len(case.requests)
    assert counts[Outcome.UNFINISHED] == 0
    done, split = table.outcome == Outcome.COMPLETED, table.handoffs.handoff != Handoff.NONE
    assert not (table.handoffs.handoff == Handoff.PENDING).any()
    assert (table.handoffs.prefill_replica[split] >= 0).all()
    assert (table.handoffs.prefill_replica[done & ~split] == UNSET).all()
    assert (table.handoffs.handoff[~done] == Handoff.NONE).all()


def check_tokens(case: SplitCase) -> None:
    """Every token is computed once, but for those that were lost, and the last prompt token where decode repeats it."""
    cluster = case.run()
    table = cluster.table
    done = table.outcome == Outcome.COMPLETED
    assert (table.generated_tokens[done] == table.output_tokens[done]).all()
    first_time = int((table.prompt_tokens + table.output_tokens - 1 - table.cached_tokens)[done].sum())
    usage = [r.usage for r in cluster.replicas]
    again = sum(u.recomputed_tokens + u.wasted_rows for u in usage)
    assert sum(u.tokens for u in usage) == first_time + again
    assert cluster.gaps.counts.sum() == (table.output_tokens[done] - 1).sum()


def check_blocks(case: SplitCase) -> None:
    """Whatever is held, lent or reserved is given back."""
    cluster = case.run()
    for replica in cluster.replicas:
        assert replica.pool.held_blocks == 0
        assert 0 <= replica.usage.kv_blocks_peak <= replica.pool.usable_blocks
        assert len(replica.incoming) == 0


def check_bytes(case: SplitCase) -> None:
    """What links carry is what requests are sent: the blocks of their prompts, less what was cached where they decode."""
    cluster = case.run()
    marks, table = cluster.table.handoffs, cluster.table
    blocks = -(-table.prompt_tokens // case.decode["block_size"])
    handed = marks.handoff == Handoff.DONE
    assert (marks.transfer_blocks[handed] <= blocks[handed]).all()
    if not case.decode["enable_prefix_caching"] or case.decode["blocks"] is None:
        assert (marks.transfer_blocks[handed] == blocks[handed]).all()
    # one that ends with its first token may have sent all or some of its prompt before
    assert (marks.transfer_blocks[marks.handoff == Handoff.NONE] == 0).all()
    assert (marks.transfer_bytes == marks.transfer_blocks * LANE.block_bytes).all()
    ends = 1 if case.link.shared else 2
    carried = int(marks.transfer_blocks.sum()) * LANE.lane_bytes
    assert sum(link.bytes for link in cluster.links) == ends * carried


def check_time(case: SplitCase) -> None:
    """Nobody is anywhere before he could be."""
    table = case.run().table
    marks = table.handoffs
    handed = marks.handoff == Handoff.DONE
    assert (marks.prefilled_ns[handed] > table.first_scheduled_ns[handed]).all()
    assert (marks.transfer_end_ns[handed] >= np.maximum(marks.prefilled_ns, marks.transfer_start_ns)[handed]).all()
    assert (marks.resumed_ns[handed] >= marks.transfer_end_ns[handed]).all()
    assert (table.finish_ns[handed] > marks.resumed_ns[handed]).all()
    if not case.terms.pushes:
        assert (marks.transfer_start_ns[handed] >= marks.decode_joined_ns[handed]).all()
        assert (marks.decode_joined_ns[handed] >= marks.prefilled_ns[handed]).all()
    if case.terms.first_token == "decode":
        assert (table.first_token_ns[handed] > marks.resumed_ns[handed]).all()
    if case.terms.first_token == "transfer":
        assert (table.first_token_ns[handed] == marks.transfer_end_ns[handed] + case.host_ns[1]).all()
    if case.terms.first_token == "prefill":
        assert (table.first_token_ns[handed] == marks.prefilled_ns[handed] + case.host_ns[1]).all()
    least_ns = marks.transfer_blocks * LANE.lane_bytes * 1000 // case.link.bytes_per_us + case.link.latency_ns
    moved = handed & (marks.transfer_blocks > 0)
    assert (marks.transfer_end_ns - marks.transfer_start_ns)[moved].min(initial=1 << 60) >= 0
    if case.terms.transfer == "pull":
        assert ((marks.transfer_end_ns - marks.transfer_start_ns)[moved] >= least_ns[moved]).all()


def check_determinism(case: SplitCase) -> None:
    """Same case, same bytes."""
    one, two = case.run(), case.run()
    assert one.table.data.tobytes() == two.table.data.tobytes()
    assert one.table.handoffs.data.tobytes() == two.table.handoffs.data.tobytes()
    assert one.step_log == two.step_log


LAWS = {
    "requests": check_requests,
    "tokens": check_tokens,
    "blocks": check_blocks,
    "bytes": check_bytes,
    "time": check_time,
    "determinism": check_determinism,
}


@pytest.mark.parametrize("law", LAWS)
def test_law(law):
    SHORT(given(split_cases())(LAWS[law]))()


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_law_on_thousands(law):
    LONG(given(split_cases())(LAWS[law]))()


def check_given_up(case: SplitCase) -> None:
    """Clients that give up, wherever their request is, leave nothing behind."""
    cluster = case.run()
    table = cluster.table
    for replica in cluster.replicas:
        assert replica.pool.held_blocks == 0 and len(replica.incoming) == 0
        assert not replica.running and not len(replica.queue)
    assert not (table.outcome == Outcome.UNFINISHED).any()


def test_time_outs():
    SHORT(given(split_cases(timeouts=True))(check_given_up))()


@pytest.mark.long
def test_time_outs_on_thousands():
    LONG(given(split_cases(timeouts=True))(check_given_up))()
