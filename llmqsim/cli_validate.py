"""`llmqsim validate …`: arguments and printing; the answers come from validate/."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext

from llmqsim import progress

EXIT_OK = 0
MOST_REASONS = 10


def add_commands(commands) -> None:
    """Add `validate` to the command line."""
    validate = commands.add_parser(
        "validate", help="predict measured serving runs, and say how far off the predictions are"
    )
    validate.add_argument(
        "cases",
        nargs="*",
        metavar="RUNS",
        help="measured runs: YAML of cases, or JSON of a benchmark tool; docs/validate.md",
    )
    validate.add_argument("--requests", metavar="DIR", help="folder of the request tables (default: as the cases say)")
    validate.add_argument(
        "--closed-loop", action="append", default=[], metavar="FILE", help="CSV of closed-loop points"
    )
    validate.add_argument("--static-batch", action="append", default=[], metavar="FILE", help="CSV of static batches")
    validate.add_argument("--server", metavar="FILE", help="YAML that describes who served a benchmark tool's runs")
    validate.add_argument(
        "--case", action="append", default=[], metavar="PATTERN", help="only cases or families like this"
    )
    validate.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core)")
    validate.add_argument("--out", required=True, metavar="DIR", help="folder for errors.csv, summary.csv and more")
    validate.add_argument("--page", metavar="FILE.md", help="also write a page of what was found")
    validate.add_argument("--json", metavar="OUT", help="write every figure and error as JSON, for `llmqsim report`")
    validate.add_argument("--progress", action="store_true", help="say each run as it ends")
    validate.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    validate.set_defaults(command=_validate)


def _validate(arguments: argparse.Namespace) -> int:
    from llmqsim.errors import DataError
    from llmqsim.files import check_outputs, write_text
    from llmqsim.report import drawing, figures
    from llmqsim.report.files import write_json
    from llmqsim.validate import command
    from llmqsim.validate.page import page
    from llmqsim.validate.screen import screen
    from llmqsim.validate.told import told

    if not (arguments.cases or arguments.closed_loop or arguments.static_batch):
        raise DataError("validate: nothing to validate; name a file of cases, --closed-loop or --static-batch")
    if arguments.workers is not None and arguments.workers < 1:
        raise DataError(f"--workers: must be at least 1 (got {arguments.workers})")
    check_outputs({"--page": arguments.page, "--json": arguments.json, "--figure": arguments.figure}, arguments.cases)
    drawing.check(arguments.figure)
    cases = command.read(
        arguments.cases, arguments.requests, arguments.closed_loop, arguments.static_batch, arguments.server
    )
    cases = command.chosen(cases, arguments.case)
    tell = (lambda line: print(line, file=sys.stderr, flush=True)) if arguments.progress else None
    with nullcontext() if arguments.progress else progress.watch("validate"):
        found = command.validate(cases, arguments.workers, tell, command.peer_file_of(arguments.cases))
    command.write(found, arguments.out)
    if arguments.json is not None:
        write_json(told(found), arguments.json)
    if arguments.page is not None:
        write_text(arguments.page, page(found, _called(arguments)))
    if arguments.figure is not None and found.ran:
        figures.draw("validate", told(found), arguments.figure)
    print(screen(found))
    if not found.ran:
        raise DataError(*_nothing_ran(found.why_none, len(cases), arguments.out))
    return EXIT_OK


def _nothing_ran(reasons: list[str], cases: int, out: str) -> list[str]:
    """Why a validation has nothing to show."""
    rest = len(reasons) - MOST_REASONS
    more = [f"… and {rest} more reasons, in errors.csv"] if rest > 0 else []
    head = f"validate: none of {cases} cases could be run; {out} holds the measured figures alone"
    return [head, *reasons[:MOST_REASONS], *more]


def _called(arguments: argparse.Namespace) -> str:
    """The command without folders, which mean nothing to a reader of the page."""
    words = ["llmqsim validate", *(os.path.basename(name) for name in arguments.cases)]
    for option, names in (("--closed-loop", arguments.closed_loop), ("--static-batch", arguments.static_batch)):
        words += [f"{option} {os.path.basename(name)}" for name in names]
    words += [f"--case '{pattern}'" for pattern in arguments.case]
    return " ".join(words)


def add_tune(actions) -> None:
    """Add `tune` to the actions of `calibrate`."""
    tune = actions.add_parser(
        "tune", help="host time and derate of your own deployment, from results of its benchmarks"
    )
    tune.add_argument(
        "runs", nargs="+", metavar="RUNS", help="as for `llmqsim validate`: three at least, at different loads"
    )
    tune.add_argument("--server", metavar="FILE", help="YAML that describes who served a benchmark tool's runs")
    tune.add_argument("--requests", metavar="DIR", help="folder of the request tables")
    tune.add_argument("--case", action="append", default=[], metavar="PATTERN", help="only cases or families like this")
    tune.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core)")
    tune.add_argument("--out", metavar="FILE.yaml", help="write the scenario's keys")
    tune.set_defaults(command=_tune)


def _tune(arguments: argparse.Namespace) -> int:
    from llmqsim.files import check_outputs, write_text
    from llmqsim.validate import command
    from llmqsim.validate.tune import keys, text, tune

    check_outputs({"--out": arguments.out}, arguments.runs)
    cases = command.read(arguments.runs, arguments.requests, server=arguments.server)
    cases = command.chosen(cases, arguments.case)
    found = tune(cases, arguments.workers, lambda line: print(line, file=sys.stderr, flush=True))
    print(text(found))
    if arguments.out is not None and found.helps:
        write_text(arguments.out, keys(found))
    return EXIT_OK
