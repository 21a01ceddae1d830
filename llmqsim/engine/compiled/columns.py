"""Rows of the request table that kernels read and write, and the outcomes that they know (requests.py)."""

# Part of machine code: kernels address the request table by these numbers.
from __future__ import annotations

from llmqsim.requests import INDEX, Outcome

FIRST_SCHEDULED = INDEX["first_scheduled_ns"]
FIRST_TOKEN = INDEX["first_token_ns"]
FINISH = INDEX["finish_ns"]
GENERATED = INDEX["generated_tokens"]
CACHED = INDEX["cached_tokens"]
PREEMPTIONS = INDEX["preemptions"]
MAX_ITL = INDEX["max_itl_ns"]
WAIT_STEP = INDEX["wait_step_ns"]
WAIT_PREEMPTED = INDEX["wait_preempted_ns"]
OUTCOME = INDEX["outcome"]
REPLICA_OF = INDEX["replica"]
PROMPT_TOKENS = INDEX["prompt_tokens"]
OUTPUT_TOKENS = INDEX["output_tokens"]
MAX_TOKENS = INDEX["max_tokens"]
CLASS_ID = INDEX["class_id"]
TENANT_ID = INDEX["tenant_id"]
PRIORITY = INDEX["priority"]
PREDICTED = INDEX["predicted_tokens"]
DEADLINE = INDEX["deadline_ns"]
ARRIVAL = INDEX["arrival_ns"]
CLIENT = INDEX["client"]
GAVE_UP = INDEX["gave_up_ns"]
INTENDED = INDEX["intended_ns"]
REASON = INDEX["reason"]
THINK = INDEX["think_ns"]
COMPLETED, REJECTED, TIMED_OUT, UNFINISHED = (
    int(Outcome[name]) for name in ("COMPLETED", "REJECTED", "TIMED_OUT", "UNFINISHED")
)
