"""Commands that answer from many runs: compare, size, capacity, check-theory."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from llmqsim import progress, terminal
from llmqsim.errors import UserError
from llmqsim.files import check_outputs, write_text

EXIT_OK, EXIT_NO, EXIT_UNDECIDED = 0, 1, 3
"""found; there is none; the runs can't tell"""
_NAME = re.compile(r"[\w-]+")


def add_commands(commands: Any) -> None:
    """Add them to the parser's commands."""
    _add_compare(commands)
    _add_size(commands)
    _add_capacity(commands)
    _add_check_theory(commands)


def scenario_arguments(parser: argparse.ArgumentParser) -> None:
    """SCENARIO and --set, as every command has them."""
    parser.add_argument("scenario", metavar="SCENARIO", help="YAML file; see `llmqsim schema --markdown`")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. engine.max_num_seqs=64"
    )


def whole(option: str, least: int = 1) -> Any:
    """A type for argparse that reads a whole number; faults are the user's, in one sentence."""

    def read(text: str) -> int:
        if not text.isascii() or not text.strip().lstrip("-").isdigit() or int(text) < least:
            raise UserError(f"{option}: must be a whole number of at least {least} (got '{text}')")
        return int(text)

    return read


def say(text: str) -> None:
    """Print for a terminal."""
    print(terminal.plain(text))


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser("compare", help="variants on the same traffic: differences with intervals and a verdict")
    scenario_arguments(compare)
    compare.add_argument(
        "--variants", default="", metavar="A,B,...",
        help="compare with the first: `base,a,b` with the scenario itself (as does one name alone), `a,b` b with a; "
        "`a+b` applies both",
    )  # fmt: skip
    compare.add_argument(
        "--variant-set", action="append", default=[], metavar="NAME:KEY=VALUE",
        help="a variant that the scenario does not have, a key at a time; repeatable, several keys make one variant",
    )  # fmt: skip
    compare.add_argument("--replications", type=whole("--replications"), default=10, metavar="N", help="paired runs (10)")
    compare.add_argument(
        "--metric", action="append", default=[], metavar="M", help="ttft, ttft_s.p99, preemptions ...; repeatable"
    )
    compare.add_argument("--seed", type=whole("--seed", 0), metavar="N", help="instead of the scenario's run.seed")
    compare.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    compare.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    compare.set_defaults(command=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from llmqsim.report import compare_figure, drawing, files
    from llmqsim.report.compare_screen import compare_text
    from llmqsim.scenario.load import load

    inputs = load(arguments.scenario, sets=arguments.set).inputs()
    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, inputs)
    drawing.check(arguments.figure)
    from llmqsim.planner.compare import compare

    variants = [name.strip() for name in arguments.variants.split(",") if name.strip()]
    metric = [name.strip() for text in arguments.metric for name in text.split(",") if name.strip()]
    own = _own_variants(arguments.variant_set)
    with progress.watch("compare"):
        told = compare(arguments.scenario, variants, arguments.replications, metric, arguments.set, arguments.seed, own=own)
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    if arguments.figure is not None:
        compare_figure.draw(told, arguments.figure)
    say(compare_text(told))
    return EXIT_OK


