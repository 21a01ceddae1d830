"""Lengths from a fitted table, one request after the other: what numpy would do range by range of prompts."""

from __future__ import annotations

import math

from llmqsim.jit import kernel

UPPER, PROBABILITY, LOW, HIGH = range(4)
"""rows of `pieces`, float64[4, pieces]: cumulative probability, own probability, first and last token count"""
CELLS = 1024
"""of a guide; a power of two, so that the cell of a number is exact"""


@kernel
def piece_at(pieces, guide, u):
    """The first piece of a distribution whose cumulative probability is above `u` in [0, 1).

    guide : int64[CELLS], that piece for the lower end of each cell of [0, 1).
    """
    place = guide[int(u * CELLS)]
    while pieces[UPPER, place] <= u:
        place += 1
    return place


@kernel
def tokens_at(pieces, place, u):
    """Tokens at `u`, which lies in piece `place`."""
    probability, smallest, largest = pieces[PROBABILITY, place], pieces[LOW, place], pieces[HIGH, place]
    within = (u - (pieces[UPPER, place] - probability)) / probability
    tokens = smallest + math.floor(within * (largest - smallest + 1))
    return int(min(max(tokens, smallest), largest))


@kernel
def draw(pieces, guides, groups, tokens):
    """Prompt and output tokens of every request.

    guides : int64[1 + groups, CELLS], first that of prompts, then those of the outputs of each group of prompts.
    groups : int64[2, ...]: the longest prompt of each group; the group of the shortest prompt of each piece.
    tokens : float64[2, n], uniforms of prompts and outputs, replaced by their tokens.
    """
    for row in range(tokens.shape[1]):
        place = piece_at(pieces, guides[0], tokens[0, row])
        prompt = tokens_at(pieces, place, tokens[0, row])
        group = groups[1, place]
        while groups[0, group] < prompt:
            group += 1
        output = tokens_at(pieces, piece_at(pieces, guides[1 + group], tokens[1, row]), tokens[1, row])
        tokens[0, row] = prompt
        tokens[1, row] = output
