"""One list of everybody, by an ordering that preempts: what vllm-ltr, FastServe and SRPT do at every step."""

from __future__ import annotations

from llmqsim.policies.protocol import ReplicaView, StepDraft


def form_ranked(view: ReplicaView, draft: StepDraft) -> None:
    """Tokens from the top of the list until the budget is spent.

    Who waits takes the slot and the memory of those who run and rank behind it. Behind the first for whom that is not
    enough nobody else enters; those who run go on. Memory for the next token is taken from the last who runs.
    """
    inside = {request.row for request in view.running}
    swapped = {request.row for request in view.swapped}
    entry, left = True, len(inside)
    for request in view.ranked():
        if request.row in inside:
            left -= 1
            draft.grow(request)
        elif not entry:
            if not left:  # whoever comes now waits, and nobody enters any more
                return
        elif request.row in swapped:
            entry = draft.swap_in(request) or (draft.displace(request) and draft.swap_in(request))
            if entry:
                draft.grow(request)
        else:
            entry = draft.admit(request) or (draft.displace(request) and draft.admit(request))


def form_ahead(view: ReplicaView, draft: StepDraft) -> None:
    """As many from the top of the list as a step has slots for; the others keep their KV while there is room.

    Who is new takes the memory of those behind; behind the first for whom that is not enough only those get tokens whose
    KV is there. What is copied ahead of need is chosen when the step is there.
    """
    inside = {request.row for request in view.running}
    swapped = {request.row for request in view.swapped}
    entry = True
    for request in view.ranked():
        if draft.is_full:
            break
        if request.row in inside:
            if not draft.grow(request) and not request.kv_blocks:  # it has just lost them to one before it
                entry = False
        elif request.row in swapped:  # comes back ahead of its turn, or when nobody else is there
            if not view.running and draft.swap_in(request):
                draft.grow(request)
        elif entry and not draft.holds_new:
            entry = draft.admit(request) or (draft.displace(request) and draft.admit(request))
    draft.copy_ahead()
