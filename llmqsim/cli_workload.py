"""`llmqsim workload`: read people's logs, look at them, fit them, edit them, write them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from llmqsim import terminal
from llmqsim.errors import UserError
from llmqsim.files import check_outputs

SPREAD = "put requests of one stamp at random between it and the next"
SCATTERED = "requests of one stamp were put at random between it and the next"
if TYPE_CHECKING:
    from llmqsim.workload.reading.options import How
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
    inspect.add_argument("--spread-stamps", action="store_true", help=SPREAD)
    inspect.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    inspect.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf; needs matplotlib)")
    reading_arguments(inspect)
    inspect.set_defaults(command=_inspect)
    fit = actions.add_parser("fit", help="fit lengths, or the whole traffic, and print how well they fit")
    fit.add_argument("trace", metavar="TRACE", help="a trace of any format (`llmqsim workload formats`)")
    fit.add_argument("-o", "--output", metavar="LENGTHS.yaml", help="fit a table of lengths and write it here")
    fit.add_argument("--traffic", metavar="TRAFFIC.yaml", help="fit lengths and arrivals, and write the model here")
    fit.add_argument("--spread-stamps", action="store_true", help=SPREAD)
    fit.add_argument("--json", metavar="OUT", help="write every figure of the traffic's fit as JSON")
    reading_arguments(fit)
    fit.set_defaults(command=_fit)
    edit = actions.add_parser("edit", help="change a trace's rate, lengths or extent, or mix it with others")
    edit.add_argument("trace", metavar="A", help="a trace of any format (`llmqsim workload formats`)")
    edit.add_argument("output", metavar="B", help=".csv, .tsv, .jsonl (all also .gz) or .parquet")
    edit.add_argument("--window", metavar="BEGIN,END", help="only what comes from BEGIN s on and before END s")
    edit.add_argument("--thin", metavar="SHARE", help="keep this share of the requests, by chance")
    edit.add_argument("--scale-rate", metavar="F", help="the same pattern F times as fast")
    edit.add_argument("--scale-lengths", metavar="prompt=F,output=F", help="lengths F times as long")
    edit.add_argument("--clip", metavar="prompt=N,output=N", help="set longer lengths to N tokens")
    edit.add_argument("--drop-longer", metavar="prompt=N,output=N", help="leave out requests with longer lengths")
    edit.add_argument("--mix", action="append", default=[], metavar="C", help="add another trace (repeatable)")
    reading_arguments(edit)
    edit.set_defaults(command=_edit)
    generate = actions.add_parser("generate", help="draw a trace from a traffic model")
    generate.add_argument("model", metavar="TRAFFIC.yaml", help="of `workload fit --traffic`, or by hand (docs/workload.md)")
    generate.add_argument("output", metavar="B", help=".csv, .tsv, .jsonl (all also .gz) or .parquet")
    generate.add_argument("--requests", metavar="N", help="stop after so many")
    generate.add_argument("--duration", metavar="S", help="stop at this time, seconds")
    generate.add_argument("--seed", default="0", metavar="N", help="of the random streams")
    generate.set_defaults(command=_generate)


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
    group.add_argument("--chars-per-token", metavar="N", help="of texts, without one")
    group.add_argument("--second", default="", metavar="FILE", help="a later scrape of the same Prometheus metrics")
    group.add_argument("--seconds", default="0", metavar="N", help="time between the two scrapes")
    group.add_argument("--seed", default="0", metavar="N", help="of formats whose requests have to be drawn")


def how_of(arguments: argparse.Namespace) -> How:
    """The reading options. Raises UserError."""
    from llmqsim.workload.reading.options import CHARS_PER_TOKEN, How, parse_columns

    told = arguments.chars_per_token
    return How(
        format=arguments.format,
        columns=parse_columns(arguments.columns),
        time_unit=arguments.time_unit,
        skip_bad=arguments.skip_bad,
        option="--time-unit",
        settable=False,
        chars_per_token=CHARS_PER_TOKEN if told is None else number(told, "--chars-per-token"),
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

    if arguments.output is None and arguments.traffic is None:
        raise UserError("workload fit: give -o (--output) LENGTHS.yaml for lengths, --traffic TRAFFIC.yaml for all of the traffic, or both (see --help)")
    outputs = {"--output": arguments.output, "--traffic": arguments.traffic, "--json": arguments.json}
    check_outputs(outputs, [arguments.trace])
    if arguments.json is not None and arguments.traffic is None:
        raise UserError("--json: has the figures of a traffic model; give --traffic, too")
    if arguments.output is not None:
        say(fit_file(arguments.trace, arguments.output, how=how_of(arguments)))
    if arguments.traffic is not None:
        _fit_traffic(arguments)
    return 0


def _fit_traffic(arguments: argparse.Namespace) -> None:
    from llmqsim.files import write_text
    from llmqsim.report import files
    from llmqsim.report.fit_screen import fit_screen
    from llmqsim.workload.model.score import FEWEST_ROWS, enough, fit_again, fit_traffic
    from llmqsim.workload.model.text import model_text

    trace = scattered(arguments, read(arguments))
    if not enough(trace):
        raise UserError(
            f"{arguments.trace}: arrivals can't be fitted: the trace needs times and at least {FEWEST_ROWS} requests "
            f"(it has {len(trace):,}); -o fits its lengths alone"
        )
    fit = fit_traffic(trace)
    model = fit_again(trace, fit)
    write_text(arguments.traffic, model_text(model))
    if arguments.json is not None:
        files.write_json(fit.to_dict(), arguments.json)
    say("\n".join([fit_screen(fit), *told(trace), *_closed(trace),
                   f"{arguments.traffic}: the chosen kind of model, fitted on all {len(trace):,} requests"]))  # fmt: skip


def _closed(trace: Trace) -> list[str]:
    """Sessions whose requests follow one another make times that are no traffic of their own."""
    if trace.session is None or len(trace) < 2 * len(set(trace.session.tolist())):
        return []
    return ["  in doubt: sessions of several requests: a request may have waited for the answer before it, so that these "
            "times are a result of the service that was measured"]  # fmt: skip


def scattered(arguments: argparse.Namespace, trace: Trace) -> Trace:
    """The trace, its stamps spread where that is asked for."""
    from llmqsim.workload.replay import scatter

    if not arguments.spread_stamps or not trace.has_times:
        return trace
    return replace(trace, arrival_s=scatter(trace.arrival_s), notes=(*trace.notes, SCATTERED))


def _edit(arguments: argparse.Namespace) -> int:
    from llmqsim.workload import edit
    from llmqsim.workload.trace import read_trace
    from llmqsim.workload.writing import kind_of, write_trace

    check_outputs({"B": arguments.output}, [arguments.trace, *arguments.mix])
    kind_of(arguments.output)
    trace = read(arguments)
    if arguments.window is not None:
        begin, _, end = arguments.window.partition(",")
        trace = edit.window(trace, number(begin, "--window"), number(end, "--window"))
    if arguments.thin is not None:
        trace = edit.thin(trace, number(arguments.thin, "--thin"), whole(arguments.seed, "--seed"))
    if arguments.scale_rate is not None:
        trace = edit.scale_rate(trace, number(arguments.scale_rate, "--scale-rate"))
    if arguments.scale_lengths is not None:
        trace = edit.scale_lengths(trace, **pair(arguments.scale_lengths, "--scale-lengths"))
    for option, drop in (("--clip", False), ("--drop-longer", True)):
        if (given := getattr(arguments, option[2:].replace("-", "_"))) is not None:
            limits = {name: whole(f"{value:g}", option) for name, value in pair(given, option).items()}
            trace = edit.clip(trace, **limits, drop=drop)
    if arguments.mix:
        how = how_of(arguments)
        others = [read_trace(path, need_times=None, how=how, extras=True) for path in arguments.mix]
        trace = edit.mix([trace, *others])
    write_trace(trace, arguments.output)
    say("\n".join([f"{arguments.output}: {len(trace):,} requests of {trace.source}", *told(trace)]))
    return 0


def pair(text: str, option: str) -> dict[str, float]:
    """`prompt=2,output=1.5` as numbers. Raises UserError."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if name.strip() not in ("prompt", "output") or not sign or name.strip() in found:
            raise UserError(f"{option}: must be prompt=N, output=N or both (got '{text}')")
        found[name.strip()] = number(value, option)
    return found


