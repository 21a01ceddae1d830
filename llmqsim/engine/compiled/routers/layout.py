"""Where the router's own words lie in the arena: from arena[G_ROUTER] on. See forms.py."""

from __future__ import annotations

(
    F_LOAD,
    F_COUNT_OWN,
    F_ALL,
    F_LIST_OF,
    F_SESSION_OF,
    F_PLACES,
    F_WORK,
    F_REPORTS,
    F_SINCE,
    F_PERIOD_NS,
    F_REPORT_NS,
    F_REPORTED_NS,
    F_ON_THE_WAY,
    F_SEEN_NS,
    F_BLOCKS_OF,
    F_BLOCKS,
    F_NUMBERS,
    F_MEMORY,
    F_WEIGHTS,
    FRONT,
) = range(20)
"""F_WEIGHTS: place in `costs`, not in the arena"""

OUTSTANDING, REQUESTS, BLOCKS, WORK, MATCH = range(5)
"""F_LOAD, what makes a replica the better choice: fewer requests in flight, requests that it has, blocks that it holds, work
that is expected in flight; or blocks of the prompt that were sent there, weighed against requests in flight"""

P_WAITING, P_RUNNING, P_HELD, REPORT = range(4)
"""what a replica last reported"""
B_NEWER, B_OLDER, BLOCK = range(3)
"""of a block that the router remembers: which one was used next, and which before; 0 where it is not remembered"""
M_OLDEST, M_NEWEST, M_COUNT, MEMORY = 0, 1, 2, 4
"""of a replica's memory, the same for its ends; blocks follow"""
