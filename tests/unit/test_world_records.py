"""Records over an arena: the same words for plain Python, for NumPy, and for kernels."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from llmqsim.engine.compiled.world import blocks, books, clients, queue, replica, request, router, run, step
from llmqsim.engine.compiled.world.record import Record, erase, listed, placed
from llmqsim.jit import kernel

KINDS = [
    kind
    for module in (blocks, books, clients, queue, replica, request, router, run, step)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Record) and kind.__module__ == module.__name__
]
needs_compiler = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="kernels are plain Python here")


def flat(value) -> list:
    """All numbers in a field of a NumPy record."""
    if isinstance(value, np.void):
        return [number for part in value for number in flat(part)]
    return value.tolist() if isinstance(value, np.ndarray) else [value]


def own(record: Record, name: str) -> list:
    """The same of a record of ours."""
    value = getattr(record, name)
    if isinstance(value, Record):
        return [number for part in value.dtype.names or () for number in own(value, part)]
    return list(value) if isinstance(value, memoryview) else [value]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_python_reads_what_numpy_reads(kind):
    arena = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, 3 * kind.words)
    record, theirs = kind(arena, kind.words), arena.view(kind.dtype)[1]
    assert kind.dtype.itemsize == 8 * kind.words
    for name in kind.dtype.names:
        np.testing.assert_equal(own(record, name), flat(theirs[name]))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_python_writes_changes_its_field_alone(kind):
    for name in kind.dtype.names:
        if not isinstance(getattr(kind(np.zeros(kind.words, np.int64), 0), name), int | float):
            continue
        arena = np.zeros(3 * kind.words, dtype=np.int64)
        setattr(kind(arena, kind.words), name, 7)
        assert arena.view(kind.dtype)[1][name] == 7 and np.count_nonzero(arena) == 1


def test_no_kind_begins_as_another():
    """Else a kernel could take one for the other, since numba calls that a subtype."""
    for one in KINDS:
        for other in KINDS:
            fields = zip(one.dtype.descr, other.dtype.descr, strict=False)
            assert one is other or len(other.dtype.names) > len(one.dtype.names) or any(a != b for a, b in fields)


def test_a_misspelt_field_is_no_field():
    record = replica.Replica(np.zeros(replica.Replica.words, np.int64), 0)
    with pytest.raises(AttributeError, match="free_block"):
        record.free_block = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="free_block"):
        record.set(free_block=1)


def test_columns_are_views_of_one_field_each():
    arena = np.arange(3 * clients.Turn.words)
    clients.Turn.columns(arena)["client"][:] = -1
    assert arena.tolist() == [0, -1, 2, -1, 4, -1]


point_at, pair_in = placed(replica.Replica), listed(queue.Entry)


@kernel
def touch(arena):
    one, other = point_at(arena, 5), pair_in(arena, 5 + len(arena) // 2, 1)
    one.free_blocks += 3
    one.ratio = 0.25
    one.clocks[2] += one.free_blocks
    one.usage.busy_ns.low = -one.usage.steps
    one.usage.outside[3] = 9
    one.top.first = other.level
    other.sibling, other.child = other.child, other.sibling
    return one.ratio * 2


@kernel
def wipe(arena):
    erase(pair_in(arena, 3, 2))


@needs_compiler
def test_kernels_write_what_plain_python_writes():
    made = np.random.default_rng(1).integers(0, 1000, 2 * replica.Replica.words + 40)
    ours, plain = made.copy(), made.copy()
    assert touch(ours) == 0.5
    one = replica.Replica(plain, 5)
    other = queue.Entry(plain, 5 + len(plain) // 2 + queue.Entry.words)
    one.free_blocks += 3
    one.ratio = 0.25
    one.clocks[2] += one.free_blocks
    one.usage.busy_ns.low = -one.usage.steps
    one.usage.outside[3] = 9
    one.top.first = other.level
    other.sibling, other.child = other.child, other.sibling
    assert (ours == plain).all() and (ours != made).sum() >= 7


@needs_compiler
def test_a_record_that_is_erased_and_nothing_else():
    made = np.full(60, 5)
    wipe(made)
    first = 3 + 2 * queue.Entry.words
    assert not made[first : first + queue.Entry.words].any() and made.sum() == 5 * (60 - queue.Entry.words)
