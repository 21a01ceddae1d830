"""How a trace is to be read: what a user may say of a file that it does not say itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmqsim.errors import UserError, or_known
from llmqsim.stamps import AUTO, columns, unit

ARRIVALS = columns("arrival")
"""names that the arrival column of our own format may have, and the unit that each states"""
LABELS = ("class", "tenant", "priority")
PREFIX_IDS = "prefix_hash_blocks"
PARENT = "parent"
"""the request that a request follows, in formats that chain them"""
MAX_TOKENS = "max_tokens"
NUMBERS = ("session_id", "turn", "new_prompt_tokens", "cached_tokens", "reasoning_tokens")
"""columns that mean something to a server and that a run doesn't act on; `inspect` and `fit` do"""
CANONICAL = (*ARRIVALS, "prompt_tokens", "output_tokens", *LABELS, MAX_TOKENS, PREFIX_IDS, *NUMBERS)
"""every column of a trace that has a meaning"""
CHARS_PER_TOKEN = 4.0
"""of English text, a rule of thumb; texts are counted with it unless a tokenizer is named"""


@dataclass(frozen=True)
class How:
    """Ways of reading. Raises UserError on an unknown unit or column.

    format : a name of catalogue.FORMATS, or "auto", by content. columns : our names to the file's.
    time_unit : of numbers, one of stamps.CHOICES; "auto": as the format or the column's name says, else seconds that
    are doubted. skip_bad : leave out rows that can't be read, and tell which. option, settable : what a user would set
    to state the unit, for messages. chars_per_token, tokenizer : how texts are counted. second, seconds : a second
    scrape of the same server, and the time between the two. seed : of formats whose requests have to be drawn.
    """

    format: str = AUTO
    columns: Mapping[str, str] = field(default_factory=dict)
    time_unit: str = AUTO
    skip_bad: bool = False
    option: str = "workload.trace.time_unit"
    settable: bool = True
    chars_per_token: float = CHARS_PER_TOKEN
    tokenizer: str = ""
    second: str = ""
    seconds: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        unit(self.time_unit, self.option)
        for ours, theirs in self.columns.items():
            if ours not in CANONICAL:
                raise UserError(f"columns: unknown column (got '{ours}'){or_known(str(ours), CANONICAL)}")
            if not isinstance(theirs, str) or not theirs:
                raise UserError(f"columns: {ours}: needs the name of a column in the file (got {theirs!r})")
        arrivals = [name for name in self.columns if name in ARRIVALS]
        if len(arrivals) > 1:
            raise UserError(f"columns: {' and '.join(arrivals)} are both arrivals; keep one")


def parse_columns(text: str, option: str = "--columns") -> dict[str, str]:
    """`arrival_s=ts,prompt_tokens=tokens in` as a mapping. Raises UserError."""
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        ours, sign, theirs = part.partition("=")
        if not sign or not ours.strip() or not theirs.strip():
            raise UserError(f"{option}: must be OURS=THEIRS, parted by commas (got '{part}'), such as "
                            "arrival_s=time,prompt_tokens=tokens_in,output_tokens=tokens_out")  # fmt: skip
        if ours.strip() in found:
            raise UserError(f"{option}: {ours.strip()} stands twice; keep one")
        found[ours.strip()] = theirs.strip()
    return found
