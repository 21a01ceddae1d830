"""Things to come, in lists: rings of (time, row) where every delay is a constant, heaps of (time, what) elsewhere."""

from __future__ import annotations

from llmqsim.engine.compiled.split.layout import *
from llmqsim.jit import kernel


@kernel
def append(arena, ring, time, row):
    """Put (time, row) at the end of a ring; `ring` is the word of its place, followed by its head and tail."""
    place = arena[ring] + 2 * arena[ring + 2]
    arena[place], arena[place + 1] = time, row
    arena[ring + 2] += 1


@kernel
def first_time(arena, ring):
    """Time of the first entry of a ring."""
    if arena[ring + 1] == arena[ring + 2]:
        return NEVER
    return arena[arena[ring] + 2 * arena[ring + 1]]


@kernel
def take_first(arena, ring):
    """Take the first entry off a ring; returns its row."""
    row = arena[arena[ring] + 2 * arena[ring + 1] + 1]
    arena[ring + 1] += 1
    return row


@kernel
def is_before(arena, one, time, what):
    """Is the entry at a place of the arena before (time, what)?"""
    return arena[one] < time or (arena[one] == time and arena[one + 1] < what)


@kernel
def earliest(arena, heap):
    """Time of the first entry of a heap; `heap` is the word of its place, followed by its size."""
    return arena[arena[heap]] if arena[heap + 1] > 0 else NEVER


@kernel
def push(arena, heap, time, what):
    """Add an entry to a heap."""
    first, place = arena[heap], arena[heap + 1]
    arena[heap + 1] += 1
    while place > 0 and not is_before(arena, first + 2 * ((place - 1) // 2), time, what):
        parent = first + 2 * ((place - 1) // 2)
        arena[first + 2 * place], arena[first + 2 * place + 1] = arena[parent], arena[parent + 1]
        place = (place - 1) // 2
    arena[first + 2 * place], arena[first + 2 * place + 1] = time, what


@kernel
def pop(arena, heap):
    """Take the earliest entry off a heap; returns what it is."""
    first, size = arena[heap], arena[heap + 1] - 1
    arena[heap + 1] = size
    popped = arena[first + 1]
    time, last = arena[first + 2 * size], arena[first + 2 * size + 1]
    place = 0
    while 2 * place + 1 < size:
        child = first + 2 * (2 * place + 1)
        if child + 2 < first + 2 * size and is_before(arena, child + 2, arena[child], arena[child + 1]):
            child += 2
        if not is_before(arena, child, time, last):
            break
        arena[first + 2 * place], arena[first + 2 * place + 1] = arena[child], arena[child + 1]
        place = (child - first) // 2
    arena[first + 2 * place], arena[first + 2 * place + 1] = time, last
    return popped


@kernel
def sort(arena, start, count):
    """Sort a short list of rows in place."""
    for place in range(1, count):
        row, at = arena[start + place], place
        while at > 0 and arena[start + at - 1] > row:
            arena[start + at] = arena[start + at - 1]
            at -= 1
        arena[start + at] = row


@kernel
def note(arena, listed, row):
    """Add a row to a list; `listed` is the word of its place, followed by its size."""
    arena[arena[listed] + arena[listed + 1]] = row
    arena[listed + 1] += 1
