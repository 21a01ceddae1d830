"""The bare loop that the compiled engine is measured against: decode steps, and nothing but their durations."""

from __future__ import annotations

from llmqsim.cost.kernels import step_ns
from llmqsim.jit import kernel


@kernel
def decode_steps(costs, params, steps, requests):
    """Time, ns, of `steps` decode steps of `requests` requests that begin with 1,000 tokens each.

    costs : float64[:], params : int64[:], both of a StepCost.
    """
    now = 0
    context = 1000 * requests
    for _ in range(steps):
        now += step_ns(costs, params, requests, context, 0, 0, 0.0, requests, requests)
        context += requests
    return now
