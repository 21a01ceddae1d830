"""Commands that answer from many runs: compare, size, capacity, check-theory."""

from __future__ import annotations

import argparse
from typing import Any

from llmqsim import terminal
from llmqsim.errors import UserError
from llmqsim.files import check_outputs

EXIT_OK = 0


def add_commands(commands: Any) -> None:
    """Add them to the parser's commands."""
    _add_compare(commands)


def scenario_arguments(parser: argparse.ArgumentParser) -> None:
    """SCENARIO and --set, as every command has them."""
    parser.add_argument("scenario", metavar="SCENARIO", help="YAML file; see `llmqsim schema --markdown`")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. engine.max_num_seqs=64"
    )


def whole(option: str, least: int = 1) -> Any:
    """A type for argparse that reads a whole number; faults are the user's, in one sentence."""

    def read(text: str) -> int:
        if not text.isascii() or not text.strip().lstrip("-").isdigit() or int(text) < least:
            raise UserError(f"{option}: must be a whole number of at least {least} (got '{text}')")
        return int(text)

    return read


def say(text: str) -> None:
    """Print for a terminal."""
    print(terminal.plain(text))


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser("compare", help="variants on the same traffic: differences with intervals and a verdict")
    scenario_arguments(compare)
    compare.add_argument(
        "--variants", required=True, metavar="A,B,...",
        help="compare with the first; `base` is the scenario itself (and stands first where one is named); `a+b` applies both",
    )  # fmt: skip
    compare.add_argument("--replications", type=whole("--replications"), default=10, metavar="N", help="paired runs (10)")
    compare.add_argument(
        "--metric", action="append", default=[], metavar="M", help="ttft, ttft_s.p99, preemptions ...; repeatable"
    )
    compare.add_argument("--seed", type=whole("--seed", 0), metavar="N", help="instead of the scenario's run.seed")
    compare.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    compare.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    compare.set_defaults(command=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from llmqsim.report import compare_figure, drawing, files
    from llmqsim.report.compare_screen import compare_text
    from llmqsim.scenario.load import load

    inputs = load(arguments.scenario, sets=arguments.set).inputs()
    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, inputs)
    drawing.check(arguments.figure)
    from llmqsim.planner.compare import compare

    variants = [name.strip() for name in arguments.variants.split(",") if name.strip()]
    metric = [name.strip() for text in arguments.metric for name in text.split(",") if name.strip()]
    told = compare(arguments.scenario, variants, arguments.replications, metric, arguments.set, arguments.seed)
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    if arguments.figure is not None:
        compare_figure.draw(told, arguments.figure)
    say(compare_text(told))
    return EXIT_OK
