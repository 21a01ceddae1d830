"""`llmqsim warm`: compile kernels ahead of the first answer."""

from __future__ import annotations

import argparse
import sys

from llmqsim import terminal


def add_commands(commands) -> None:
    """Add `warm` to the parser."""
    warm = commands.add_parser("warm", help="compile ahead, so that the first answer need not wait for it")
    warm.add_argument(
        "scenarios", metavar="SCENARIO", nargs="*", help="compile what these need (default: all common things)"
    )
    warm.set_defaults(command=_warm)


def _warm(arguments: argparse.Namespace) -> int:
    from llmqsim import jit
    from llmqsim.warm import warm

    def say(number: int, count: int, what: str) -> None:
        """Where nobody watches, the lines of what is done are enough."""
        if sys.stderr.isatty():
            print(f"llmqsim: {number} of {count}: {terminal.plain(what)} ...", file=sys.stderr, flush=True)

    jit.without_linear_algebra()
    total = 0.0
    for done in warm(arguments.scenarios, say):
        total += done.cpu_s
        print(terminal.plain(f"{done.what}: {done.engine} engine, {done.cpu_s:.1f} CPU s"))
    print(f"{total:.1f} CPU s in all; machine code is kept in {jit.disk.writable() or 'no folder'}")
    return 0
