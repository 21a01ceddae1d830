# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Comparing two policies honestly
#
# A policy of your own in under 30 lines, the same traffic for both, paired statistics, and the question that means hide:
# who gets worse?

# %%
import os
from dataclasses import dataclass

from llmqsim import check_policy, from_mapping, register
from llmqsim.planner.compare import compare_scenarios
from llmqsim.planner.figures import metrics
from llmqsim.policies.protocol import Ordering
from llmqsim.report.compare_screen import compare_text

# %% [markdown]
# ## A policy: short prompts first, but nobody waits for ever
#
# A request's rank is when it came plus the size of its prompt in seconds: a long prompt stands as far behind as that, and no
# farther, so everybody's turn comes. It sees prompts, never the length of an answer.


# %%
@register("ordering", "short_prompts_first")
@dataclass(frozen=True)
class ShortPromptsFirst(Ordering):
    """Arrival + prompt / rate: with a low rate it is shortest first, with a high one first come first served."""

    tokens_per_s: float = 200.0

    def key(self, request):
        return request.arrival_ns / 1e9 + request.prompt_tokens / self.tokens_per_s


check_policy("ordering", "short_prompts_first")  # conserves requests, starves nobody under light load, blind to lengths

# %% [markdown]
# ## The same traffic for both
#
# Few slots and prompts of very different length, at a load where a queue stands. Every replication serves both policies with
# the same arrivals and lengths, so the difference is much better known than either figure.

# %%
REQUESTS = int(os.environ.get("LLMQSIM_NOTEBOOK_REQUESTS", "600"))
SERVICE = {
    "question": "Does it pay to serve short prompts first?",
    "workload": {
        "requests": REQUESTS,
        "arrivals": {"process": "poisson", "rate": 9.0},
        "lengths": {"prompt": {"lognormal": {"mean": 800, "cv": 2}}, "output": {"lognormal": {"mean": 100, "cv": 1}}},
    },
    "cost": {"model": "affine", "base": 0.008, "per_prefill_token": 1e-4, "per_decode_request": 2e-4},
    "engine": {"max_num_seqs": 16},
    "slo": {"ttft": 1.0, "tpot": 0.1},
}
scenarios = {
    "fcfs": from_mapping(SERVICE),
    "short_first": from_mapping(SERVICE, sets={"engine.ordering": "short_prompts_first"}),
}
told = compare_scenarios(scenarios, replications=4, chosen=metrics())
print(compare_text(told))

# %% [markdown]
# ## Who gets worse?
#
# The mean falls. The table by length says who pays: look for *worse* in its last rows, and at the longest wait.

# %%
for name, group in told["groups"].items():
    cell = group["variants"]["short_first"]["figures"]["ttft_s.mean"]
    if cell is not None and name.startswith("length:"):
        print(f"{name:<22} mean TTFT {cell['base']:6.2f} s -> {cell['value']:6.2f} s   {cell['verdict']}")

# %% [markdown]
# ## How not to do it
#
# One run each, on different traffic: the difference has no interval, and most of it is luck.

# %%
lucky = compare_scenarios({"seed 0": scenarios["fcfs"], "fcfs": scenarios["fcfs"]}, 2, metrics(["e2e"]))
assert lucky["differences"]["fcfs"]["e2e_s.mean"]["verdict"] == "no difference shown"  # paired, the same policy is the same
from llmqsim import simulate  # noqa: E402

one, other = (simulate(scenarios["fcfs"], seed=seed).summary()["e2e_s"]["mean"] for seed in (0, 1))
print(f"first come first served against itself on other traffic: mean E2E {one:.2f} s against {other:.2f} s")
