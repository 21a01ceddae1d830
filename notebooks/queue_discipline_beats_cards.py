# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Queue discipline beats cards
#
# How much traffic does one GPU carry within its promise? The answer is set by the rules of its queue long before it is set
# by the number of cards. One service, one A100, and one rule changed at a time; the last thing that is tried is a card.
#
# Llama-2-13B on an A100 80 GB. Six requests in ten are chat (first token within 2 s, then a token every 80 ms), the others
# batch work with longer prompts and answers (whole answer within 120 s). Lengths are log-normal with heavy tails, and nobody
# knows them on arrival. *Rate in SLO*: the highest rate at which 95 % of the requests get what they were promised.

# %%
import os
import sys

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from llmqsim import from_mapping, simulate
from llmqsim.report import drawing

REQUESTS = int(os.environ.get("LLMQSIM_NOTEBOOK_REQUESTS", "3000"))  # fewer make it quick, and rougher
RUNS = int(os.environ.get("LLMQSIM_NOTEBOOK_RUNS", "4"))
FIGURE = os.environ.get("LLMQSIM_NOTEBOOK_FIGURE", "queue_discipline.png")
PROMISED = 0.95


def lengths(prompt, output, cv):
    """Log-normal lengths, tokens, cut where the context ends."""
    return {
        "prompt": {"lognormal": {"mean": prompt, "cv": 1.1}, "max": 2500},
        "output": {"lognormal": {"mean": output, "cv": cv}, "max": 1500},
    }


SERVICE = {
    "workload": {
        "requests": REQUESTS,
        "arrivals": {"process": "poisson", "rate": 1.0},
        "classes": {
            "chat": {"share": 0.6, "lengths": lengths(500, 150, 1.5), "slo": {"ttft": 2.0, "tpot": 0.08}},
            "batch": {"share": 0.4, "lengths": lengths(1000, 300, 1.5), "slo": {"e2e": 120.0}, "priority": 1},
        },
        "max_tokens": 1500,
    },
    "model": "llama-2-13b",
    "gpu": "a100-sxm-80gb",
    "engine": {"max_num_seqs": 128},
}


def summary(sets, rate, run=0, base=SERVICE):
    """One run; the same `run` has the same requests whatever `sets` changes, so that differences are paired."""
    return simulate(from_mapping(base, sets={"workload.arrivals.rate": rate, "run.seed": run, **sets})).summary()


def attainment(sets, rate, base=SERVICE):
    """Share of arrivals within their promise, of each run."""
    return np.array([summary(sets, rate, run, base)["attainment"] for run in range(RUNS)])


def rate_in_slo(sets, low, high, base=SERVICE):
    """The highest rate, req/s, at which PROMISED of the arrivals are served as promised: (mean, standard error) over runs."""
    found = [_crossing(lambda rate: summary(sets, rate, run, base)["attainment"], low, high) for run in range(RUNS)]
    return float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(RUNS)) if RUNS > 1 else float("nan")


def _crossing(share_at, low, high):
    for _ in range(9):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if share_at(middle) >= PROMISED else (low, middle)
    return low


# %% [markdown]
# ## Means mislead
#
# The same mean answers and the same rate; only the spread around the mean changes. A sizing by means sees four times the
# same server. (Answers are cut at 1,500 tokens, so the mean before the cut is set to make the mean after it right.)


# %%
def before_cut(mean, cv, most=1500):
    """Mean of the log-normal whose mean is `mean` once answers above `most` are cut to it."""
    sigma = np.sqrt(np.log1p(cv**2))

    def cut(uncut):
        mu = np.log(uncut) - sigma**2 / 2
        z = (np.log(most) - mu) / sigma
        return uncut * norm.cdf(z - sigma) + most * norm.sf(z)

    return brentq(lambda uncut: cut(uncut) - mean, mean / 2, 20 * mean)


print("spread of the answers      mean TTFT    P99 TTFT   in SLO")
for cv in (0.1, 0.7, 1.5, 2.5):
    spread = {}
    for name, mean in (("chat", 150), ("batch", 300)):
        spread[f"workload.classes.{name}.lengths.output.lognormal"] = {"mean": float(before_cut(mean, cv)), "cv": cv}
    told = [summary(spread, 3.8, run) for run in range(RUNS)]
    mean, p99 = (np.mean([t["ttft_s"][key] for t in told]) for key in ("mean", "p99"))
    print(f"coefficient of variation {cv:<4g}{mean:8.2f} s {p99:10.2f} s {np.mean([t['attainment'] for t in told]):8.1%}")

