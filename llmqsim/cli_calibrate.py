"""`llmqsim calibrate …`: the group of commands around kernel timings."""

from __future__ import annotations

from llmqsim.cli_measure import add_measure


def add_commands(commands) -> None:
    """Add the `calibrate` group to the command line."""
    calibrate = commands.add_parser("calibrate", help="time kernels on your own GPU")
    actions = calibrate.add_subparsers(title="actions", required=True, metavar="ACTION")
    add_measure(actions)
