"""Numbers that mean something to all kernels."""

# Part of machine code: kernels know these numbers.
from __future__ import annotations

from llmqsim.engine import rules

NEVER = 1 << 62
"""a time, ns, that does not come"""
LAST_TIME = 1 << 61
"""the compiled engine works up to here, ns: 73 years"""
LONGEST_STEP = 1 << 38
"""ns, 275 s: times a count below 2**24 it fits in a word"""
NO_LIMIT = rules.NO_LIMIT
GONE = -1
ABORTED = -2
"""a sampled row whose request was taken back: nobody gets its token"""

# What became of an attempt to form a step.
FORMED, NOBODY, SHORT = range(3)

# What a kernel answers: done so far, or why it stopped early.
DONE, LOG_IS_FULL, STUCK, CACHED_TWICE, TOO_LONG, MORE_SLOTS, ASK = range(7)