# %% [markdown]
# ## Batching, memory, order
#
# Each row keeps what the one above has and changes one rule. `static` waits for the longest answer of its batch, so that no
# load worth naming has its first tokens within 2 s; `orca` lets
# a request join at every step but holds memory for the longest answer that it may give; the paged engine (vLLM V1) takes
# memory as it is needed; then chat goes before batch work in the queue; then the KV cache is kept in 8 bits.

# %%
STEPS = {
    "static batching": {"engine.batching": "static", "engine.max_num_seqs": 32},
    "continuous batching, longest answer reserved": {"engine.batching": "orca"},
    "paged memory": {},
    "chat before batch work": {"engine.ordering": "priority"},
    "KV cache in 8 bits": {"engine.ordering": "priority", "engine.kv_cache_dtype": "fp8"},
}
reached = {}
for label, sets in STEPS.items():
    reached[label] = rate_in_slo(sets, 0.005, 12.0)
    print(f"{label:<46} {reached[label][0]:6.2f} ± {reached[label][1]:.2f} req/s in SLO")

# %% [markdown]
# ## Order, when the queue stands
#
# At loads where the pool is full, the order of the queue decides who is served within the promise. The orders that go by
# lengths see predictions: a ranker with Kendall's τ of 0.6, or lengths that are off by a factor of 1.65 (σ = 0.5).

# %%
RANKER, NOISY = {"workload.predictor": {"policy": "ranker", "tau": 0.6}}, {"workload.predictor": {"policy": "lognormal", "sigma": 0.5}}
ORDERS = {
    "fcfs": {},
    "sjf, ranker 0.6": {"engine.ordering": "sjf", **RANKER},
    "sjf, true lengths": {"engine.ordering": "sjf", "workload.predictor": "oracle"},
    "goodput_first, σ 0.5": {"engine.ordering": "goodput_first", **NOISY},
    "least_slack, σ 0.5": {"engine.ordering": "least_slack", **NOISY},
    "edf": {"engine.ordering": "edf"},
    "priority": {"engine.ordering": "priority"},
}
LOADS = (3.5, 4.0, 4.5)
print(f"{'in SLO at':<24}" + "".join(f"{rate:>9g}/s" for rate in LOADS) + "   P99 of TTFT at the last")
by_order = {}
for label, sets in ORDERS.items():
    by_order[label] = [attainment(sets, rate).mean() for rate in LOADS]
    told = summary(sets, LOADS[-1])
    print(f"{label:<24}" + "".join(f"{share:>11.1%}" for share in by_order[label]) + f"{told['ttft_s']['p99']:>14.0f} s")

# %% [markdown]
# The rate is the same and so is the card. What an order gives to one it takes from another: look at P99 before you choose,
# and see `comparing_policies.py` for who pays.
#
# ## What is a prediction worth?
#
# Shortest first with predictions that get worse: from τ = 1 (perfect) to 0 (none).

# %%
print("tau     in SLO at 4 req/s, shortest predicted answer first")
for tau in (1.0, 0.8, 0.6, 0.3, 0.0):
    shares = attainment({"engine.ordering": "sjf", "workload.predictor": {"policy": "ranker", "tau": tau}}, 4.0)
    print(f"{tau:<6g} {shares.mean():8.1%}")
print(f"fcfs   {attainment({}, 4.0).mean():8.1%}")

# %% [markdown]
# With τ = 0 the order is random, and even that beats first come first served: when not everybody can be served in time, to
# serve all in turn makes all of them late. Good predictions add little to that here, bad ones do no harm; `llmqsim claims
# --only C12` has the bet that is lost.
#
# ## Two cards: split them, or not?
#
# One card for prompts and one for answers, against two that do both. Splitting pays where the time between tokens is
# promised tightly, and costs where it is not: half of the memory for KV is gone, and one side idles.

