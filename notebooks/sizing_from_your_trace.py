# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Sizing from your trace
#
# From recorded traffic to a number of replicas: what means say, what the trace says, and what a bad day would say. Put your
# own file in `TRACE`: a CSV with `arrival_s, prompt_tokens, output_tokens`.

# %%
import os
import tempfile

import numpy as np

from llmqsim import from_mapping
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.size import Effort, Search
from llmqsim.planner.sizing import Question, size
from llmqsim.report.size_screen import size_text
from llmqsim.simulation import prepare

# %% [markdown]
# Without a trace of your own: 20 minutes of a code assistant's traffic, with prompts and answers of the preset that was
# fitted on a real one, and a rate that swings by a half within ten minutes.

# %%
TRACE = os.environ.get("LLMQSIM_TRACE")
ROWS = int(os.environ.get("LLMQSIM_NOTEBOOK_REQUESTS", "12000"))
if TRACE is None:
    lengths = from_mapping(
        {
            "workload": {"requests": ROWS, "arrivals": {"process": "poisson", "rate": 10}, "lengths": "azure-code"},
            "cost": {"model": "constant", "step": 0.01},
        }
    )
    table = prepare(lengths).run(0, 0).table
    unit = np.cumsum(np.random.default_rng(0).exponential(1 / 10, ROWS))  # arrivals at a steady 10 req/s ...
    clock = np.linspace(0, 2 * unit[-1], 200_001)
    steps = 1 + 0.5 * np.sin(2 * np.pi * clock[:-1] / 600)  # ... then faster and slower
    arrival = np.interp(unit, np.concatenate([[0], np.cumsum(steps * np.diff(clock))]), clock)
    TRACE = os.path.join(tempfile.mkdtemp(), "trace.csv")
    with open(TRACE, "w", encoding="utf-8") as file:
        file.write("arrival_s,prompt_tokens,output_tokens\n")
        for t, p, o in zip(arrival, table.prompt_tokens, table.output_tokens, strict=True):
            file.write(f"{t:.4f},{p},{o}\n")

# %% [markdown]
# ## What the trace asks for
#
# The trace is one run. Its interval comes from 20 batches of its requests: how another stretch like it might differ.

# %%
flags = {"model": "llama-3.1-8b", "gpu": "a100-sxm-80gb", "trace": TRACE, "ttft": "1 s", "tpot": "60 ms", "attainment": "0.95"}
told = size(Question(flags=flags))
print(size_text(told))

# %% [markdown]
# ## What means would have said
#
# The same arithmetic that prunes the search: mean lengths, mean rate, no queue.

# %%
prepared = prepare(from_mapping(told["scenario"]))
bounds = Bounds(prepared.servers.deployment, prepared.run(0, 0).table)
rate = bounds.mix.rate_per_s
print(f"mean rate {rate:.1f} req/s; by means {bounds.replicas_by_means(rate, 0.06)} replicas, by the trace {told['replicas']}")
print(f"a replica carries {bounds.capacity_per_s:.2f} req/s at most; {bounds.binding.name} binds")

# %% [markdown]
# ## A day with a third more
#
# The same gaps, a third shorter.

# %%
busier = {**told["scenario"], "workload": {**told["scenario"]["workload"]}}
busier["workload"]["trace"] = {**busier["workload"]["trace"], "rate_scale": 4 / 3}
more = Search(prepare(from_mapping(busier)), Effort()).answer()
print(f"at 4/3 of the rate: {more.replicas} replicas")
