"""What the servers' door refuses before the clock starts, because no schedule could ever serve it."""

from __future__ import annotations

import numpy as np

from llmqsim.cluster.fleet import DECODE, PREFILL, Fleet
from llmqsim.engine.deployment import Deployment
from llmqsim.options import EngineOptions
from llmqsim.requests import INDEX, Outcome, Reason, RequestTable


def refusals(table: RequestTable, servers: Deployment | Fleet) -> np.ndarray:
    """Why each request can't be served, int64[rows] of Reason (NONE for those that can).

    With several pools: what one of the pools that a request could visit can't take.
    """
    fleet = Fleet.of(servers)
    if fleet.only is not None:
        return _refusals(table, fleet.only, table.output_tokens, table.max_tokens)
    reason = np.full(len(table), int(Reason.NONE))
    visitors = fleet.visitors(table)
    for pool in fleet.pools:
        answer = (np.ones_like(reason),) * 2 if pool.role == PREFILL else (table.output_tokens, table.max_tokens)
        takes_over = 1 if pool.role == DECODE else 0  # it holds the place of the next token before it may run
        found = _refusals(table, pool.deployment, *answer, takes_over)
        its = np.where(visitors[pool.name], found, int(Reason.NONE))
        reason = np.where(reason == Reason.NONE, its, reason)
    return reason


def _refusals(
    table: RequestTable, deployment: Deployment, output: np.ndarray, longest: np.ndarray, spare: int = 0
) -> np.ndarray:
    """The same of one pool, where answers have `output` and at most `longest` tokens, int64[rows] each.

    spare : tokens beyond the prompt that must have a place, however short the answer.
    """
    options = deployment.options
    total = table.prompt_tokens + output
    reason = np.full(len(table), int(Reason.NONE))
    if deployment.capacity is not None:
        batching = deployment.batching
        # the last token's KV is never written; some policies hold the longest possible answer from the start
        most = table.prompt_tokens + bounded(table, options, longest) if batching.holds_maximum else total - 1
        most = np.maximum(most, table.prompt_tokens + spare)
        held = -(-most // options.block_size) + batching.spare_blocks
        reason[held > deployment.capacity.usable_blocks] = Reason.EXCEEDS_KV_POOL
    if not options.enable_chunked_prefill and deployment.batching.has_token_budget:
        # a preempted request, with its answer so far, must fit, too
        reason[total - 1 > options.max_num_batched_tokens] = Reason.EXCEEDS_TOKEN_BUDGET
    if options.max_model_len is not None:
        reason[total > options.max_model_len] = Reason.EXCEEDS_MAX_MODEL_LEN
    return reason


def bounded(table: RequestTable, options: EngineOptions, longest: np.ndarray) -> np.ndarray:
    """The same answers, int64[rows], where no sequence passes max_model_len; requests that do so anyhow are refused."""
    if options.max_model_len is None:
        return longest
    return np.minimum(longest, np.maximum(options.max_model_len - table.prompt_tokens, table.output_tokens))


def bound_answers(table: RequestTable, servers: Deployment | Fleet) -> None:
    """Cut `max_tokens` to what max_model_len leaves, as servers do: nobody reserves memory beyond it.

    With several pools: to what each pool leaves that a request could decode in.
    """
    fleet = Fleet.of(servers)
    visitors = None if fleet.only is not None else fleet.visitors(table)
    for pool in fleet.pools:
        if pool.role == PREFILL or pool.deployment.options.max_model_len is None:
            continue
        most = bounded(table, pool.deployment.options, table.max_tokens)
        cut = most < table.max_tokens
        if visitors is not None:
            cut &= visitors[pool.name]
        table.max_tokens[cut] = most[cut]


def refuse_unservable(table: RequestTable, servers: Deployment | Fleet) -> None:
    """Mark the requests that can't be served as REJECTED, with the reason. Such a request would wait for ever.

    A real server answers a too long prompt with an error and cuts a too long answer; here both are refused and
    counted, so that a variant with less memory is not flattered by shorter answers.
    """
    bound_answers(table, servers)
    reason = refusals(table, servers)
    refused = reason != Reason.NONE
    table.data[INDEX["reason"], refused] = reason[refused]
    table.data[INDEX["outcome"], refused] = Outcome.REJECTED
