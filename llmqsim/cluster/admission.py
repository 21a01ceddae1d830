"""What the servers' door refuses before the clock starts, because no schedule could ever serve it."""

from __future__ import annotations

import numpy as np

from llmqsim.engine.deployment import Deployment
from llmqsim.requests import INDEX, Outcome, Reason, RequestTable


def refusals(table: RequestTable, deployment: Deployment) -> np.ndarray:
    """Why each request can't be served, int64[rows] of Reason (NONE for those that can)."""
    options = deployment.options
    total = table.prompt_tokens + table.output_tokens
    reason = np.full(len(table), int(Reason.NONE))
    if deployment.capacity is not None:
        batching = deployment.batching
        # the last token's KV is never written; some policies hold the longest possible answer from the start
        most = table.prompt_tokens + table.max_tokens if batching.holds_maximum else total - 1
        held = -(-most // options.block_size) + batching.spare_blocks
        reason[held > deployment.capacity.usable_blocks] = Reason.EXCEEDS_KV_POOL
    if not options.enable_chunked_prefill and deployment.batching.has_token_budget:
        # a preempted request, with its answer so far, must fit, too
        reason[total - 1 > options.max_num_batched_tokens] = Reason.EXCEEDS_TOKEN_BUDGET
    if options.max_model_len is not None:
        reason[total > options.max_model_len] = Reason.EXCEEDS_MAX_MODEL_LEN
    return reason


def refuse_unservable(table: RequestTable, deployment: Deployment) -> None:
    """Mark the requests that can't be served as REJECTED, with the reason. Such a request would wait for ever.

    A real server answers a too long prompt with an error and cuts a too long answer; here both are refused and
    counted, so that a variant with less memory is not flattered by shorter answers.
    """
    reason = refusals(table, deployment)
    refused = reason != Reason.NONE
    table.data[INDEX["reason"], refused] = reason[refused]
    table.data[INDEX["outcome"], refused] = Outcome.REJECTED
