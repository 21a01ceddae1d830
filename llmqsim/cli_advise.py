"""The command `llmqsim advise`: what to change before buying."""

from __future__ import annotations

import argparse
from typing import Any

from llmqsim import progress
from llmqsim.cli_planner import EXIT_NO, EXIT_OK, EXIT_UNDECIDED, say, scenario_arguments, whole
from llmqsim.files import check_outputs

EXITS = {"no_hardware_needed": EXIT_OK, "levers": EXIT_OK, "add_gpus": EXIT_OK, "out_of_reach": EXIT_NO}


def add_commands(commands: Any) -> None:
    """Add it to the parser's commands."""
    advise = commands.add_parser(
        "advise", help="what every lever short of hardware would give, and what is left to buy"
    )
    scenario_arguments(advise)
    advise.add_argument("--variant", action="append", default=[], metavar="V", help="apply a named variant")
    advise.add_argument("--price", action="append", default=[], metavar="GPU=$", help="dollars for a GPU and hour")
    advise.add_argument("--seed", type=whole("--seed", 0), metavar="N", help="instead of the scenario's run.seed")
    advise.add_argument("--json", metavar="OUT", help="write the answer as JSON")
    advise.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    advise.set_defaults(command=_advise)


def _advise(arguments: argparse.Namespace) -> int:
    from llmqsim.planner.advise.advise import advise
    from llmqsim.planner.advise.trial import Bench
    from llmqsim.report import drawing, figures, files
    from llmqsim.report.advise_screen import advise_text

    bench = Bench(arguments.scenario, tuple(arguments.variant), tuple(arguments.set), arguments.seed)
    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, bench.scenario().inputs())
    drawing.check(arguments.figure)
    with progress.watch("advise"):
        told = advise(bench, arguments.price)
    if arguments.json is not None:
        files.write_json({key: value for key, value in told.items() if key != "seconds"}, arguments.json)
    if arguments.figure is not None:
        figures.draw("advise", told, arguments.figure)
    say(advise_text(told))
    return EXITS.get(told["verdict"], EXIT_UNDECIDED)
