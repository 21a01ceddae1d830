"""Keys under `arrivals` and `workload.clients`: when requests come, and how the clients that send them behave."""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field, Tag

from llmqsim.scenario import rules
from llmqsim.scenario.kinds import Count, Duration, Flag, Pause, Rate, Scale, Spec, Spread, by_field, by_keys

Stages = Annotated[
    tuple[dict[str, float], ...],
    rules.records(
        "stages", "[{rate: 5 req/s, duration: 60 s}]", rate=rules.rate(), duration=rules.seconds(example="60 s")
    ),
]
MeanRate = Annotated[Rate | None, Field(description="Mean arrivals per second; or give stages.")]
RateStages = Annotated[
    Stages | None,
    Field(description="Rates one after the other, each for its duration; they end the traffic. Instead of rate."),
]


class Poisson(Spec):
    """Independent arrivals: exponential gaps."""

    process: Annotated[str, rules.choice("poisson")] = Field(description="Kind of arrival process.")
    rate: MeanRate = None
    stages: RateStages = None
    fixed_count: Flag | None = Field(
        None,
        description="Scale the gaps so that each stage (or the whole run) holds exactly rate × duration requests and "
        "ends with the last of them, as inference-perf does.",
    )


class Constant(Spec):
    """Equal gaps; the first request comes after one gap."""

    process: Annotated[str, rules.choice("constant")] = Field(description="Kind of arrival process.")
    rate: MeanRate = None
    stages: RateStages = None


class Gamma(Spec):
    """Gamma gaps: burstier than Poisson above CV 1. Give cv or burstiness."""

    process: Annotated[str, rules.choice("gamma")] = Field(description="Kind of arrival process.")
    rate: MeanRate = None
    stages: RateStages = None
    cv: Spread | None = Field(None, description="Coefficient of variation of the gaps (1 is Poisson).")
    burstiness: Scale | None = Field(
        None,
        description="vLLM's name for the shape of the gamma distribution, 1 / cv² (1 is Poisson, smaller burstier).",
    )


class Weibull(Spec):
    """Weibull gaps: at equal CV a heavier tail and fewer tiny gaps than gamma."""

    process: Annotated[str, rules.choice("weibull")] = Field(description="Kind of arrival process.")
    rate: MeanRate = None
    stages: RateStages = None
    cv: Annotated[float, rules.number(above=0.0, at_most=15.0)] = Field(
        description="Coefficient of variation of the gaps (1 is Poisson)."
    )


class Burst(Spec):
    """All requests at time zero."""

    process: Annotated[str, rules.choice("burst")] = Field(description="Kind of arrival process.")


class MeanSeconds(Spec):
    """Mean of an exponential time."""

    mean: Duration = Field(description="Mean, seconds.")


class MeanCvSeconds(Spec):
    """Mean and spread of a log-normal time."""

    mean: Duration = Field(description="Mean, seconds.")
    cv: Spread = Field(description="Coefficient of variation: standard deviation / mean.")


class ExponentialTime(Spec):
    """Memoryless."""

    exponential: MeanSeconds = Field(description="Its mean.")


class LognormalTime(Spec):
    """Log-normal."""

    lognormal: MeanCvSeconds = Field(description="Its mean and CV.")


ThinkTime = Annotated[
    Union[
        Annotated[Pause, Tag("kind:constant")],
        Annotated[ExponentialTime, Tag("kind:exponential")],
        Annotated[LognormalTime, Tag("kind:lognormal")],
    ],
    by_keys("constant", (int, float, str), exponential="exponential", lognormal="lognormal"),
]


class ClosedLoop(Spec):
    """A fixed number of clients; each sends its next request when its last is answered and it has thought."""

    process: Annotated[str, rules.choice("closed_loop")] = Field(description="Kind of arrival process.")
    clients: Count = Field(description="How many clients there are, hence most requests in flight.")
    think_time: ThinkTime = Field(0.0, description="From the last token of an answer to the next request, seconds.")
    ramp_up: Pause = Field(
        0.0, description="Clients start evenly over this time, seconds; 0: all at once, which is a burst."
    )


Arrivals = Annotated[
    Union[
        Annotated[Poisson, Tag("kind:poisson")],
        Annotated[Constant, Tag("kind:constant")],
        Annotated[Gamma, Tag("kind:gamma")],
        Annotated[Weibull, Tag("kind:weibull")],
        Annotated[Burst, Tag("kind:burst")],
        Annotated[ClosedLoop, Tag("kind:closed_loop")],
    ],
    by_field("process"),
]


class Retries(Spec):
    """A client whose request was refused, or who gave up, sends the same request again after a while."""

    attempts: Annotated[int, rules.whole(1, 100)] = Field(description="How often it tries again at most.")
    backoff: Duration = Field(1.0, description="Pause before the first retry, seconds.")
    multiplier: Annotated[float, rules.between(1, 100)] = Field(
        2.0, description="Each further pause is so many times as long."
    )
    jitter: Annotated[float, rules.between(0, 1)] = Field(
        0.5, description="Each pause is drawn evenly from pause × (1 - jitter) to pause × (1 + jitter)."
    )
    after: Annotated[str, rules.choice("both", "refusal", "timeout")] = Field(
        "both", description="What is tried again: `refusal` by admission, `timeout` of the client, or `both`."
    )


class Clients(Spec):
    """How the load generator, or the users, behave between and around requests."""

    max_in_flight: Count | None = Field(
        None,
        description="Most requests of open-loop traffic in flight at once; a request that comes due above it is sent "
        "when one has ended. Latencies count from the sending; the due time is kept as well.",
    )
    turnaround: Pause = Field(
        0.0,
        description="From the last token of an answer to the request that it lets go (closed loop or max_in_flight), "
        "seconds. Zero and any positive value differ by a step at saturation.",
    )
    timeout: Duration | None = Field(
        None, description="A client gives up when its answer is not complete this long after sending, seconds."
    )
    retries: Retries | None = Field(
        None,
        description="Sending again what was refused or timed out. Latencies count from the first sending; waits and "
        "tokens are those of the last.",
    )
