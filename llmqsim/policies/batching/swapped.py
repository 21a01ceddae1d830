"""Bringing swapped requests back: shared by the batching policies that can preempt."""

from __future__ import annotations

from llmqsim.policies.protocol import ReplicaView, StepDraft


def bring_back(view: ReplicaView, draft: StepDraft) -> bool:
    """Swap in by arrival while slots and memory allow; False if someone stays out: then nobody new may enter.

    vLLM V0's swapped queue: first come first served, ahead of all new prompts, in steps without a preemption.
    """
    for request in view.swapped:
        if not draft.swap_in(request):
            draft.hold_back("kv")
            return False
        draft.grow(request)
    return not draft.preempted
