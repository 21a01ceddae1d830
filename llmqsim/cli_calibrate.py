"""`llmqsim calibrate …`: arguments and printing; the answers come from calibrate/ and, for `measure`, the kit."""

from __future__ import annotations

import argparse
from pathlib import Path

from llmqsim.cli_measure import add_measure
from llmqsim.cli_validate import add_tune

EXIT_OK = 0


def add_commands(commands) -> None:
    """Add the `calibrate` group to the command line."""
    calibrate = commands.add_parser("calibrate", help="time kernels on your own GPU, fit the timings, score the fits")
    actions = calibrate.add_subparsers(title="actions", required=True, metavar="ACTION")
    add_measure(actions)
    add_tune(actions)
    fit = actions.add_parser("fit", help="fit every configuration of a folder of kernel timings")
    fit.add_argument("--kernels", required=True, metavar="DIR", type=Path, help="folder of kernel tables (*.parquet)")
    fit.add_argument("--out", metavar="DIR", type=Path, help="folder to write (default: those that ship)")
    fit.add_argument(
        "--leave-out", action="store_true", help="fit without rows and tables that can't be used, and list them"
    )
    fit.set_defaults(command=_fit)
    score = actions.add_parser("score", help="errors on a folder of kernel timings, per family and configuration")
    score.add_argument("--kernels", required=True, metavar="DIR", type=Path, help="folder of kernel tables (*.parquet)")
    score.add_argument("--coefficients", metavar="DIR", type=Path, help="what `calibrate fit --out` wrote")
    score.add_argument("--json", metavar="FILE", help="write every figure as JSON")
    score.add_argument("--predictions", metavar="OUT.csv", help="write the predicted time of every row")
    score.add_argument(
        "--without", choices=("gpu", "version"), help="leave each GPU's (version's) own fits out: what a new one gets"
    )
    score.set_defaults(command=_score)


def _fit(arguments: argparse.Namespace) -> int:
    from importlib.resources import files

    from llmqsim.calibrate.build import build
    from llmqsim.calibrate.score import left_out_as_json, left_out_lines
    from llmqsim.cost.store import SHIPPED

    out = arguments.out or Path(str(files("llmqsim") / "presets" / SHIPPED))
    built = build(arguments.kernels, out, print, arguments.leave_out)
    print(f"{len(built.entries)} configurations in {len(built.archives)} archives written to {out}")
    for reason in built.too_small:
        print(f"not fitted: {reason}")
    for line in left_out_lines(left_out_as_json(built.left_out)):
        print(line)
    return EXIT_OK


def _score(arguments: argparse.Namespace) -> int:
    from llmqsim.calibrate.score import score, text
    from llmqsim.cost.store import Store, shipped
    from llmqsim.files import check_outputs
    from llmqsim.report import files

    check_outputs({"--json": arguments.json, "--predictions": arguments.predictions})
    store = shipped() if arguments.coefficients is None else Store(arguments.coefficients)
    told = score(arguments.kernels, store, arguments.predictions, arguments.without)
    if arguments.json:
        files.write_json(told, arguments.json)
    print(text(told))
    return EXIT_OK