def _own_variants(texts: list[str]) -> dict[str, list[str]]:
    """"NAME:KEY=VALUE" texts as overrides by name. Raises UserError."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, colon, override = text.partition(":")
        if not colon or not _NAME.fullmatch(name) or "=" not in override:
            raise UserError(
                f"--variant-set: must be NAME:KEY=VALUE (got '{text}'); such as --variant-set small:engine.max_num_seqs=32"
            )
        found.setdefault(name, []).append(override)
    return found


SIZE_FLAGS = (
    ("model", "NAME", "a model preset, or its config.json"),
    ("rate", "R", "arrivals per second, such as 20 or '300 req/min'"),
    ("in", "MEAN:CV", "prompt tokens, such as 1000:1, or 1000:azure-code for a preset's CV"),
    ("out", "MEAN:CV", "answer tokens"),
    ("lengths", "PRESET", "prompt and answer lengths of a preset, instead of --in and --out"),
    ("trace", "FILE", "replay this trace instead of --rate, --in and --out"),
    ("arrival-cv", "CV", "burstiness: CV of the gaps between arrivals (1 is Poisson)"),
    ("ttft", "T", "time to first token, such as 500ms"),
    ("tpot", "T", "time per output token after the first"),
    ("e2e", "T", "time to the last token"),
    ("attainment", "S", "share of arrivals that must keep all targets (0.95)"),
    ("slo", "TEXT", "all of it in your tool's spelling, such as 'ttft:500 tpot:50' (docs/slo.md)"),
    ("routing", "POLICY", "which replica a request goes to (flags alone: least_outstanding)"),
    ("engine", "PRESET", "engine preset"),
)


def _add_size(commands: Any) -> None:
    size = commands.add_parser("size", help="the smallest or cheapest deployment that keeps the SLO, with its interval")
    size.add_argument("scenario", nargs="?", metavar="SCENARIO", help="YAML file; without one, flags say everything")
    size.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key")
    size.add_argument("--variant", action="append", default=[], metavar="V", help="apply a named variant")
    size.add_argument("--gpu", metavar="A,B", help="GPU presets to choose from")
    size.add_argument("--tp", metavar="1,2", help="tensor parallel sizes to choose from")
    for name, metavar, text in SIZE_FLAGS:
        size.add_argument(f"--{name}", metavar=metavar, help=text)
    size.add_argument(
        "--try", action="append", default=[], dest="tried", metavar="KEY=A,B", help="also choose this key among values"
    )
    size.add_argument("--split", action="store_true", help="also size prefill and decode apart, and say which is smaller")
    size.add_argument("--link", metavar="NAME", help="what carries KV between them (rdma-400g); presets/kv_links.yaml")
    size.add_argument("--minimise", choices=("gpus", "cost"), help="what to make small (cost where there are several GPUs)")
    size.add_argument("--price", action="append", default=[], metavar="GPU=$", help="dollars for a GPU and hour")
    near = "(1024; where the target is near what any number reaches, 4 × what means say)"
    size.add_argument("--max-replicas", type=whole("--max-replicas"), metavar="N", help=near)
    size.add_argument("--no-headroom", action="store_true", help="leave out how much more rate it carries")
    size.add_argument("--seed", type=whole("--seed", 0), metavar="N", help="instead of the scenario's run.seed")
    size.add_argument("--json", metavar="OUT", help="write the answer as JSON")
    size.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    size.add_argument("--save", metavar="OUT.yaml", help="write the answer as a scenario")
    size.set_defaults(command=_size)


def _size(arguments: argparse.Namespace) -> int:
    from llmqsim.planner.sizing import as_yaml, size
    from llmqsim.report import drawing, figures, files
    from llmqsim.report.size_screen import size_text

    inputs = [path for path in (arguments.scenario, arguments.trace) if path is not None]
    check_outputs({"--json": arguments.json, "--save": arguments.save, "--figure": arguments.figure}, inputs)
    drawing.check(arguments.figure)
    with progress.watch("size"):
        told = size(_question(arguments, progress.say))
    if arguments.json is not None:
        files.write_json({key: value for key, value in told.items() if key != "seconds"}, arguments.json)
    if arguments.save is not None:
        if told["verdict"] != "feasible" and told["split"] is None:
            raise UserError(f"--save: there is no deployment to save ({told['reason']}): {told['explanation']}")
        write_text(arguments.save, as_yaml(told))
    if arguments.figure is not None:
        figures.draw("size", told, arguments.figure)
    say(size_text(told))
    if told["split"] is not None:
        return EXIT_OK
    return {"feasible": EXIT_OK, "infeasible": EXIT_NO}.get(told["verdict"], EXIT_UNDECIDED)


def _question(arguments: argparse.Namespace, tell: Callable[[str], None]) -> Any:
    """The flags as planner.sizing takes them. tell : shows how far it has come."""
    from llmqsim.planner.size import MOST_REPLICAS, Effort
    from llmqsim.planner.sizing import Question

    flags = {name.replace("-", "_"): getattr(arguments, name.replace("-", "_")) for name, *_ in SIZE_FLAGS}
    gpus, degrees = _list(arguments.gpu), [_degree(text) for text in _list(arguments.tp)]
    axes: dict[str, list] = {"gpu": gpus if len(gpus) > 1 else [], "tensor_parallel_size": degrees}
    flags["gpu"] = gpus[0] if gpus else None
    for text in arguments.tried:
        key, values = _tried(text)
        axes[key] = values
    return Question(
        path=arguments.scenario,
        sets=tuple(arguments.set),
        variant=tuple(arguments.variant),
        flags=flags,
        axes=axes,
        minimise=arguments.minimise,
        prices=tuple(arguments.price),
        seed=arguments.seed,
        split=arguments.split,
        link=arguments.link,
        tell=tell,
        effort=Effort(
            most_replicas=arguments.max_replicas or MOST_REPLICAS,
            headroom=not arguments.no_headroom,
            climbs=arguments.max_replicas is not None,
        ),
    )


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _degree(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UserError(f"--tp: must be whole numbers (got '{text}'); such as --tp 1,2,4")
    return int(text)


def _tried(text: str) -> tuple[str, list]:
    """"engine.max_num_seqs=128,256" as a key and plain values."""
    import yaml

    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not _list(values):
        raise UserError(f"--try: must be KEY=A,B (got '{text}'); such as --try engine.max_num_seqs=128,256")
    return key.strip(), [yaml.safe_load(value) for value in _list(values)]


def _add_capacity(commands: Any) -> None:
    capacity = commands.add_parser("capacity", help="goodput against load, and the load at which the SLO breaks")
    scenario_arguments(capacity)
    capacity.add_argument("--variant", action="append", default=[], metavar="V", help="apply a named variant")
    capacity.add_argument("--replications", type=whole("--replications", 2), default=5, metavar="N", help="a load (5)")
    capacity.add_argument("--growth", metavar="5%", help="growth of the load a month: how long until the SLO breaks")
    capacity.add_argument("--seed", type=whole("--seed", 0), metavar="N", help="instead of the scenario's run.seed")
    capacity.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    capacity.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    capacity.set_defaults(command=_capacity)


def _capacity(arguments: argparse.Namespace) -> int:
    from llmqsim.planner.capacity import capacity
    from llmqsim.report import capacity_screen, drawing, files
    from llmqsim.scenario.load import load

    inputs = load(arguments.scenario, variant=arguments.variant, sets=arguments.set).inputs()
    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, inputs)
    drawing.check(arguments.figure)
    growth = _growth(arguments.growth)
    with progress.watch("capacity"):
        told = capacity(
            arguments.scenario, arguments.variant, arguments.set, arguments.replications, growth, arguments.seed, progress.say
        )
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    if arguments.figure is not None:
        capacity_screen.draw(told, arguments.figure)
    say(capacity_screen.capacity_text(told))
    return EXIT_OK


def _growth(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 10:
        raise UserError(f"--growth: must be a share above 0 (got '{text}'); such as --growth 5%")
    return share


def _add_check_theory(commands: Any) -> None:
    theory = commands.add_parser("check-theory", help="what queueing formulas say of a scenario, beside its simulation")
    scenario_arguments(theory)
    theory.add_argument("--variant", action="append", default=[], metavar="V", help="apply a named variant")
    theory.add_argument("--replications", type=whole("--replications"), default=5, metavar="N", help="runs (5)")
    theory.add_argument("--json", metavar="OUT", help="write every figure as JSON")
    theory.add_argument("--figure", metavar="OUT.png", help="draw it (.png, .svg, .pdf); needs matplotlib")
    theory.set_defaults(command=_check_theory)


def _check_theory(arguments: argparse.Namespace) -> int:
    from llmqsim.planner.theory import check_theory
    from llmqsim.report import drawing, figures, files
    from llmqsim.report.theory_screen import theory_text
    from llmqsim.scenario.load import load

    inputs = load(arguments.scenario, variant=arguments.variant, sets=arguments.set).inputs()
    check_outputs({"--json": arguments.json, "--figure": arguments.figure}, inputs)
    drawing.check(arguments.figure)
    with progress.watch("check-theory"):
        progress.stage("check-theory", arguments.replications)
        told = check_theory(arguments.scenario, arguments.variant, arguments.set, arguments.replications)
    if arguments.json is not None:
        files.write_json(told, arguments.json)
    if arguments.figure is not None:
        figures.draw("check-theory", told, arguments.figure)
    say(theory_text(told))
    return EXIT_OK
