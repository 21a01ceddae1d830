"""The command line: parses, prints, exits. Every answer comes from the functions that Python users call.

Exit codes: 0 done (also when the verdict is "overloaded"), 2 the user's input is wrong, with one clear message on
stderr and nothing written.
"""

from __future__ import annotations

import argparse
import sys

from llmqsim.errors import UserError
from llmqsim.version import __version__

EXIT_OK = 0
EXIT_BAD_INPUT = 2


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `llmqsim` command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.command(arguments)
    except UserError as error:
        for fault in error.faults:
            print(f"llmqsim: {fault}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:  # the reader of our output has gone; not an error of this run
        sys.stderr.close()
        return EXIT_OK
    except KeyboardInterrupt:
        print("llmqsim: interrupted; nothing was written", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmqsim",
        description="Queueing simulator for LLM serving: TTFT, TPOT and SLO attainment, and what requests waited for.",
    )
    parser.add_argument("--version", action="version", version=f"llmqsim {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="simulate a scenario and print the answer")
    _scenario_arguments(run)
    run.add_argument("--seed", metavar="N", help="short for --set run.seed=N")
    run.add_argument("--trace", metavar="FILE", help="replay this trace instead of the scenario's arrivals and lengths")
    run.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    run.add_argument("--requests", metavar="OUT.csv", help="write one row a request")
    run.set_defaults(command=_run)

    explain = commands.add_parser("explain", help="every resolved value with its origin, KV capacity and step costs")
    _scenario_arguments(explain)
    explain.add_argument("--json", metavar="OUT", help="write it as JSON")
    explain.set_defaults(command=_explain)

    metrics = commands.add_parser("metrics", help="the same metrics from measured events")
    metrics.add_argument("events", metavar="EVENTS.csv", help="columns: request, arrival, time, tokens")
    metrics.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    metrics.set_defaults(command=_metrics)

    workload = commands.add_parser("workload", help="make a length table from your own trace")
    actions = workload.add_subparsers(title="actions", required=True, metavar="ACTION")
    fit = actions.add_parser("fit", help="fit prompt and output lengths and print how well they fit")
    fit.add_argument("trace", metavar="TRACE", help="CSV (or .gz) with arrival_s, prompt_tokens, output_tokens, or Azure's")
    fit.add_argument("-o", "--output", required=True, metavar="LENGTHS.yaml", help="where to write the table")
    fit.set_defaults(command=_workload_fit)

    schema = commands.add_parser("schema", help="what a scenario may hold: JSON Schema, or a table for reading")
    schema.add_argument("--markdown", action="store_true", help="print the table")
    schema.set_defaults(command=_schema)

    from llmqsim.cli_calibrate import add_commands

    add_commands(commands)

    presets = commands.add_parser("presets", help="list the models, GPUs, engines, workloads and policies known by name")
    presets.set_defaults(command=_presets)
    return parser


def _scenario_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", help="YAML file; see `llmqsim schema --markdown`")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. engine.max_num_seqs=64"
    )
    parser.add_argument("--variant", action="append", default=[], metavar="V", help="apply a named variant")


def _load(arguments: argparse.Namespace, trace: str | None = None, seed: str | None = None):
    from llmqsim.scenario.load import load

    seeds = [] if seed is None else [f"run.seed={seed}"]
    return load(arguments.scenario, variant=arguments.variant, sets=[*_replay(trace), *arguments.set, *seeds])


def _replay(trace: str | None) -> list[str]:
    """`--trace FILE` as overrides: the whole trace, in place of what the scenario draws."""
    return [] if trace is None else ["workload.requests=null", "workload.duration=null", f"workload.trace={trace}"]


def _run(arguments: argparse.Namespace) -> int:
    scenario = _load(arguments, arguments.trace, arguments.seed)
    from llmqsim.report import files

    files.check_writable(*(path for path in (arguments.json, arguments.requests) if path))
    _announce_compilation()
    from llmqsim.report.tables import screen
    from llmqsim.simulate import simulate

    result = simulate(scenario)
    if arguments.json:
        files.write_json(result.summary(), arguments.json)
    if arguments.requests:
        files.write_requests(result, arguments.requests)
    print(screen(result))
    return EXIT_OK


def _announce_compilation() -> None:
    from llmqsim import jit
    from llmqsim.cost import kernels
    from llmqsim.engine import rules

    assert kernels and rules, "imported so that their kernels are known"
    if jit.is_cold():
        print("llmqsim: compiling kernels, once for this installation (some 10 s) ...", file=sys.stderr, flush=True)


def _explain(arguments: argparse.Namespace) -> int:
    from llmqsim.report import files
    from llmqsim.report.explain import explain, explain_text

    scenario = _load(arguments)
    files.check_writable(*([arguments.json] if arguments.json else []))
    told = explain(scenario)
    if arguments.json:
        files.write_json(told, arguments.json)
    print(explain_text(told))
    return EXIT_OK


def _metrics(arguments: argparse.Namespace) -> int:
    from llmqsim.metrics.events import read_events
    from llmqsim.report import files
    from llmqsim.report.tables import events_screen

    files.check_writable(*([arguments.json] if arguments.json else []))
    measured = read_events(arguments.events)
    if arguments.json:
        files.write_json(measured, arguments.json)
    print(events_screen(measured))
    return EXIT_OK


def _workload_fit(arguments: argparse.Namespace) -> int:
    from llmqsim.workload.fit import fit_file

    print(fit_file(arguments.trace, arguments.output))
    return EXIT_OK


def _schema(arguments: argparse.Namespace) -> int:
    import json

    from llmqsim.scenario import json_schema, markdown

    print(markdown() if arguments.markdown else json.dumps(json_schema(), indent=2))
    return EXIT_OK


def _presets(arguments: argparse.Namespace) -> int:
    from llmqsim.report.explain import presets_text

    print(presets_text())
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
