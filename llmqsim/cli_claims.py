"""`llmqsim claims`: well-known figures of the field, simulated, each beside what was published.

Exit code 0 when all were run, whether or not they hold: a claim that does not hold is an answer. 2: bad input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from llmqsim import progress, terminal
from llmqsim.files import check_outputs, write_text

EXIT_OK = 0


def add_commands(commands) -> None:
    """Add `claims` to the parser."""
    parser = commands.add_parser(
        "claims", help="well-known figures of the field: do they hold, and on which assumption?"
    )
    parser.add_argument("--only", metavar="C01,C04", help="these alone")
    parser.add_argument("--folder", metavar="DIR", help="scenarios to run instead of those that come with llmqsim")
    parser.add_argument("--bands", metavar="FILE", help="what counts as reproduced (bands.yaml of the folder)")
    parser.add_argument("--reduced", action="store_true", help="smaller runs, as for CI")
    parser.add_argument("--seed", default="0", metavar="N", help="of the runs (0)")
    parser.add_argument("--json", metavar="OUT", help="write them as JSON")
    parser.add_argument("--markdown", metavar="OUT.md", help="write them as a page, such as docs/claims.md")
    parser.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    parser.set_defaults(command=_claims)


def _claims(arguments: argparse.Namespace) -> int:
    from llmqsim.claims import FOLDER, claims
    from llmqsim.cli_planner import whole
    from llmqsim.report import claims_page, claims_screen, drawing, figures, files

    folder = FOLDER if arguments.folder is None else Path(arguments.folder)
    inputs = [*folder.glob("*.yaml"), *([arguments.bands] if arguments.bands else [])]
    outputs = {"--json": arguments.json, "--markdown": arguments.markdown, "--figure": arguments.figure}
    check_outputs(outputs, inputs)
    drawing.check(arguments.figure)
    only = [name.strip() for name in (arguments.only or "").split(",") if name.strip()]
    seed = whole("--seed", 0)(arguments.seed)
    with progress.watch("claims"):
        told = claims(only, folder, arguments.bands, arguments.reduced, seed, progress.say)
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    if arguments.markdown is not None:
        write_text(arguments.markdown, claims_page.page(told))
    if arguments.figure is not None:
        figures.draw("claims", told, arguments.figure)
    print(terminal.plain(claims_screen.screen(told)))
    return EXIT_OK
