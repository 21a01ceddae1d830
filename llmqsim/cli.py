"""The command line: parses, prints, exits. Every answer comes from the functions that Python users call.

Exit codes: 0 done (also when the verdict is "overloaded"), 2 the user's input is wrong, with one clear message on
stderr and nothing written.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import TYPE_CHECKING

from llmqsim import progress, terminal
from llmqsim.cli_hints import Parser
from llmqsim.errors import UserError
from llmqsim.files import check_outputs
from llmqsim.version import __version__

if TYPE_CHECKING:
    from llmqsim.scenario.load import Scenario

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
MOST_FAULTS = 20
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `llmqsim` command; returns the exit code."""
    terminal.prepare()
    if argv is not None:
        return _answer(argv)
    _prepare_process()
    try:
        return _answer(sys.argv[1:])
    finally:
        gc.freeze()  # the process ends: looking for garbage once more would take as long as a short run


def _answer(argv: list[str]) -> int:
    """Do what the arguments ask for; returns the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        code = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _complain(*error.faults)
    except MemoryError:
        return _complain("not enough memory; ask for fewer requests (workload.requests), or use a larger machine")
    except BrokenPipeError:  # the reader of our output has gone; not an error of this run
        _silence()
        return EXIT_OK
    except OSError as error:  # files are checked where they are opened: what is left is stdout, such as a full disk
        if error.filename is not None:
            raise
        _silence()
        return _complain(f"the answer can't be written to standard output ({error.strerror or error})")
    except KeyboardInterrupt:
        _complain("interrupted")
        return EXIT_INTERRUPTED


def _prepare_process() -> None:
    """What suits a process that answers one question and ends; called before anything heavy is imported.

    One thread for NumPy's linear algebra, unless the user has said otherwise: our matrices are so small that more threads
    only wait for each other. Garbage is looked for less often: what a start loads stays until the end.
    """
    if not any(name in os.environ for name in BLAS_THREADS):
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
    gc.set_threshold(100_000, 20, 20)


def _say(text: str) -> None:
    print(terminal.plain(text))


def _complain(*faults: str) -> int:
    """Say what is wrong, one fault a line, the first ones only where there are very many."""
    if len(faults) > MOST_FAULTS + 1:
        faults = (*faults[:MOST_FAULTS], f"and {len(faults) - MOST_FAULTS:,} more")
    for fault in faults:
        print(f"llmqsim: {terminal.plain(fault)}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _silence() -> None:
    """What is still buffered can't be written any more, and must not be tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="llmqsim",
        description="Queueing simulator for LLM serving: TTFT, TPOT and SLO attainment, and what requests waited for.",
    )
    parser.add_argument("--version", action="version", version=f"llmqsim {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="simulate a scenario and print the answer")
    _scenario_arguments(run)
    run.add_argument("--seed", metavar="N", help="short for --set run.seed=N")
    run.add_argument("--trace", metavar="FILE", help="replay this trace instead of the scenario's arrivals and lengths")
    run.add_argument(
        "--time-unit", metavar="U", help="unit of the trace's stamps: s, ms, us or ns (workload.trace.time_unit)"
    )
    run.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    run.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    run.add_argument("--requests", metavar="OUT.csv", help="write one row a request")
    run.add_argument(
        "--keep",
        choices=("summary", "requests"),
        help="what to hold in memory of requests that are over (default: summary, or requests with --requests or --figure)",
    )
    run.set_defaults(command=_run)

    explain = commands.add_parser("explain", help="every resolved value with its origin, KV capacity and step costs")
    _scenario_arguments(explain)
    explain.add_argument("--json", metavar="OUT", help="write it as JSON")
    asked = explain.add_mutually_exclusive_group()
    asked.add_argument("--request", metavar="ID", help="what this request waited for; SCENARIO may be a table of requests")
    asked.add_argument("--class", dest="klass", metavar="NAME", help="the same for a traffic class")
    asked.add_argument("--decile", metavar="N", help="the same for a tenth of the requests by length, 1 the shortest")
    asked.add_argument("--log", metavar="FILE", help="the start-up lines of a vLLM server, beside what is worked out")
    explain.set_defaults(command=_explain)

    metrics = commands.add_parser("metrics", help="the same metrics from measured events")
    metrics.add_argument("events", metavar="EVENTS.csv", help="columns: request, arrival, time, tokens")
    metrics.add_argument("--time-unit", default="auto", metavar="U", help="unit of its times: s, ms, us or ns")
    metrics.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    metrics.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    metrics.set_defaults(command=_metrics)

    schema = commands.add_parser("schema", help="what a scenario may hold: JSON Schema, or a table for reading")
    schema.add_argument("--markdown", action="store_true", help="print the table")
    schema.add_argument("--policies", action="store_true", help="print every policy, with its parameters and source")
    schema.set_defaults(command=_schema)

    from llmqsim import (
        cli_advise,
        cli_calibrate,
        cli_claims,
        cli_completion,
        cli_fits,
        cli_gate,
        cli_planner,
        cli_report,
        cli_sweep,
        cli_tradeoff,
        cli_validate,
        cli_warm,
        cli_workload,
    )

    cli_planner.add_commands(commands)
    cli_advise.add_commands(commands)
    cli_gate.add_commands(commands)
    cli_calibrate.add_commands(commands)
    cli_sweep.add_commands(commands)
    cli_tradeoff.add_commands(commands, _scenario_arguments)
    cli_validate.add_commands(commands)
    cli_claims.add_commands(commands)
    cli_warm.add_commands(commands)
    cli_workload.add_commands(commands)
    cli_report.add_commands(commands)
    cli_fits.add_commands(commands)
    cli_completion.add_commands(commands)

    bench = commands.add_parser("bench", help="how fast is the simulator on this machine?")
    bench.add_argument("--case", action="append", default=[], metavar="CASE", help="only this case; see docs/benchmarks.md")
    bench.add_argument("--scale", action="store_true", help="also case g from 10,000 to 10 million requests")
    bench.add_argument("--start", action="store_true", help="also what compiling, loading and `llmqsim run` take")
    bench.add_argument("--all", action="store_true", help="every case, --scale and --start: the table of docs/benchmarks.md")
    bench.add_argument("--json", metavar="OUT", help="write the figures as JSON")
    bench.set_defaults(command=_bench)

    presets = commands.add_parser("presets", help="list models, GPUs, engines, workloads and policies known by name")
    presets.add_argument("kind", nargs="?", metavar="KIND", help="models, gpus, engines, lengths, routing ...: what they are")
    presets.add_argument("words", nargs="*", metavar="WORD", help="only those that hold these words, such as qwen")
    presets.add_argument("--full", action="store_true", help="everything about all of them")
    presets.add_argument("--json", metavar="OUT", help="write them as JSON")
    presets.set_defaults(command=_presets)
    return parser


def _scenario_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", help="YAML file; see `llmqsim schema --markdown`")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. engine.max_num_seqs=64"
    )
    parser.add_argument("--variant", action="append", default=[], metavar="V", help="apply a named variant")


