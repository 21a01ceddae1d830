"""`llmqsim sweep`: many points of one scenario, into a store that survives being killed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from llmqsim import progress, terminal
from llmqsim.errors import UserError
from llmqsim.files import check_outputs, write_text

EXIT_OK = 0


def add_commands(commands) -> None:
    """Add `sweep` to the parser."""
    parser = commands.add_parser("sweep", help="run a grid of settings; resumable, on one machine or a Dask cluster")
    parser.add_argument("grid", metavar="GRID.yaml", help="which keys take which values; see docs/sweep.md")
    parser.add_argument("--store", metavar="FILE", help="where finished points are kept (default: GRID.sqlite)")
    parser.add_argument("--jobs", default="1", metavar="N", help="processes on this machine (default 1)")
    parser.add_argument("--backend", metavar="NAME", help="a backend of joblib, such as ray, in place of processes")
    parser.add_argument("--dask", metavar="ADDRESS", help="run on the Dask cluster whose scheduler is there")
    parser.add_argument("--csv", metavar="OUT", help="write one row a run")
    parser.add_argument("--json", metavar="OUT", help="write all points as JSON")
    parser.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    parser.set_defaults(command=_sweep)


def _sweep(arguments: argparse.Namespace) -> int:
    from llmqsim.report import drawing, figures, files
    from llmqsim.sweep import read_grid, sweep, table

    store = arguments.store or f"{Path(arguments.grid).stem}.sqlite"
    check_outputs({"--store": store, "--csv": arguments.csv, "--json": arguments.json, "--figure": arguments.figure}, [arguments.grid])
    drawing.check(arguments.figure)
    grid = read_grid(arguments.grid)
    workers = _workers(arguments)
    try:
        with progress.watch("sweep"):
            swept = sweep(grid, store, workers, _Progress(), progress.say)
    finally:
        if hasattr(workers, "close"):
            workers.close()
    if arguments.csv is not None:
        write_text(arguments.csv, table.as_csv(swept))
    if arguments.json is not None:
        files.write_json(table.told(swept), arguments.json)
    if arguments.figure is not None:
        figures.draw("sweep", table.told(swept), arguments.figure)
    print(terminal.plain(table.screen(swept)))
    return EXIT_OK


def _workers(arguments: argparse.Namespace):
    jobs = _jobs(arguments.jobs)
    if arguments.dask is not None:
        if jobs != 1 or arguments.backend is not None:
            raise UserError("--dask: the cluster has its own workers; leave out --jobs and --backend")
        from llmqsim.sweep.distributed import DaskWorkers

        return DaskWorkers(arguments.dask)
    from llmqsim.sweep.local import LocalWorkers

    return LocalWorkers(jobs, arguments.backend)


def _jobs(text: str) -> int:
    most = os.cpu_count() or 1
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise UserError(
            f"--jobs: must be a whole number of processes from 1 (got {text!r}); this machine has {most} cores"
        )
    return int(text)


class _Progress:
    """Runs done, as the sweep tells them: other processes may run them, so none counts itself."""

    def __init__(self):
        self._done = 0

    def __call__(self, done: int, total: int) -> None:
        if done == 0:
            progress.stage("sweep", total, counts_runs=False)
            self._done = 0
        progress.step(done - self._done)
        self._done = done
