"""Static batching in fifty lines, from its statement alone (docs/policies.md): no engine, no policy, no plan.

A batch starts when none runs. Who waits is taken in the order of arrival, as long as there is a slot and memory for
one more row. All prompts are computed in one step, padded to the longest of the batch; then every row makes one token
a step until the batch's longest answer has ended, those that have ended at the length that they had then. Every row holds memory for the longest prompt and the most output
tokens of the batch, but no more than the longest sequence that the server takes, and reads no more. Triton's dynamic
batching: a batch starts once `size` wait (or as many as there are slots), or once the first of them has waited
`max_wait`. Times are whole nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Server:
    """slots : rows. limit : longest sequence, tokens. blocks of block_size tokens : memory. base, prompt_token, row,
    kv_token : ns of a step, of a padded prompt token, of a decoding row, of a token of context that such a row reads."""

    slots: int
    limit: int
    blocks: int
    block_size: int
    base: int
    prompt_token: int
    row: int
    kv_token: int
    size: int = 1
    max_wait: int = 0


def blocks_of_a_row(batch, server: Server) -> int:
    """batch : (arrival, prompt, output, most output tokens)."""
    tokens = min(max(b[1] for b in batch) + max(b[3] for b in batch), server.limit)
    return -(-tokens // server.block_size)


def first_and_last_tokens(requests, server: Server) -> list[tuple[int, int]]:
    """(ns of the first token, ns of the last) of each of `requests`, which stand in the order of arrival."""
    marks, clock = [], 0
    while len(marks) < len(requests):
        queue = requests[len(marks) :]
        size, patient = min(server.size, server.slots), queue[0][0] + server.max_wait
        clock = max(clock, min(patient, queue[size - 1][0]) if len(queue) >= size else patient)
        batch = []
        for request in queue:
            fits = (len(batch) + 1) * blocks_of_a_row([*batch, request], server) <= server.blocks
            if request[0] > clock or len(batch) == server.slots or not fits:
                break
            batch.append(request)
        rows, padded = len(batch), max(b[1] for b in batch)
        ends = []
        for made in range(max(b[2] for b in batch)):
            read = sum(min(padded + min(made, b[2] - 1), server.limit) for b in batch)
            decode = rows * server.row + read * server.kv_token
            clock += server.base + (decode if made else rows * padded * server.prompt_token)
            ends.append(clock)
        marks += [(ends[0], ends[b[2] - 1]) for b in batch]
    return marks