def _generate(arguments: argparse.Namespace) -> int:
    from llmqsim.workload.model.file import load_model
    from llmqsim.workload.model.traffic import draw_traffic
    from llmqsim.workload.writing import kind_of, write_trace

    check_outputs({"B": arguments.output}, [arguments.model])
    kind_of(arguments.output)
    requests = None if arguments.requests is None else whole(arguments.requests, "--requests")
    duration = None if arguments.duration is None else number(arguments.duration, "--duration")
    if (requests is None and not duration) or requests == 0:
        raise UserError("workload generate: say when to stop, --requests N (at least 1), --duration S or both")
    model = load_model(arguments.model)
    trace = draw_traffic(model, whole(arguments.seed, "--seed"), 0, requests, duration, arguments.model)
    if not len(trace):
        raise UserError(f"{arguments.model}: no request comes before {duration or 0:g} s; raise --duration")
    write_trace(trace, arguments.output)
    say(f"{arguments.output}: {len(trace):,} requests of {trace.source}, seed {arguments.seed}")
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from llmqsim.report import drawing, files, inspect_figure
    from llmqsim.report.inspect_screen import inspect_screen
    from llmqsim.workload.inspection.inspect import inspect

    caches = [whole(part, "--cache-tokens") for part in arguments.cache_tokens.split(",") if part]
    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, [arguments.trace])
    drawing.check(arguments.figure)
    trace = scattered(arguments, read(arguments))
    seen = inspect(trace, caches)
    if arguments.json is not None:
        files.write_json(seen.to_dict(), arguments.json)
    if arguments.figure is not None:
        inspect_figure.draw(trace, seen, arguments.figure)
    say(inspect_screen(seen))
    return 0
