"""`llmqsim workload`: read people's logs, look at them, fit them, edit them, write them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from llmqsim import terminal
from llmqsim.errors import UserError
from llmqsim.files import check_outputs
from llmqsim.workload.reading.options import CHARS_PER_TOKEN, How, parse_columns

if TYPE_CHECKING:
    from llmqsim.workload.trace import Trace


def add_commands(commands) -> None:
    """Add `workload` and its actions to the parser."""
    workload = commands.add_parser("workload", help="traces and logs of any kind: convert, inspect, fit, edit, generate")
    actions = workload.add_subparsers(title="actions", required=True, metavar="ACTION")
    formats = actions.add_parser("formats", help="the formats of traces that are read, and how we know them")
    formats.set_defaults(command=_formats)
    convert = actions.add_parser("convert", help="write any trace in our own columns")
    convert.add_argument("trace", metavar="A", help="a trace of any format (`llmqsim workload formats`)")
    convert.add_argument("output", metavar="B", help=".csv, .tsv, .jsonl (all also .gz) or .parquet")
    reading_arguments(convert)
    convert.set_defaults(command=_convert)
    inspect = actions.add_parser("inspect", help="what a trace is like, and what a plan on means alone gets wrong")
    inspect.add_argument("trace", metavar="TRACE", help="a trace of any format (`llmqsim workload formats`)")
    inspect.add_argument("--cache-tokens", default="", metavar="N,N", help="sizes of prefix caches to try, tokens")
    inspect.add_argument("--spread-stamps", action="store_true", help="spread requests of one stamp up to the next")
    inspect.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    inspect.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf; needs matplotlib)")
    reading_arguments(inspect)
    inspect.set_defaults(command=_inspect)
    fit = actions.add_parser("fit", help="fit prompt and output lengths and print how well they fit")
    fit.add_argument("trace", metavar="TRACE", help="a trace of any format (`llmqsim workload formats`)")
    fit.add_argument("-o", "--output", required=True, metavar="LENGTHS.yaml", help="where to write the table")
    reading_arguments(fit)
    fit.set_defaults(command=_fit)


def reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every action that reads a trace."""
    group = parser.add_argument_group("reading")
    group.add_argument("--format", default="auto", metavar="NAME", help="what the file is; by content if absent")
    group.add_argument(
        "--columns", default="", metavar="OURS=THEIRS,…", help="what the file calls arrival_s, prompt_tokens, …"
    )
    group.add_argument("--time-unit", default="auto", metavar="U", help="unit of its stamps: s, ms, us or ns")
    group.add_argument("--skip-bad", action="store_true", help="leave out rows that can't be read, and list them")
    group.add_argument("--tokenizer", default="", metavar="T", help="of texts: a tokenizer.json, or tiktoken's name")
    group.add_argument("--chars-per-token", default=str(CHARS_PER_TOKEN), metavar="N", help="of texts, without one")
    group.add_argument("--second", default="", metavar="FILE", help="a later scrape of the same Prometheus metrics")
    group.add_argument("--seconds", default="0", metavar="N", help="time between the two scrapes")
    group.add_argument("--seed", default="0", metavar="N", help="of formats whose requests have to be drawn")


def how_of(arguments: argparse.Namespace) -> How:
    """The reading options. Raises UserError."""
    return How(
        format=arguments.format,
        columns=parse_columns(arguments.columns),
        time_unit=arguments.time_unit,
        skip_bad=arguments.skip_bad,
        option="--time-unit",
        settable=False,
        chars_per_token=number(arguments.chars_per_token, "--chars-per-token"),
        tokenizer=arguments.tokenizer,
        second=arguments.second,
        seconds=number(arguments.seconds, "--seconds"),
        seed=whole(arguments.seed, "--seed"),
    )


def number(text: str, option: str) -> float:
    """A finite number that is not negative. Raises UserError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or "_" in text:
        raise UserError(f"{option}: must be a number of at least 0 (got '{text}')")
    return value


def whole(text: str, option: str) -> int:
    """A whole number that is not negative. Raises UserError."""
    value = number(text, option)
    if value != int(value):
        raise UserError(f"{option}: must be a whole number (got '{text}')")
    return int(value)


def read(arguments: argparse.Namespace) -> Trace:
    """The trace of an action, with all its columns, and with times where it has them."""
    from llmqsim.workload.trace import read_trace

    return read_trace(arguments.trace, need_times=None, how=how_of(arguments), extras=True)


def say(text: str) -> None:
    """Print for a terminal."""
    print(terminal.plain(text))


def _formats(arguments: argparse.Namespace) -> int:
    from llmqsim.workload.reading.catalogue import formats_text

    say(formats_text())
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    from llmqsim.workload.writing import kind_of, write_trace

    check_outputs({"B": arguments.output}, [arguments.trace])
    kind_of(arguments.output)
    trace = read(arguments)
    write_trace(trace, arguments.output)
    say("\n".join([f"{arguments.output}: {len(trace):,} requests of {trace.source}", *told(trace)]))
    return 0


def told(trace: Trace) -> list[str]:
    """What a reader should know of how a trace was read."""
    lines = [f"  {note}" for note in trace.notes]
    if not trace.has_times:
        lines.append("  no arrival times: lengths only")
    if trace.doubt:
        lines.append(f"  in doubt: {trace.doubt}")
    return lines


def _fit(arguments: argparse.Namespace) -> int:
    from llmqsim.workload.fit import fit_file

    say(fit_file(arguments.trace, arguments.output, how=how_of(arguments)))
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from llmqsim.report import drawing, files, inspect_figure
    from llmqsim.report.inspect_screen import inspect_screen
    from llmqsim.workload.inspection.inspect import inspect
    from llmqsim.workload.replay import spread

    caches = [whole(part, "--cache-tokens") for part in arguments.cache_tokens.split(",") if part]
    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, [arguments.trace])
    drawing.check(arguments.figure)
    trace = read(arguments)
    if arguments.spread_stamps and trace.has_times:
        trace = replace(trace, arrival_s=spread(trace.arrival_s), notes=(*trace.notes, "stamps were spread"))
    seen = inspect(trace, caches)
    if arguments.json is not None:
        files.write_json(seen.to_dict(), arguments.json)
    if arguments.figure is not None:
        inspect_figure.draw(trace, seen, arguments.figure)
    say(inspect_screen(seen))
    return 0
