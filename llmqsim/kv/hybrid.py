"""One KV pool for layers of several kinds: groups, pages, padding, and what a request holds of them.

The arithmetic of vLLM's hybrid KV cache manager (docs/design/hybrid_kv_cache_manager.md, v1/core/kv_cache_utils.py and
v1/kv_cache_interface.py there), checked against the start-up lines of real servers (tests/unit/test_startup_logs.py):

- Layers of one kind are cut into groups of the same number of layers; a short group is padded, which wastes pages.
- A page is a block of tokens (or a request's state) in all layers of a group. All pages have equal bytes: the kind with
  fewer bytes a token gets a longer block, and a block of attention grows until its page holds a state.
- A request holds pages in every group: for all its tokens, for a window, or for its states.

Everything here is of one GPU, and pure: nothing is kept, nothing is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

FULL, WINDOW, CHUNKED, STATE = "full", "window", "chunked", "state"
STATE_STEP, LATENT_STEP = 16, 64
"""tokens by which a block of attention grows to hold a state; with latent attention (read off one log)"""
EVEN = 1.5
"""kinds whose counts are within this factor share one group size, the larger (vLLM; 1.25 in earlier versions)"""
STATE_MODES = ("none", "align", "all")
"""which states prefix caching keeps: none, those at chunk ends, one a block"""


@dataclass(frozen=True)
class Kind:
    """Layers that keep the same of each token, or of each request."""

    name: str
    kind: str
    layers: int
    token_bytes: int = 0
    """of one token in one layer"""
    state_bytes: int = 0
    """of one request in one layer"""
    window: int = 0
    latent: bool = False


@dataclass(frozen=True)
class Group:
    """Layers of one kind whose pages are taken and given back together."""

    kind: Kind
    layers: int
    """real ones; the rest up to the group size is padding"""
    block_tokens: int
    """tokens of a page; of a state: those after which another may be cached"""


@dataclass(frozen=True)
class Layout:
    """The groups of a model on one GPU."""

    groups: tuple[Group, ...]
    group_layers: int
    layer_page_bytes: int
    """a page in one layer"""
    drafted: int = 0
    """tokens that a speculative step adds to a request"""

    @property
    def page_bytes(self) -> int:
        """A page in all layers of a group."""
        return self.layer_page_bytes * self.group_layers

    @property
    def padding_layers(self) -> int:
        """Layers that groups are padded with: their memory is lost."""
        return sum(self.group_layers - group.layers for group in self.groups)

    @property
    def wasted_share(self) -> float:
        """Share of the pool that padding layers take."""
        return self.padding_layers / (self.group_layers * len(self.groups))

    @property
    def block_tokens(self) -> int:
        """The shortest block of a group, which the start-up line counts tokens in."""
        tokens = [group.block_tokens for group in self.groups if group.kind.kind != STATE]
        return min(tokens or [group.block_tokens for group in self.groups])

    @property
    def plain(self) -> bool:
        """Is there one group of one kind that keeps all tokens?"""
        return len(self.groups) == 1 and self.groups[0].kind.kind == FULL

    def pages(self, pool_bytes: int) -> int:
        """Pages of the pool; the null page, which no request holds, is one of them."""
        return max(0, pool_bytes) // self.page_bytes

    def startup_pages(self, tokens: int, in_flight_tokens: int, state_mode: str = "align") -> int:
        """Pages that the start-up lines count for one request of so many tokens, and newer versions admit by.

        in_flight_tokens : the token budget, times the batches in flight from vLLM 0.26 on.
        """
        return sum(self.group_startup(group, tokens, in_flight_tokens, state_mode) for group in self.groups)

    def group_startup(self, group: Group, tokens: int, in_flight: int, state_mode: str) -> int:
        """Pages of one group in that count."""
        kind, block = group.kind, group.block_tokens
        if kind.kind == STATE:
            fixed = {"none": 1 + self.drafted, "align": 2 + self.drafted}
            return fixed[state_mode] if state_mode in fixed else _ceil(tokens, block)
        if kind.kind == WINDOW:
            return _ceil(min(kind.window - 1 + in_flight, tokens), block) + 1
        if kind.kind == CHUNKED:
            return _ceil(min(kind.window + in_flight, tokens), block)
        return _ceil(tokens, block)

    def held_pages(self, tokens: int, chunk: int = 1, state_mode: str = "align") -> int:
        """Pages that a running request of so many tokens holds while it computes `chunk` of them.

        A windowed group keeps the last window - 1 tokens and those of the chunk; what lies before is freed.
        """
        held = 0
        for group in self.groups:
            kind, block = group.kind, group.block_tokens
            if kind.kind == STATE:
                held += _ceil(tokens, block) if state_mode == "all" else 1 + self.drafted + (state_mode == "align")
            elif kind.kind == WINDOW:
                first = max(0, tokens - chunk - (kind.window - 1)) // block  # the first block that is still seen
                held += _ceil(tokens, block) - first
            elif kind.kind == CHUNKED:
                first = (max(0, tokens - chunk) // kind.window * kind.window) // block
                held += _ceil(tokens, block) - first
            else:
                held += _ceil(tokens, block)
        return held

    def concurrency(self, pages: int, tokens: int, in_flight_tokens: int, state_mode: str = "align") -> float:
        """Requests of so many tokens that the start-up lines say fit at once ("Maximum concurrency")."""
        return pages / self.startup_pages(tokens, in_flight_tokens, state_mode)

    def longest(self, pages: int, in_flight_tokens: int, state_mode: str = "align", most: int = 1 << 26) -> int:
        """Longest request that fits alone; 0 where none does."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.startup_pages(middle, in_flight_tokens, state_mode) <= pages:
                low = middle
            else:
                high = middle - 1
        return low


