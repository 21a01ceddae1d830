"""Keys under `workload`: who comes when, how long the prompts and the answers are."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Tag

from llmqsim.scenario import rules
from llmqsim.scenario.arrivals import Arrivals, Clients
from llmqsim.scenario.kinds import Count, Duration, File, Flag, MeanLength, Policy, Scale, Spec, Spread, Text, by_keys
from llmqsim.scenario.targets import Slo
from llmqsim.stamps import CHOICES


class Trace(Spec):
    """Replay of a recorded trace: it replaces both arrivals and lengths. `trace: FILE` is short for `{file: FILE}`."""

    file: File = Field(
        description="Trace file (of any format that `llmqsim workload formats` lists, plain or packed), or a traffic "
        "model of `llmqsim workload fit --traffic`, relative to the file that names it."
    )
    format: Annotated[str, rules.text("the name of a trace format, or auto", "azure")] = Field(
        "auto",
        description="A name that `llmqsim workload formats` lists, such as `llmqsim` (columns arrival_s, prompt_tokens, "
        "output_tokens, if wanted class, tenant, priority, max_tokens) or `azure`; `auto`: told by the content.",
    )
    columns: Annotated[str, rules.text("OURS=THEIRS, parted by commas", "arrival_s=ts,prompt_tokens=t_in")] | None = Field(
        None, description="What the file calls our columns, such as `arrival_s=ts,prompt_tokens=t_in,output_tokens=t_out`."
    )
    skip_bad: Flag = Field(False, description="Leave out rows that can't be read, and say how many and which?")
    time_unit: Annotated[str, rules.choice(*CHOICES)] = Field(
        "auto",
        description="Unit of the numbers in the arrival column. `auto`: as the column's name says (arrival_s, arrival_ms, "
        "arrival_us, arrival_ns); seconds that look like Unix time, or like fewer than 3 requests a minute, are refused "
        "until the unit is stated. Unix times count from the first request, and so do stamps with a date.",
    )
    spread_stamps: Flag = Field(
        False, description="Spread requests with the same time stamp evenly over the time to the next stamp?"
    )
    rate_scale: Scale = Field(1.0, description="Factor on the arrival rate: 2 halves every gap.")


class MeanCv(Spec):
    """Mean and spread of a log-normal length."""

    mean: MeanLength = Field(description="Mean, tokens.")
    cv: Spread = Field(description="Coefficient of variation: standard deviation / mean.")


class Mean(Spec):
    """Mean of an exponential length."""

    mean: MeanLength = Field(description="Mean, tokens.")


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
    Annotated[Count, Tag("kind:number")]
    | Annotated[ConstantLength, Tag("kind:constant")]
    | Annotated[UniformLength, Tag("kind:uniform")]
    | Annotated[LognormalLength, Tag("kind:lognormal")]
    | Annotated[ExponentialLength, Tag("kind:exponential")],
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
    Annotated[str, rules.text("the name of a length preset", "azure-conversation"), Tag("kind:preset")]
    | Annotated[LengthsFile, Tag("kind:file")]
    | Annotated[LengthsPair, Tag("kind:pair")],
    by_keys("preset", (str,), file="file", prompt="pair", output="pair"),
]


class TrafficClass(Spec):
    """One class of requests: a share of the traffic, or traffic with arrivals of its own. Its name is yours."""

    share: Annotated[float, rules.number(above=0, at_most=1)] | None = Field(
        None, description="Share of the workload's requests; the shares of all classes add up to 1."
    )
    arrivals: Arrivals | None = Field(
        None, description="When requests of this class come, independent of the others; instead of a share."
    )
    requests: Count | None = Field(None, description="With its own arrivals: stop after this many of this class.")
    lengths: Lengths | None = Field(None, description="How long its prompts and outputs are; the workload's if absent.")
    slo: Slo | None = Field(None, description="What its users are promised, instead of the scenario's slo.")
    priority: Annotated[int, rules.whole(-rules.LARGEST_WHOLE)] = Field(
        0, description="Priority of its requests; lower is served earlier, as in vLLM, by an ordering that looks at it."
    )
    tenant: Text | None = Field(None, description="Whom its requests belong to.")


class Prefix(Spec):
    """What prompts have in common; it matters where `engine.enable_prefix_caching` is on."""

    shared_tokens: Count | None = Field(
        None, description="Tokens at the start of every prompt of a group, such as a system prompt."
    )
    groups: Count = Field(1, description="How many different starts there are.")
    distinct_prompts: Count | None = Field(
        None, description="How many different prompts there are in all: they recur whole. Absent: each is asked once."
    )
    order: Annotated[str, rules.choice("random", "round_robin")] = Field(
        "random", description="Which prompt (or, without recurring ones, which group) comes next."
    )
    hash_block_tokens: Count | None = Field(
        None,
        description="Tokens of a block that an id in the trace's column prefix_hash_blocks stands for; if absent, as the "
        "trace's format says (Qwen-Bailian 16), else 512.",
    )
    warm: Flag = Field(
        False, description="Is all of it cached before the first request arrives, as far as the pool goes?"
    )


class Predictor(Policy):
    """How many output tokens a scheduler expects of each request. `predictor: NAME` is short for `{policy: NAME}`."""

    policy: Annotated[str, rules.text("the name of a predictor", "oracle")] = Field(
        description="Predictor: oracle, lognormal, ranker, bucket, class_mean, regression, quantile, or one that you "
        "registered; docs/policies.md has their parameters."
    )


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
    classes: dict[str, TrafficClass] | None = Field(
        None, description="Classes of requests by name: each a share of the traffic, or each with its own arrivals."
    )
    prefix: Prefix | None = Field(None, description="What prompts have in common.")
    predictor: Predictor | None = Field(
        None, description="What schedulers that order by length believe of each answer; drawn before the run."
    )
    clients: Clients | None = Field(None, description="How the load generator behaves.")
    max_tokens: Annotated[int | str, rules.word_or(rules.whole(1), "model", "output")] = Field(
        "model",
        description="Most output tokens that a client allows. `model`: what max_model_len leaves, so the end of an "
        "answer comes as a surprise; `output`: exactly the output, so it is foreseen (ignore_eos benchmarks); a "
        "number: longer outputs are cut, and counted. A trace's own column max_tokens goes first where it allows less; "
        "`output` replaces it.",
    )
