"""Keys under `workload`: who comes when, how long the prompts and the answers are."""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field, Tag

from llmqsim.scenario import rules
from llmqsim.scenario.kinds import Count, Duration, File, Positive, Rate, Spec, by_field, by_keys


class Trace(Spec):
    """Replay of a recorded trace: it replaces both arrivals and lengths. `trace: FILE` is short for `{file: FILE}`."""

    file: File = Field(description="Trace file (.csv or .csv.gz), relative to the file that names it.")
    format: Annotated[str, rules.choice("auto", "llmqsim", "azure")] = Field(
        "auto",
        description="`llmqsim`: columns arrival_s, prompt_tokens, output_tokens; `azure`: the Azure LLM inference "
        "trace; `auto`: told by the header.",
    )
    rate_scale: Positive = Field(1.0, description="Factor on the arrival rate: 2 halves every gap.")


class Poisson(Spec):
    """Independent arrivals: exponential gaps."""

    process: Annotated[str, rules.choice("poisson")] = Field(description="Kind of arrival process.")
    rate: Rate = Field(description="Mean arrivals per second.")


class Constant(Spec):
    """Equal gaps; the first request comes after one gap."""

    process: Annotated[str, rules.choice("constant")] = Field(description="Kind of arrival process.")
    rate: Rate = Field(description="Mean arrivals per second.")


class Gamma(Spec):
    """Gamma gaps: burstier than Poisson above CV 1. Give cv or burstiness."""

    process: Annotated[str, rules.choice("gamma")] = Field(description="Kind of arrival process.")
    rate: Rate = Field(description="Mean arrivals per second.")
    cv: Positive | None = Field(None, description="Coefficient of variation of the gaps (1 is Poisson).")
    burstiness: Positive | None = Field(
        None,
        description="vLLM's name for the shape of the gamma distribution, 1 / cv² (1 is Poisson, smaller burstier).",
    )


class Burst(Spec):
    """All requests at time zero."""

    process: Annotated[str, rules.choice("burst")] = Field(description="Kind of arrival process.")


Arrivals = Annotated[
    Union[
        Annotated[Poisson, Tag("kind:poisson")],
        Annotated[Constant, Tag("kind:constant")],
        Annotated[Gamma, Tag("kind:gamma")],
        Annotated[Burst, Tag("kind:burst")],
    ],
    by_field("process"),
]


class MeanCv(Spec):
    """Mean and spread of a log-normal length."""

    mean: Positive = Field(description="Mean, tokens.")
    cv: Positive = Field(description="Coefficient of variation: standard deviation / mean.")


class Mean(Spec):
    """Mean of an exponential length."""

    mean: Positive = Field(description="Mean, tokens.")


Shortest = Annotated[Count | None, Field(description="Shortest length, tokens; draws below it are set to it.")]
Longest = Annotated[Count | None, Field(description="Longest length, tokens; draws above it are set to it.")]


class ConstantLength(Spec):
    """Every request alike; a bare number is short for it."""

    constant: Count = Field(description="Length, tokens.")


class UniformLength(Spec):
    """Whole numbers, each equally likely, both ends included."""

    uniform: Annotated[tuple[int, int], rules.whole_pair()] = Field(description="Lowest and highest length, tokens.")
    min: Shortest = None
    max: Longest = None


class LognormalLength(Spec):
    """Log-normal, rounded to whole tokens: the usual shape of real prompts and answers."""

    lognormal: MeanCv = Field(description="Its mean and CV, before bounds.")
    min: Shortest = None
    max: Longest = None


class ExponentialLength(Spec):
    """Memoryless (geometric on 1, 2, …): whole tokens with exactly this mean."""

    exponential: Mean = Field(description="Its mean, before bounds.")
    min: Shortest = None
    max: Longest = None


Length = Annotated[
    Union[
        Annotated[Count, Tag("kind:number")],
        Annotated[ConstantLength, Tag("kind:constant")],
        Annotated[UniformLength, Tag("kind:uniform")],
        Annotated[LognormalLength, Tag("kind:lognormal")],
        Annotated[ExponentialLength, Tag("kind:exponential")],
    ],
    by_keys("number", (int, float), **{k: k for k in ("constant", "uniform", "lognormal", "exponential")}),
]


class LengthsFile(Spec):
    """Lengths drawn from a table that `llmqsim workload fit` made from a trace."""

    file: File = Field(description="Length table (YAML), relative to the file that names it.")


class LengthsPair(Spec):
    """Prompt and output lengths, drawn independently."""

    prompt: Length = Field(description="Prompt length.")
    output: Length = Field(description="Output length.")


Lengths = Annotated[
    Union[
        Annotated[str, rules.text("the name of a length preset", "azure-conversation"), Tag("kind:preset")],
        Annotated[LengthsFile, Tag("kind:file")],
        Annotated[LengthsPair, Tag("kind:pair")],
    ],
    by_keys("preset", (str,), file="file", prompt="pair", output="pair"),
]


class Workload(Spec):
    """The traffic: who comes when, how long the prompts are, how long the answers."""

    requests: Count | None = Field(None, description="Stop after this many arrivals.")
    duration: Duration | None = Field(
        None, description="Stop arrivals at this time, seconds; with `requests`, whichever comes first."
    )
    trace: Trace | None = Field(None, description="Replay of a recorded trace, instead of arrivals and lengths.")
    arrivals: Arrivals | None = Field(None, description="When requests come.")
    lengths: Lengths | None = Field(
        None, description="How long prompts and outputs are: a preset's name, a fitted table, or two distributions."
    )
    max_tokens: Annotated[int | str, rules.word_or(rules.whole(1), "model", "output")] = Field(
        "model",
        description="Most output tokens that a client allows. `model`: what max_model_len leaves, so the end of an "
        "answer comes as a surprise; `output`: exactly the output, so it is foreseen (ignore_eos benchmarks); a "
        "number: longer outputs are cut, and counted.",
    )
