"""Where the words of router and door lie in the arena: from arena[G_ROUTER] on. See forms.py and doors.py."""

# Part of machine code: kernels address the arena by these numbers.
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
    F_DOOR,
    F_REASON,
    F_MOST,
    F_WINDOW_NS,
    F_FILLED_NS,
    F_ENDS,
    F_LIMITS,
    F_CHOICE,
    FRONT,
) = range(28)
"""F_WEIGHTS, F_LIMITS: places in `costs`, not in the arena"""

OUTSTANDING, REQUESTS, BLOCKS, WORK, MATCH, ASKED = range(6)
"""F_LOAD, what makes a replica the better choice: fewer requests in flight, requests that it has, blocks that it holds, work
that is expected in flight; or blocks of the prompt that were sent there, weighed against requests in flight. ASKED: the
policy itself says so, in Python (F_CHOICE)"""

OPEN, BUCKET, CAP_IN_FLIGHT, CAP_WAITING, IN_TIME = range(5)
"""F_DOOR, who may enter"""

P_WAITING, P_RUNNING, P_HELD, REPORT = range(4)
"""what a replica last reported"""
B_NEWER, B_OLDER, BLOCK = range(3)
"""of a block that the router remembers: which one was used next, and which before; 0 where it is not remembered"""
M_OLDEST, M_NEWEST, M_COUNT, MEMORY = 0, 1, 2, 4
"""of a replica's memory, the same for its ends; blocks follow"""
E_FIRST, E_LAST, E_COUNT, LINE = range(4)
"""of a replica: requests that have finished of late"""
