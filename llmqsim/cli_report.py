"""`llmqsim report`: answers as one page to look at and to send."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from llmqsim import progress
from llmqsim.errors import UserError
from llmqsim.files import check_outputs, write_text

EXIT_OK = 0


def add_commands(commands: Any) -> None:
    """Add it to the parser's commands."""
    report = commands.add_parser("report", help="one HTML page of a scenario's run, or of answers that --json wrote")
    report.add_argument(
        "what", nargs="+", metavar="SCENARIO|RESULT",
        help="YAML to run; JSON that a command wrote with --json (run, compare, size, capacity, advise, sweep, validate, gate); "
        "CSV of `run --requests` after its run's JSON",
    )  # fmt: skip
    report.add_argument("-o", "--output", required=True, metavar="PAGE.html", help="where to write the page")
    report.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key of the scenarios"
    )
    report.add_argument(
        "--variant", action="append", default=[], metavar="V", help="apply a named variant to the scenarios"
    )
    report.add_argument("--price", action="append", default=[], metavar="GPU=$", help="dollars for a GPU and hour")
    report.add_argument("--title", metavar="TEXT", help="of the browser's window (default: the first question)")
    report.set_defaults(command=_report)


def _report(arguments: argparse.Namespace) -> int:
    from llmqsim.hardware.prices import parse_prices
    from llmqsim.report.page import make, read
    from llmqsim.scenario.load import load

    prices, jobs, scenarios = parse_prices(arguments.price), [], {}
    before: str | None = None
    for path in arguments.what:
        kind = Path(path).suffix.lower()
        if kind == ".csv":
            read.check_pair(path, before)
            jobs[-1] = (jobs[-1][0], path)
            before = None
            continue
        if kind == ".json":
            before = read.read_answer(path)[0]
        else:
            scenarios[path] = load(path, variant=arguments.variant, sets=arguments.set)
            before = None
        jobs.append((path, None))
    if (arguments.set or arguments.variant) and not scenarios:
        raise UserError(
            "--set, --variant: are of scenarios, and only results were given; run the command again with them"
        )
    inputs = [*arguments.what, *(name for one in scenarios.values() for name in one.inputs())]
    check_outputs({"--output": arguments.output}, inputs)
    parts = [
        _ran(scenarios[path], prices) if path in scenarios else make.of_file(path, requests, prices)
        for path, requests in jobs
    ]
    text = make.page(parts, arguments.title)
    write_text(arguments.output, text)
    print(f"{arguments.output}: {len(text.encode()) / 1e3:,.0f} kB, opens in any browser and needs no network")
    return EXIT_OK


def _ran(scenario: Any, prices: dict[str, float]) -> Any:
    """A scenario, run for the page."""
    from llmqsim.cli import _announce_compilation
    from llmqsim.report.page import make, run
    from llmqsim.simulation import simulate

    _announce_compilation()
    few = (scenario.spec.workload.requests or 0) <= make.STEPPED
    with progress.watch():
        result = simulate(scenario, keep_steps=few)
    return run.part(result.summary(), result, prices)
