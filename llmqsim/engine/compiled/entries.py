"""What Python calls: one kernel for each kind of clients, made once with all that it calls inside.

what : OFFER, ADVANCE, SEND or CLOSE; first, last : what that takes, see below. All say DONE, or why they stopped early
(world/limits.py). batcher : compiled/batchers; router : compiled/routers; other arguments as in step/.
"""

# Part of machine code: kernels know these numbers.
from __future__ import annotations

from importlib import import_module

OFFER, ADVANCE, SEND, CLOSE = range(4)
"""rows from `first` on have their replicas, and may be delivered; replicas do what they do up to commits at `first` and all
else before `last`; clients send what is due before `first`; the clock stops at `first`"""


def kernel_of(looped: bool, crowded: bool):
    """The kernel for requests that are sent when they are due, for one closed loop, or for clients of all kinds."""
    module = "clients.serving" if crowded else "loop" if looped else "sending"
    return import_module(f"llmqsim.engine.compiled.{module}").entry
