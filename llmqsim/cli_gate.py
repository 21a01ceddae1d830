"""The command for CI: `llmqsim gate`. Exit codes: 0 kept, 1 an objective is broken, 2 bad input, 3 inconclusive."""

from __future__ import annotations

import argparse
import os
from typing import Any

from llmqsim import progress
from llmqsim.cli_planner import say, whole
from llmqsim.errors import UserError
from llmqsim.files import append_text, check_outputs, write_text

EXITS = {"kept": 0, "broken": 1, "inconclusive": 3}


def add_commands(commands: Any) -> None:
    """Add it to the parser's commands."""
    gate = commands.add_parser("gate", help="for CI: do these scenarios keep their SLO, and are they no worse than before?")
    gate.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="YAML files, each with an slo")
    gate.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key in all of them")
    gate.add_argument("--baseline", metavar="FILE", help="compare with the figures in this file (YAML)")
    gate.add_argument("--update", action="store_true", help="write the baseline instead of comparing with it")
    gate.add_argument(
        "--replications", type=whole("--replications"), metavar="N", help="runs of each scenario (10, or the baseline's)"
    )
    gate.add_argument("--seed", type=whole("--seed", 0), metavar="N", help="instead of the scenario's run.seed")
    gate.add_argument("--junit", metavar="F.xml", help="write JUnit XML: a case for every objective")
    gate.add_argument(
        "--summary", metavar="F.md", help="write a Markdown summary (default: append to $GITHUB_STEP_SUMMARY, if set)"
    )
    gate.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    gate.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    gate.set_defaults(command=_gate)


def _gate(arguments: argparse.Namespace) -> int:
    from llmqsim.planner import gate
    from llmqsim.report import drawing, figures, files, gate_report
    from llmqsim.scenario.load import load

    if arguments.update and arguments.baseline is None:
        raise UserError("--update: needs --baseline FILE, the file to write")
    inputs = [name for path in arguments.scenarios for name in load(path, sets=arguments.set).inputs()]
    outputs = {"--junit": arguments.junit, "--summary": arguments.summary, "--json": arguments.json, "--figure": arguments.figure}
    if arguments.update:
        check_outputs({"--baseline": arguments.baseline}, inputs)
        return _update(arguments)
    check_outputs(outputs, [*inputs, *([arguments.baseline] if arguments.baseline else [])])
    drawing.check(arguments.figure)
    number = arguments.replications or gate.REPLICATIONS
    with progress.watch("gate"):
        progress.stage("gate", number * len(arguments.scenarios))
        told = gate.gate(arguments.scenarios, arguments.baseline, number, arguments.seed, arguments.set)
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    if arguments.figure is not None:
        figures.draw("gate", told, arguments.figure)
    if arguments.junit is not None:
        write_text(arguments.junit, gate_report.junit(told))
    if arguments.summary is not None:
        write_text(arguments.summary, gate_report.markdown(told))
    elif path := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_text(path, gate_report.markdown(told))
    say(gate_report.gate_text(told))
    if os.environ.get("GITHUB_ACTIONS") == "true" and (marks := gate_report.annotations(told)):
        say(marks)
    return EXITS[told["verdict"]]


def _update(arguments: argparse.Namespace) -> int:
    from llmqsim.planner import gate

    number = arguments.replications or gate.REPLICATIONS
    with progress.watch("gate"):
        progress.stage("gate", number * len(arguments.scenarios))
        text, moved = gate.update(arguments.scenarios, arguments.baseline, number, arguments.seed, arguments.set)
    write_text(arguments.baseline, text)
    say("\n".join([*moved, f"baseline written: {arguments.baseline}"]))
    return 0
