"""How many tokens a text has: by a tokenizer that is installed, else by an estimate that is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from llmqsim.errors import UserError


def counter(tokenizer: str, chars_per_token: float) -> tuple[Callable[[str], int], str]:
    """A function that counts tokens, and the sentence that says how. Raises UserError.

    tokenizer : "" for the estimate; a path of a tokenizer.json (package tokenizers), or an encoding of tiktoken.
    """
    if not tokenizer:
        if not 0.1 <= chars_per_token <= 100:
            raise UserError(f"--chars-per-token: must be a number from 0.1 to 100 (got {chars_per_token:g})")
        said = (
            f"tokens are estimated from texts: one for every {chars_per_token:g} characters (--chars-per-token; "
            "--tokenizer counts them), without a chat template"
        )
        return lambda text: max(1, math.ceil(len(text) / chars_per_token)) if text else 0, said
    said = f"tokens were counted by {Path(tokenizer).name}, without a chat template"
    if Path(tokenizer).is_file():
        try:
            from tokenizers import Tokenizer  # type: ignore[import-not-found]
        except ImportError:
            raise UserError(f"--tokenizer {tokenizer}: needs the package tokenizers (pip install tokenizers)") from None
        try:
            made = Tokenizer.from_file(tokenizer)
        except Exception as error:  # the package raises plain Exception
            raise UserError(f"--tokenizer {tokenizer}: is no tokenizer.json ({str(error)[:80]})") from None
        return lambda text: len(made.encode(text, add_special_tokens=False).ids), said
    try:
        import tiktoken  # type: ignore[import-not-found]
    except ImportError:
        raise UserError(
            f"--tokenizer {tokenizer}: is no file; an encoding's name needs the package tiktoken (pip install tiktoken)"
        ) from None
    try:
        encoding = tiktoken.get_encoding(tokenizer)
    except Exception as error:  # unknown name, or no network to fetch it
        raise UserError(f"--tokenizer {tokenizer}: can't be used ({str(error)[:80]})") from None
    return lambda text: len(encoding.encode(text, disallowed_special=())), said