def _load(arguments: argparse.Namespace, trace: str | None = None, seed: str | None = None, unit: str | None = None):
    from llmqsim.scenario.load import load

    seeds = [] if seed is None else [("run.seed", _whole(seed), "--seed")]
    return load(arguments.scenario, variant=arguments.variant, sets=[*_replay(trace, unit), *arguments.set, *seeds])


def _replay(trace: str | None, unit: str | None) -> list[tuple]:
    """`--trace FILE` as overrides: the whole of it, in place of what the scenario draws or replays."""
    values = {"workload.requests": None, "workload.duration": None, "workload.trace.file": trace}
    given = [] if trace is None else [(key, value, "--trace") for key, value in values.items()]
    return given if unit is None else [*given, ("workload.trace.time_unit", unit, "--time-unit")]


def _whole(text: str) -> int | str:
    """The number that a text is, or the text, so that the scenario's own check can refuse it."""
    try:
        return int(text) if "_" not in text else text
    except ValueError:
        return text


def _run(arguments: argparse.Namespace) -> int:
    scenario = _load(arguments, arguments.trace, arguments.seed, arguments.time_unit)
    outputs = {"--json": arguments.json, "--requests": arguments.requests, "--figure": arguments.figure}
    check_outputs(outputs, scenario.inputs())
    rows = next((option for option in ("--requests", "--figure") if outputs[option] is not None), None)
    keep = arguments.keep or ("summary" if rows is None else "requests")
    if keep == "summary" and rows is not None:
        what = "write" if rows == "--requests" else "draw"
        raise UserError(f"--keep: summary keeps no requests to {what} (got {rows} too); leave one of them out")
    _check_figure(arguments.figure)
    _announce_compilation()
    from llmqsim.report import files
    from llmqsim.report.tables import screen
    from llmqsim.simulation import simulate

    with progress.watch():
        result = simulate(scenario, keep=keep)
    if arguments.json is not None:
        files.write_json(result.summary(), arguments.json)
    if arguments.requests is not None:
        files.write_requests(result, arguments.requests)
    if arguments.figure is not None:
        from llmqsim.report import plots

        plots.draw(result, arguments.figure)
    _say(screen(result))
    return EXIT_OK


def _check_figure(path: str | None) -> None:
    """Refuse a figure that can't be drawn before any work is done."""
    if path is not None:
        from llmqsim.report import drawing

        drawing.check(path)