# %%
PAIR = {key: value for key, value in SERVICE.items() if key != "workload"} | {
    "model": "llama-3.1-8b",
    "workload": {
        "requests": REQUESTS,
        "arrivals": {"process": "poisson", "rate": 1.0},
        "lengths": {"prompt": {"lognormal": {"mean": 2000, "cv": 0.8}, "max": 8000}, "output": {"lognormal": {"mean": 200, "cv": 1.0}, "max": 1500}},
    },
    "routing": "least_outstanding",
}
TWO = {"replicas": 2}
SPLIT = {"pools": {"prefill": {}, "decode": {}}, "handoff": {"preset": "vllm_nixl", "link": "nvlink3"}}
split = {}
for tpot in (0.015, 0.02, 0.03, 0.05):
    slo = {"slo": {"ttft": 1.5, "tpot": tpot}}
    split[tpot] = [rate_in_slo({**sets, **slo}, 0.05, 30.0, PAIR)[0] for sets in (TWO, SPLIT)]
    both, apart = split[tpot]
    print(f"a token every {tpot * 1e3:3.0f} ms: two that do both {both:5.2f} req/s in SLO, split {apart:5.2f}")

# %% [markdown]
# ## And only now a card
#
# A second, third and fourth card under the rules that we began with, beside one card under the rules that we ended with.

# %%
REPLICAS = (1, 2, 3, 4)
plain, good = STEPS["continuous batching, longest answer reserved"], STEPS["KV cache in 8 bits"]
cards = {}
for label, rules in (("reserved memory, round robin", plain), ("all rules, least outstanding", {**good, "routing": "least_outstanding"})):
    cards[label] = [rate_in_slo({**rules, "replicas": count}, 0.2, 60.0) for count in REPLICAS]
    print(f"{label:<30}" + "".join(f"{rate:8.2f}" for rate, _ in cards[label]) + f"  req/s in SLO with {REPLICAS} cards")
first, best = cards["reserved memory, round robin"], cards["all rules, least outstanding"][0][0]
needed = next((count for count, (rate, _) in zip(REPLICAS, first, strict=True) if rate >= best), None)
print(f"one card with good rules: {best:.2f} req/s; under the old rules that takes", f"{needed} cards" if needed else "more than 4 cards")

# %% [markdown]
# The figure: what each rule gave (left), what the order does when the queue stands (middle), and what cards give under both
# sets of rules (right).

# %%
try:
    plot = drawing.pyplot()
except Exception as error:  # matplotlib is an extra
    print(error)
    sys.exit(0)
figure, (left, middle, right) = plot.subplots(1, 3, figsize=(13, 4), layout="constrained")
names = list(reached)
labels = [name.replace(", ", ",\n") for name in names]
left.barh(labels, [reached[name][0] for name in names], xerr=[reached[name][1] for name in names], color=drawing.COLOURS[0])
for place, name in enumerate(names):
    left.text(reached[name][0] + 0.15, place, f"{reached[name][0]:.2g}", va="center", fontsize=8)
left.invert_yaxis()
left.set_xlim(0, 1.15 * max(rate for rate, _ in reached.values()))
left.set_xlabel("req/s within SLO, one A100")
left.set_title("one rule after the other", fontsize=10)
for colour, (label, shares) in zip(drawing.COLOURS, by_order.items(), strict=False):
    middle.plot(LOADS, [100 * share for share in shares], "o-", markersize=3, color=colour, label=label)
middle.axhline(100 * PROMISED, color="black", linewidth=0.7)
middle.set_xticks(LOADS)
middle.set_xlabel("req/s, one A100, paged memory")
middle.set_ylabel("within SLO, %")
middle.set_title("the order of the queue", fontsize=10)
middle.legend(fontsize=7, loc="lower left")
for colour, (label, found) in zip(drawing.COLOURS, cards.items(), strict=False):
    right.errorbar(REPLICAS, [rate for rate, _ in found], [error for _, error in found], fmt="o-", markersize=3, color=colour, label=label)
right.axhline(best, color="black", linewidth=0.7, linestyle=":")
right.set_xticks(REPLICAS)
right.set_xlabel("cards")
right.set_ylabel("req/s within SLO")
right.set_title("cards under old and new rules", fontsize=10)
right.legend(fontsize=7)
drawing.save(figure, FIGURE)
