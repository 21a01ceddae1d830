"""Hybrid KV pools: exact counts of the published rule, and laws that hold for every layout.

Right values: worked by hand from vLLM's documented rule (../shared/design/mechanisms_2026.md, section 1), and an
independent count that walks a request token by token and frees behind the window.
"""

from __future__ import annotations

import math
import random

import pytest

from llmqsim import load_text
from llmqsim.errors import ScenarioError
from llmqsim.kv.hybrid import CHUNKED, FULL, STATE, WINDOW, Kind, group_size, in_full, layout
from llmqsim.kv.kinds import Release, manager
from llmqsim.simulation import prepare

MIXED = (Kind("full", FULL, 10, 4), Kind("windowed", WINDOW, 20, 4, window=32))


def test_eleven_pages_held_and_twenty_one_counted_at_start_up():
    made = layout(MIXED)
    assert [(g.kind.kind, g.layers) for g in made.groups] == [(FULL, 10), (WINDOW, 10), (WINDOW, 10)]
    assert made.held_pages(112) == 7 + 2 + 2 == 11
    assert made.startup_pages(112, 64) == 7 + 2 * (6 + 1) == 21  # ceil((32 - 1 + 64) / 16) + 1


@pytest.mark.parametrize(
    ("counts", "size", "groups", "padding"),
    [([10, 52], 10, 7, 8), ([17, 48], 17, 4, 3), ([12, 13], 13, 2, 1), ([7, 20], 7, 4, 1), ([4, 21], 4, 7, 3)],
)
def test_groups_and_padding_as_servers_print_them(counts, size, groups, padding):
    """Gemma-3-27b, Qwen3.6-27B with MTP, vLLM's own example, Kimi-Linear, Nemotron-3-Nano-4B."""
    made = layout((Kind("full", FULL, counts[0], 4), Kind("windowed", WINDOW, counts[1], 4, window=64)))
    assert (made.group_layers, len(made.groups), made.padding_layers) == (size, groups, padding)
    assert made.wasted_share == pytest.approx(padding / (groups * size))
    assert group_size([12, 13], 1.05) == 12


def test_pages_are_equal_and_the_narrower_kind_gets_the_longer_block():
    made = layout((Kind("full", FULL, 10, 8192), Kind("windowed", WINDOW, 50, 16_384, window=1024)))
    assert [g.block_tokens for g in made.groups] == [32, 16, 16, 16, 16, 16]
    assert made.layer_page_bytes == 16 * 16_384


@pytest.mark.parametrize(
    ("state", "token", "latent", "block"),
    [
        (3_207_168, 4096, False, 784),  # Qwen3.5-27B in 16 bits
        (3_207_168, 2048, False, 1568),  # in 8 bits
        (1_085_440, 1152, True, 960),  # Kimi-Linear, two GPUs
        (1_000, 4096, False, 16),
    ],
)
def test_a_block_grows_until_its_page_holds_the_state(state, token, latent, block):
    made = layout((Kind("full", FULL, 16, token, latent=latent), Kind("states", STATE, 48, state_bytes=state)))
    assert {g.block_tokens for g in made.groups} == {block} and made.layer_page_bytes == block * token


def test_layers_that_keep_every_token_are_one_group_whatever_their_bytes():
    made = layout((Kind("latent", FULL, 61, 1152, latent=True), Kind("index", FULL, 61, 132)), 64)
    assert made.plain and made.page_bytes == 64 * 61 * (1152 + 132)
    assert made.pages(10 * made.page_bytes + 1) == 10