def _announce_compilation() -> None:
    from llmqsim import jit
    from llmqsim.cost.kernels import step_ns

    def say() -> None:
        jit.without_linear_algebra()
        print("llmqsim: compiling kernels, once for this installation (some 15 s) ...", file=sys.stderr, flush=True)

    jit.announce_with(say)
    jit.about_to_call(step_ns)  # what either engine needs


def _explain(arguments: argparse.Namespace) -> int:
    from llmqsim.report import files
    from llmqsim.report.explain import explain
    from llmqsim.report.explain_page import explain_text

    if (arguments.request, arguments.klass, arguments.decile) != (None, None, None):
        return _why(arguments)
    scenario = _load(arguments)
    if arguments.log is not None:
        return _explain_log(arguments, scenario)
    check_outputs({"--json": arguments.json}, scenario.inputs())
    told = explain(scenario)
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    _say(explain_text(told))
    return EXIT_OK


def _explain_log(arguments: argparse.Namespace, scenario: Scenario) -> int:
    """`explain --log`: the start-up lines of a server beside what is worked out."""
    from llmqsim.report import files
    from llmqsim.report.explain_log import beside_log
    from llmqsim.report.explain_log_page import beside_log_text
    from llmqsim.report.startup_lines import read_startup_log

    check_outputs({"--json": arguments.json}, [*scenario.inputs(), arguments.log])
    told = beside_log(scenario, read_startup_log(arguments.log))
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    _say(beside_log_text(told))
    return EXIT_OK


def _why(arguments: argparse.Namespace) -> int:
    """`explain` of some requests: of a table that `run --requests` wrote, or of a scenario, which is run."""
    from llmqsim.metrics.attribution import attribution, chosen, read_requests
    from llmqsim.report import files
    from llmqsim.report.why import why_text

    if arguments.scenario.endswith(".csv"):
        if arguments.set or arguments.variant:
            raise UserError("--set, --variant: a table of requests is a run that is over; give the scenario instead")
        check_outputs({"--json": arguments.json}, [arguments.scenario])
        frame = read_requests(arguments.scenario)
    else:
        from llmqsim.simulation import simulate

        scenario = _load(arguments)
        check_outputs({"--json": arguments.json}, scenario.inputs())
        _announce_compilation()
        with progress.watch():
            frame = simulate(scenario).to_frame()
    what, mask = chosen(frame, arguments.request, arguments.klass, arguments.decile)
    told = attribution(frame, mask)
    if arguments.json is not None:
        files.write_json({"what": what, **told}, arguments.json)
    _say(why_text(what, told))
    return EXIT_OK


def _metrics(arguments: argparse.Namespace) -> int:
    from llmqsim.metrics.events import read_events
    from llmqsim.report import files
    from llmqsim.report.events_screen import events_screen
    from llmqsim.stamps import unit

    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, [arguments.events])
    _check_figure(arguments.figure)
    measured = read_events(arguments.events, unit(arguments.time_unit, "--time-unit"))
    if arguments.json is not None:
        files.write_json(measured, arguments.json)
    if arguments.figure is not None:
        from llmqsim.report import figures

        figures.draw("metrics", measured, arguments.figure)
    _say(events_screen(measured))
    return EXIT_OK


def _schema(arguments: argparse.Namespace) -> int:
    import json

    from llmqsim.scenario import json_schema, markdown

    if arguments.policies:
        from llmqsim.report.policies_page import markdown as policies_markdown

        print(policies_markdown())
        return EXIT_OK
    print(markdown() if arguments.markdown else json.dumps(json_schema(), indent=2))
    return EXIT_OK


def _bench(arguments: argparse.Namespace) -> int:
    from llmqsim.benchmark import CASES, bench, bench_text
    from llmqsim.report import files

    check_outputs({"--json": arguments.json}, ())
    cases = [*arguments.case, *(CASES if arguments.all else ())]
    with progress.watch("bench"):
        told = bench(list(dict.fromkeys(cases)), arguments.scale or arguments.all, arguments.start or arguments.all)
    if arguments.json:
        files.write_json(told, arguments.json)
    _say(bench_text(told))
    return EXIT_OK


def _presets(arguments: argparse.Namespace) -> int:
    from llmqsim.report import files, presets

    check_outputs({"--json": arguments.json})
    if arguments.full and arguments.kind is not None:
        raise UserError(f"--full: shows every kind; leave it out to see {arguments.kind} alone")
    if arguments.json is not None:
        files.write_json(presets.told(arguments.kind, arguments.words), arguments.json)
    if arguments.kind is not None:
        _say(presets.presets_of(arguments.kind, arguments.words))
    else:
        _say(presets.presets_text() if arguments.full else presets.presets_names())
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
