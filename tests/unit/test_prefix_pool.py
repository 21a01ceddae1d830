"""The prefix cache: vLLM V1's rules, one story each. Blocks of 4 tokens."""

from __future__ import annotations

from types import SimpleNamespace

from llmqsim.kv.prefix import NEAR_ADMISSIONS, PrefixPool


def holder(row: int, known: int, prompt: int | None = None):
    return SimpleNamespace(
        row=row,
        kv_blocks=0,
        block_ids=[],
        hashed_blocks=0,
        prefix=None,
        computed_tokens=0,
        known_tokens=known,
        prompt_tokens=prompt or known,
    )


def serve(pool: PrefixPool, who, tokens: int | None = None) -> int:
    """Admit and compute: hits, then blocks for the rest. Returns the hit tokens."""
    tokens = who.known_tokens if tokens is None else tokens
    hits, _ = pool.take_hits(who)
    assert pool.take(who, -(-tokens // pool.block_size) - who.kv_blocks)
    who.computed_tokens = tokens
    pool.computed(who)
    return hits


def test_a_shared_prefix_is_hit_as_soon_as_it_is_scheduled():
    pool = PrefixPool(20, 4, [[1, 2], [1, 2]].__getitem__)
    first, second = holder(0, 10), holder(1, 12)
    assert serve(pool, first) == 0
    assert pool.hit_tokens(second) == (8, 0)  # in use by the first: they cost no free block
    assert serve(pool, second) == 8
    assert pool.held_blocks == 3 + 1
    assert first.block_ids[:2] == second.block_ids[:2]


def test_a_wholly_cached_prompt_recomputes_its_last_block():
    pool = PrefixPool(20, 4, [[1, 2], [1, 2]].__getitem__)
    serve(pool, holder(0, 8))
    assert pool.hit_tokens(holder(1, 8))[0] == 4
    assert pool.hit_tokens(holder(1, 9))[0] == 8


def test_a_hit_ends_at_the_first_block_that_is_not_there():
    pool = PrefixPool(20, 4, [[1, 2, 3], [1, 9, 3]].__getitem__)
    serve(pool, holder(0, 13))
    assert pool.hit_tokens(holder(1, 13))[0] == 4


def test_freed_blocks_stay_hittable_but_count_as_free_and_as_needed():
    pool = PrefixPool(20, 4, [[1, 2], [1, 2]].__getitem__)
    first = holder(0, 10)
    serve(pool, first)
    pool.release(first)
    assert pool.held_blocks == 0
    assert pool.hit_tokens(holder(1, 10)) == (8, 2)


def test_the_head_of_a_prompt_lives_longest():
    pool = PrefixPool(7, 4, [[1, 2, 3], [], [1, 2, 3]].__getitem__)  # 6 usable blocks
    first = holder(0, 12)
    serve(pool, first)
    pool.release(first)  # free list: 3 untouched, then block 3, 2, 1 of the prompt
    other = holder(1, 16)
    serve(pool, other)
    assert pool.hit_tokens(holder(2, 13))[0] == 8  # the tail went first


def test_unhashed_blocks_are_reused_first_when_the_version_does_so():
    for unhashed_first, hits in ((False, 0), (True, 4)):
        pool = PrefixPool(4, 4, [[1], [], [1], []].__getitem__, unhashed_first)  # 3 usable
        whole, partial = holder(0, 4), holder(1, 2)
        serve(pool, whole)
        serve(pool, partial)
        pool.release(whole)
        pool.release(partial)
        serve(pool, holder(3, 6))  # takes two blocks
        assert pool.hit_tokens(holder(2, 5))[0] == hits


def test_a_preempted_request_finds_its_own_blocks_again_also_generated_ones():
    pool = PrefixPool(20, 4, [[]].__getitem__)
    who = holder(0, 14, prompt=6)
    serve(pool, who)
    pool.release(who)
    assert pool.hit_tokens(who)[0] == 12
    assert pool.hit_tokens(holder(0, 6))[0] == 4


def test_nobody_hits_the_private_blocks_of_others():
    pool = PrefixPool(20, 4, [[], []].__getitem__)
    serve(pool, holder(0, 16))
    assert pool.hit_tokens(holder(1, 16))[0] == 0


def test_a_step_that_is_not_to_be_leaves_no_hashes():
    pool = PrefixPool(20, 4, [[1, 2], [1, 2]].__getitem__)
    who = holder(0, 8)
    serve(pool, who)
    pool.forget(who, 4)
    assert pool.hit_tokens(holder(1, 9))[0] == 4


def test_evicted_blocks_come_back_from_the_host_tier():
    pool = PrefixPool(5, 4, [[1, 2], [], [1, 2]].__getitem__, host_blocks=10)  # 4 usable
    first, other = holder(0, 9), holder(1, 16)
    serve(pool, first)
    pool.release(first)
    serve(pool, other)
    pool.release(other)
    back = holder(2, 9)
    assert pool.hit_tokens(back)[0] == 8
    assert pool.take_hits(back) == (8, 8)
    assert pool.held_blocks == 2


def test_a_full_host_tier_forgets_the_oldest():
    pool = PrefixPool(3, 4, [[1], [2], [3], [1]].__getitem__, host_blocks=1)  # 2 usable
    for row in range(3):
        who = holder(row, 8)
        serve(pool, who)
        pool.release(who)
    assert pool.hit_tokens(holder(3, 5))[0] == 0


def test_a_warm_cache_is_hit_by_the_first_request():
    pool = PrefixPool(20, 4, [[1, 2]].__getitem__)
    pool.warm([[1, 2]])
    assert pool.held_blocks == 0
    assert pool.hit_tokens(holder(0, 9)) == (8, 2)


def test_a_full_warm_cache_loses_the_tail_of_its_oldest_prompt_first():
    rows = [[1, 2, 3], [1, 2, 4], [5, 6, 7], [8]]
    pool = PrefixPool(7, 4, rows.__getitem__)  # 6 usable: 7 finds no place, and 8 is not kept at all
    pool.warm(rows)
    assert [pool.hit_tokens(holder(row, 13))[0] for row in range(4)] == [12, 12, 8, 0]
    pool.take(holder(3, 4), 1)
    assert [pool.hit_tokens(holder(row, 13))[0] for row in range(3)] == [8, 12, 8]


def test_what_requests_read_beside_one_another_is_counted_until_the_second_last_leaves():
    pool = PrefixPool(40, 4, {0: [1, 2], 1: [1, 2], 2: [1, 2], 3: [3]}.__getitem__)
    first, second, third, apart = (holder(row, 10) for row in range(4))
    for who, repeated in ((first, 0), (second, 2), (third, 4), (apart, 4)):
        serve(pool, who)
        assert pool.repeated_blocks == repeated
    for who, repeated in ((first, 2), (apart, 2), (third, 0), (second, 0)):
        pool.release(who)
        assert pool.repeated_blocks == repeated


def test_requests_admitted_far_from_one_another_read_nothing_together():
    pool = PrefixPool(1000, 4, lambda row: [] if row % 200 else [1, 2])
    first, last = holder(0, 10), holder(200, 10)
    serve(pool, first)
    for row in range(1, NEAR_ADMISSIONS + 1):
        serve(pool, holder(row, 4))
    assert serve(pool, last) == 8  # a hit all the same
    assert pool.repeated_blocks == 0
    pool.release(first)
    pool.release(last)
    assert pool.repeated_blocks == 0