@dataclass(frozen=True)
class Manager:
    """What an engine version does with several kinds."""

    hybrid: bool
    """False: every layer counts in full"""
    state_mode: str = "align"
    in_flight_batches: int = 1
    """batches whose tokens a window is counted with"""
    tokens_by_concurrency: bool = True
    """"GPU KV cache size" is concurrency x longest request; else pages // groups x block"""
    even: float = EVEN
    pool_per_window: bool = False
    """a pool for each window, split statically (TensorRT-LLM)"""
    why: str = ""
    kinds_in_full: tuple[str, ...] = field(default=())


def in_full(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """The same layers where nothing is freed behind a window: as without a hybrid manager."""
    return tuple(replace(one, kind=FULL, window=0) if one.kind in (WINDOW, CHUNKED) else one for one in kinds)


def layout(
    kinds: tuple[Kind, ...], block_size: int = 16, *, drafted: int = 0, even: float = EVEN, spread: bool = False
) -> Layout:
    """Groups and pages for these kinds of layers.

    spread : layers that all keep every token are one group even where their bytes differ (latents and index keys); so
    are kinds that are all of one window.
    """
    kinds = _merged(tuple(one for one in kinds if one.layers))
    if not kinds:
        raise ValueError("no layer keeps anything")
    if spread or all(one.kind == FULL for one in kinds):
        return _one_group(kinds, block_size, drafted)
    size = group_size([one.layers for one in kinds], even)
    page, blocks = _pages(kinds, block_size)
    groups = []
    for one, block in zip(kinds, blocks, strict=True):
        left = one.layers
        while left > 0:
            groups.append(Group(one, min(size, left), block))
            left -= size
    return Layout(tuple(groups), size, page, drafted)


def group_size(counts: list[int], even: float = EVEN) -> int:
    """Layers of a group: the smallest count, or the largest where the counts are nearly the same."""
    least, most = min(counts), max(counts)
    return most if most < even * least else least


def _merged(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Kinds that keep the same are one."""
    found: dict[tuple, Kind] = {}
    for one in kinds:
        key = (one.kind, one.token_bytes, one.state_bytes, one.window)
        found[key] = replace(found[key], layers=found[key].layers + one.layers) if key in found else one
    return tuple(found.values())


def _one_group(kinds: tuple[Kind, ...], block_size: int, drafted: int) -> Layout:
    """All layers in one group: a page is the sum of theirs."""
    layers = sum(one.layers for one in kinds)
    total = sum(one.layers * one.token_bytes for one in kinds) * block_size
    first = kinds[0]
    if len(kinds) > 1:
        first = replace(first, name=" and ".join(one.name for one in kinds), token_bytes=total // block_size // layers)
    return Layout((Group(replace(first, layers=layers), layers, block_size),), 1, total, drafted)


def _pages(kinds: tuple[Kind, ...], block_size: int) -> tuple[int, list[int]]:
    """(bytes of a page in one layer, tokens of a block of each kind)."""
    attending = [one for one in kinds if one.kind != STATE]
    states = [one.state_bytes for one in kinds if one.kind == STATE]
    block = block_size
    if states and attending:
        widest = max(one.token_bytes for one in attending)
        step = LATENT_STEP if any(one.latent for one in attending) else STATE_STEP
        block = max(block_size, step * _ceil(max(states), step * widest))
    page = max([block * one.token_bytes for one in attending] + states)
    blocks = [block if one.kind == STATE else page // one.token_bytes // block_size * block_size for one in kinds]
    return page, blocks


def _ceil(amount: int, unit: int) -> int:
    return -(-amount // unit)
