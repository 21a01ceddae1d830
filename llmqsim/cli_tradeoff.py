"""`llmqsim tradeoff`: what one setting does to TTFT and to TPOT, and which values meet both targets."""

from __future__ import annotations

import argparse

from llmqsim import progress, terminal
from llmqsim.errors import UserError
from llmqsim.files import check_outputs

EXIT_OK = 0
KEY = "engine.max_num_batched_tokens"


def add_commands(commands, add_scenario_arguments) -> None:
    """Add `tradeoff` to the parser. add_scenario_arguments : adds SCENARIO, --variant and --set to a parser."""
    parser = commands.add_parser("tradeoff", help="one setting, two latencies: which values meet both TTFT and TPOT targets?")
    add_scenario_arguments(parser)
    parser.add_argument("--key", default=KEY, metavar="KEY", help=f"the setting (default: {KEY})")
    parser.add_argument("--values", required=True, metavar="V1,V2,...", help="its values, such as 8192,4096,2048,1024,512")
    parser.add_argument("--replications", type=int, default=1, metavar="N", help="independent samples of each (default 1)")
    parser.add_argument("--json", metavar="OUT", help="write all figures as JSON")
    parser.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    parser.set_defaults(command=_tradeoff)


def _tradeoff(arguments: argparse.Namespace) -> int:
    from llmqsim.report import drawing, figures, files, tradeoff_screen
    from llmqsim.tradeoff import tradeoff

    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, [arguments.scenario])
    drawing.check(arguments.figure)
    values = [_number(text) for text in arguments.values.split(",")]
    with progress.watch("tradeoff"):
        progress.stage("tradeoff", len(values) * arguments.replications)
        found = tradeoff(
            arguments.scenario, arguments.key, values, arguments.variant, arguments.set, arguments.replications
        )
    if arguments.json is not None:
        files.write_json(tradeoff_screen.told(found), arguments.json)
    if arguments.figure is not None:
        figures.draw("tradeoff", tradeoff_screen.told(found), arguments.figure)
    print(terminal.plain(tradeoff_screen.screen(found)))
    return EXIT_OK


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--values: must be numbers with commas between (got '{text}'), such as 512,1024") from None
