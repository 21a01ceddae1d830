# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # How many GPUs? By means, with real lengths, with better routing
#
# Llama-3.1-8B on H100s, 50 req/s, 4,000 tokens in and 1,000 out (log-normal, CV 1). The promise: TTFT within 2 s and TPOT
# within 50 ms for 95 % of the requests. Sizing from means has no queue in it; here is what the queue does to its answer.

# %%
import os
import sys

from llmqsim import load
from llmqsim.planner.attain import Probe
from llmqsim.planner.vary import with_replicas
from llmqsim.report import drawing
from llmqsim.simulation import prepare

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scenarios")
REQUESTS = int(os.environ.get("LLMQSIM_DEMO_REQUESTS", "14000"))  # fewer make it quick, and rougher
RUNS = int(os.environ.get("LLMQSIM_DEMO_RUNS", "4"))
REPLICAS = range(19, 24)

# %% [markdown]
# Three settings, the same rate. `by_means` is what a spreadsheet sees: every request has the mean lengths and arrives in step.

# %%
SETTINGS = {
    "means: constant lengths and gaps, round robin": ("by_means", {}),
    "real lengths, round robin": (None, {}),
    "real lengths, least outstanding": ("better_routing", {}),
}
found = {}
for label, (variant, sets) in SETTINGS.items():
    base = prepare(load(os.path.join(FOLDER, "launch_demo.yaml"), variant=variant, sets={"workload.requests": REQUESTS, **sets}))
    for replicas in REPLICAS:
        attained = Probe(0, alike=variant == "by_means").decide(with_replicas(base, replicas), fewest=RUNS, most=RUNS)
        found[label, replicas] = attained.told()
        told = found[label, replicas]
        low, high = (told["low"], told["high"]) if told["low"] is not None else (told["mean"], told["mean"])
        print(f"{label:<46} {replicas} replicas: {told['mean']:7.2%} [{low:7.2%}, {high:7.2%}] {told['stability']}")

# %% [markdown]
# The figure: attainment against the number of replicas. The line is the promise.

# %%
try:
    plot = drawing.pyplot()
except Exception as error:  # matplotlib is an extra
    print(error)
    sys.exit(0)
figure, axes = plot.subplots(figsize=(7, 4), layout="constrained")
for colour, label in zip(drawing.COLOURS, SETTINGS, strict=False):
    told = [found[label, n] for n in REPLICAS]
    axes.plot(REPLICAS, [100 * t["mean"] for t in told], "o-", color=colour, markersize=3, label=label)
    band = [(n, t) for n, t in zip(REPLICAS, told, strict=True) if t["low"] is not None]
    axes.fill_between([n for n, _ in band], [100 * t["low"] for _, t in band], [100 * t["high"] for _, t in band],
                      color=colour, alpha=0.2)  # fmt: skip
axes.axhline(95, color="black", linewidth=0.7)
axes.set_xticks(REPLICAS)
axes.set_xlabel("replicas (one H100 each)")
axes.set_ylabel("arrivals within TTFT 2 s and TPOT 50 ms, %")
axes.set_title("50 req/s of 4,000 tokens in and 1,000 out", fontsize=10)
axes.legend(fontsize=7, loc="lower right")
drawing.save(figure, os.environ.get("LLMQSIM_DEMO_FIGURE", "launch_demo.png"))