def test_states_by_mode_and_with_speculation():
    kinds = (Kind("full", FULL, 16, 4096), Kind("states", STATE, 48, state_bytes=3_207_168))
    plain, drafting = layout(kinds), layout(kinds, drafted=3)
    attention = -(-32_768 // 784)
    assert plain.startup_pages(32_768, 8192, "none") == attention + 3
    assert plain.startup_pages(32_768, 8192, "align") == attention + 3 * 2
    assert plain.startup_pages(32_768, 8192, "all") == 4 * attention
    assert drafting.startup_pages(32_768, 8192, "align") == attention + 3 * 5


def test_chunked_attention_counts_no_spare_page():
    made = layout((Kind("full", FULL, 12, 4), Kind("chunked", CHUNKED, 36, 4, window=8192)))
    assert made.startup_pages(100_000, 2048) == 6250 + 3 * ((8192 + 2048) // 16)


def walked(window: int, block: int, tokens: int, chunk: int) -> int:
    """Pages of a windowed group after a prompt is computed chunk by chunk, freeing what no later token sees."""
    held, done = set(), 0
    while done < tokens:
        step = min(chunk, tokens - done)
        seen = max(0, done - (window - 1))  # the first token that this chunk's first query sees
        held = {page for page in held if (page + 1) * block > seen}
        held |= {at // block for at in range(done, done + step)}
        done += step
    return len(held)


def test_what_is_held_is_what_a_walk_over_the_tokens_holds():
    draw = random.Random(0)
    for _ in range(200):
        window, block, tokens = draw.randint(1, 200), draw.choice([1, 4, 16, 32]), draw.randint(1, 600)
        made = layout((Kind("full", FULL, 1, 4), Kind("windowed", WINDOW, 1, 4, window=window)), block)
        expected = -(-tokens // block) + walked(window, block, tokens, 1)
        assert made.held_pages(tokens) == expected, (window, block, tokens)
        whole = -(-tokens // block) + walked(window, block, tokens, tokens)
        assert made.held_pages(tokens, chunk=tokens) == whole


def test_laws():
    """A windowed model holds no more than a full one, but for one spare page a group; a wide window is no window."""
    draw = random.Random(1)
    for _ in range(200):
        full, windowed, window = draw.randint(1, 40), draw.randint(1, 80), draw.randint(1, 4096)
        kinds = (Kind("full", FULL, full, 8), Kind("windowed", WINDOW, windowed, 8, window=window))
        made, tokens, budget = layout(kinds), draw.randint(1, 20_000), draw.choice([64, 2048, 8192])
        pages = -(-tokens // 16)
        groups = sum(g.kind.kind == WINDOW for g in made.groups)
        assert made.held_pages(tokens) <= pages * len(made.groups)
        assert made.startup_pages(tokens, budget) <= pages * len(made.groups) + groups
        assert made.held_pages(tokens, chunk=1) <= made.startup_pages(tokens, budget)
        assert made.startup_pages(tokens, budget) <= made.startup_pages(tokens + 1, budget)
        wide = layout((kinds[0], Kind("windowed", WINDOW, windowed, 8, window=tokens + 1)))
        assert wide.held_pages(tokens) == pages * len(wide.groups)
        flat = layout(in_full(kinds))
        assert flat.plain and flat.page_bytes == 16 * 8 * (full + windowed)
        for pool in (10**6, 10**8):
            assert made.pages(pool) * made.page_bytes <= pool < (made.pages(pool) + 1) * made.page_bytes
            longest = made.longest(made.pages(pool), budget)
            assert longest == 0 or made.startup_pages(longest, budget) <= made.pages(pool)
            assert made.startup_pages(longest + 1, budget) > made.pages(pool)


@pytest.mark.parametrize(
    ("release", "hybrid", "mode", "batches", "by_concurrency"),
    [
        ("vllm-0.10", False, "none", 1, False),
        ("vllm-0.11", True, "none", 1, False),
        ("vllm-0.20", True, "align", 1, False),
        ("vllm-0.21", True, "align", 1, True),
        ("vllm-0.25", True, "align", 1, True),
        ("vllm-0.26", True, "align", 2, True),
    ],
)
def test_what_releases_do(release, hybrid, mode, batches, by_concurrency):
    rule = manager(Release.of(release), batches=2)
    assert (rule.hybrid, rule.state_mode, rule.in_flight_batches) == (hybrid, mode, batches)
    assert rule.tokens_by_concurrency == by_concurrency
    assert not manager(Release.of(release), offloading=True).hybrid
    assert manager(Release.of(release), prefix_caching=False).state_mode == "none"


def test_other_engines_say_what_is_taken():
    assert manager(Release.of("trtllm-1.0")).pool_per_window
    assert "pools of their own" in manager(Release.of("sglang-0.5")).why
    assert not manager(Release.of("orca-2023")).hybrid


TEXT = """\
workload: {requests: 4, arrivals: {process: constant, rate: 1 req/s}, lengths: {prompt: 8000, output: 200}}
model: qwen3.5-27b
gpu: h100-sxm
engine: {preset: vllm-0.19, max_num_seqs: 8}
"""


def test_the_first_lines_say_by_how_much_the_runs_pool_errs():
    """Both pools by hand: 16 full layers of 4,096 bytes a token; pages of 784 tokens in 16 layers, states in three groups."""
    prepared = prepare(load_text(TEXT))
    told = {one.code: one.text for one in prepared.caveats()}
    pool = next(item.bytes for item in prepared.servers.deployment.capacity.items if item.name == "KV pool")
    page = 784 * 4096 * 16
    theirs = (pool // page - 1) / (math.ceil(8200 / 784) + 3 * 2)
    tokens = (pool - 8 * 3 * 2 * page) // (16 * 4096 * 16) * 16 - 16
    assert f"holds about {theirs / (tokens / 8200):.2g} times as many requests of 8,200 tokens" in told["hybrid_kv"]
    assert "48 x gated delta net" in told["state_layers"]
    flat = prepare(load_text(TEXT, sets={"engine.preset": "vllm-0.10", "cost": {"model": "constant", "step": 0.01}}))
    assert not {"hybrid_kv", "state_layers"} & {one.code for one in flat.caveats()}


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("engine.enable_lora", True, "LoRA adapters are not modelled: .*nearest is the base model alone"),
        ("engine.max_loras", 4, "LoRA adapters are not modelled"),
        ("engine.decode_context_parallel_size", 2, "context parallelism is not modelled: .*nearest is tensor_parallel_size"),
    ],
)
def test_what_engines_have_and_this_does_not_is_refused_by_name(key, value, told):
    with pytest.raises(ScenarioError, match=told):
        load_text(TEXT, sets={key: value})
