"""`llmqsim fits`: models on GPUs, without a scenario: the smallest layout, KV tokens, concurrency, a decode step."""

from __future__ import annotations

import argparse

from llmqsim import terminal
from llmqsim.errors import UserError
from llmqsim.files import check_outputs

EXIT_OK = 0


def add_commands(commands) -> None:
    """Add `fits` to the parser."""
    parser = commands.add_parser(
        "fits", help="does a model fit on a GPU? smallest layout, concurrency, decode step; no scenario"
    )
    parser.add_argument(
        "--models", metavar="M1,M2,...", help="presets or config.json files (default: 15 served widely)"
    )
    parser.add_argument("--gpus", metavar="G1,G2,...", help="GPU presets (default: 6)")
    parser.add_argument("--preset", metavar="ENGINE", help="engine preset (default: vllm-0.26)")
    parser.add_argument("--tokens", type=int, metavar="N", help="length of the requests (default 8192)")
    parser.add_argument("--requests", type=int, metavar="N", help="requests of the decode step (default 32)")
    parser.add_argument("--json", metavar="OUT", help="write it as JSON")
    parser.set_defaults(command=_fits)


def _fits(arguments: argparse.Namespace) -> int:
    from llmqsim.report import files
    from llmqsim.report import fits as asked

    check_outputs({"--json": arguments.json})
    tokens = _count("--tokens", arguments.tokens, asked.TOKENS)
    requests = _count("--requests", arguments.requests, asked.REQUESTS)
    preset = arguments.preset or asked.PRESET
    found = asked.fits(
        _listed("--models", arguments.models, asked.MODELS),
        _listed("--gpus", arguments.gpus, asked.GPUS),
        preset,
        tokens,
        requests,
    )
    if arguments.json is not None:
        files.write_json(asked.fits_told(found, preset, tokens, requests), arguments.json)
    print(terminal.plain(asked.fits_text(found, preset, tokens, requests)))
    return EXIT_OK


def _listed(option: str, text: str | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return otherwise
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UserError(f"{option}: must be names with commas between (got '{text}')")
    return names


def _count(option: str, given: int | None, otherwise: int) -> int:
    if given is None:
        return otherwise
    if given < 1:
        raise UserError(f"{option}: must be a whole number from 1 on (got {given})")
    return given
