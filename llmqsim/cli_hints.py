"""What somebody meant who typed an option or a command that there is not: ours that is nearest, or takes its place."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from llmqsim.errors import UserError, did_you_mean

PROMPT, ANSWER, RATE = "--in MEAN:CV", "--out MEAN:CV", "--rate R"
FOREIGN: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("isl", "input-len", "input-length", "random-input-len", "prompt-len", "prompt-tokens",
                     "mean-input-tokens", "synthetic-input-tokens-mean"), (PROMPT, "workload.lengths.prompt=N")),
    **dict.fromkeys(("osl", "output-len", "output-length", "random-output-len", "output-tokens", "mean-output-tokens",
                     "output-tokens-mean"), (ANSWER, "workload.lengths.output=N")),
    **dict.fromkeys(("qps", "rps", "request-rate", "arrival-rate"), (RATE, "workload.arrivals.rate=R")),
    **dict.fromkeys(("concurrency", "max-concurrency", "users", "clients", "num-users"),
                    ("", "workload.arrivals={process: closed_loop, clients: N}")),
    **dict.fromkeys(("num-prompts", "num-requests", "requests-total", "request-count"), ("", "workload.requests=N")),
    **dict.fromkeys(("tensor-parallel-size", "tensor-parallel", "tp-size"), ("--tp N", "tensor_parallel_size=N")),
    **dict.fromkeys(("pipeline-parallel-size", "pp", "pp-size"), ("", "pipeline_parallel_size=N")),
    **dict.fromkeys(("data-parallel-size", "dp", "replicas", "num-replicas"), ("", "replicas=N")),
    **dict.fromkeys(("goodput", "slo"), ("--slo TEXT", "slo=TEXT")),
    **{name: (f"--{name} T", f"slo.{name}=T") for name in ("ttft", "tpot", "e2e")},
    **dict.fromkeys(("dataset", "dataset-path", "trace-file", "trace"), ("--trace FILE", "workload.trace.file=FILE")),
    "time-unit": ("--time-unit U", "workload.trace.time_unit=U"),
    **dict.fromkeys(("output", "out", "output-file"), ("--json OUT", "")),
    **dict.fromkeys(("dtype", "kv-dtype"), ("", "engine.kv_cache_dtype=fp8")),
}  # fmt: skip
"""what other tools call it -> our option, where the command has it, and the key that `--set` takes"""


class Parser(argparse.ArgumentParser):
    """argparse's, whose faults are the user's, in one sentence with what would be right."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Raises UserError for options that there are not."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            raise UserError(*_unknown(self._asked(args or ()), left))
        return found

    def error(self, message: str) -> NoReturn:
        """One sentence in place of the usage and the list of choices."""
        command = self.prog.removeprefix("llmqsim").strip()
        raise UserError(f"{command}: {_said(self, message)}" if command else _said(self, message))

    def _asked(self, args: Sequence[str]) -> Parser:
        """The parser of the command that was asked for."""
        chosen: Parser = self
        for arg in args:
            chosen = _commands(chosen).get(arg, chosen)
        return chosen

    def options(self) -> list[str]:
        """Its long options."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]


def _commands(parser: argparse.ArgumentParser) -> dict[str, Any]:
    found = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(next(found, None) or {})


def _unknown(parser: Parser, left: Sequence[str]) -> list[str]:
    """A sentence for each option; for words that nobody asked for where there is none."""
    wrong = [text.partition("=")[0] for text in left if text.startswith("--")]
    if not wrong:
        words = " ".join(map(repr, left))
        return [f"{parser.prog}: too many words (got {words}); `{parser.prog} --help` shows what it takes"]
    return [f"{option}: {parser.prog} has no such option{_meant(parser, option)}" for option in dict.fromkeys(wrong)]


def _meant(parser: Parser, option: str) -> str:
    known, name = parser.options(), option.lstrip("-").lower().replace("_", "-")
    ours, key = FOREIGN.get(name, ("", ""))
    if ours and ours.split()[0] in known:
        return f"; here it is {ours}"
    if key and "--set" in known:
        return f"; here it is --set {_quoted(key)}"
    if near := did_you_mean(name, [one.lstrip("-") for one in known]):
        return near.replace("'", "'--", 1)
    if "--set" in known and (path := _engine_key(name)):
        return f"; here it is --set {path}=VALUE"
    return f"; `{parser.prog} --help` lists its options"


def _quoted(override: str) -> str:
    return f"'{override}'" if " " in override else override


def _engine_key(name: str) -> str:
    """The scenario's key of that name: engines' own flags have the names of keys."""
    from llmqsim.scenario import shape

    found = [path for path in shape.all_paths() if path[-1] == name.replace("-", "_") and shape.ANY_NAME not in path]
    return ".".join(min(found, key=len, default=()))


def _said(parser: argparse.ArgumentParser, message: str) -> str:
    """argparse's message, where it lists choices with the nearest in front."""
    head, invalid, rest = message.partition("invalid choice: ")
    if not invalid:
        return f"{message}; `{parser.prog} --help` shows what it takes"
    got = rest.partition(" (choose from ")[0].strip("'\"")
    known = list(_commands(parser)) if "COMMAND" in head or "ACTION" in head else _choices(parser, head)
    what = "there is no command" if "COMMAND" in head else f"{head.removeprefix('argument ').strip(': ')} has no"
    return f"{what} '{got}'{did_you_mean(got, known) or ';'} one of: {', '.join(known)}"


def _choices(parser: argparse.ArgumentParser, head: str) -> list[str]:
    for action in parser._actions:
        if action.choices and any(name in head for name in (*action.option_strings, action.metavar or "\0")):
            return [str(one) for one in action.choices]
    return []
