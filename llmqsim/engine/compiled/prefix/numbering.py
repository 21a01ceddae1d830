"""Numbers for the keys of a run, and how many leading blocks of each row another one has, too."""

from __future__ import annotations

from llmqsim.engine.compiled.world.run import run_at
from llmqsim.jit import kernel

POSITION_BITS = 32


"""`number` takes the lower half of a hash for a position: a guess that makes the numbers dense, never wrong"""


# Numbers for the keys of a run.


@kernel
def spans(hashes, low, high):
    """Smallest and largest position of each owner: a hash is taken as owner << POSITION_BITS | position."""
    for place in range(len(hashes)):
        owner, position = hashes[place] >> POSITION_BITS, hashes[place] & ((1 << POSITION_BITS) - 1)
        low[owner] = min(low[owner], position)
        high[owner] = max(high[owner], position)


@kernel
def number(hashes, starts, ids, counts):
    """Hashes to numbers: an owner's begin at starts[owner] (less its smallest position). Counts how often each occurs."""
    for place in range(len(hashes)):
        key = starts[hashes[place] >> POSITION_BITS] + (hashes[place] & ((1 << POSITION_BITS) - 1))
        ids[place] = key
        counts[key] += 1


@kernel
def count_shared(offsets, ids, counts, kept):
    """How many leading blocks of each row another one has, too. kept[0] stays 0."""
    for row in range(len(offsets) - 1):
        place = offsets[row + 1]
        while place > offsets[row] and counts[ids[place - 1]] < 2:
            place -= 1
        kept[row + 1] = place - offsets[row]


@kernel
def pack(offsets, ids, arena):
    """Write the leading keys of each row, as many as the arena's offsets say, into the arena."""
    run = run_at(arena, 0)
    for row in range(len(offsets) - 1):
        begin, end = arena[run.prefix + row], arena[run.prefix + row + 1]
        for position in range(end - begin):
            arena[run.prefix_ids + begin + position] = ids[offsets[row] + position]
