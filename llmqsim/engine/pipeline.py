"""A replica whose layers are spread over pipeline stages: as many steps are under way as there are stages.

A step (micro-batch) goes through the stages one after the other; the next one enters the first stage when that is free.
It is formed ahead of that, as soon as there is room for one more; when nobody is runnable then, at the next step's end.
A request's next token needs the one before it, so a decoding request is in one micro-batch at a time; the chunks of a
prompt may follow one another. Micro-batches are not balanced: each takes whoever is runnable when it is formed.
Source: vLLM V1, docs/engine_semantics.md. Stages are taken as equally long; the transfer between them is in the step.
"""

from __future__ import annotations

from llmqsim.engine.plan import StepPlan
from llmqsim.engine.reference import ReferenceReplica


class PipelinedReplica(ReferenceReplica):
    """The reference replica with overlapping steps. `in_flight` plays no part: the stages say how many there are."""

    one_token_at_a_time = waits_for_token = True

    def __init__(self, env, index, table, servers, gaps, step_log=None):
        super().__init__(env, index, table, servers, gaps, step_log)
        self._stages = servers.cost.pipeline_stages
        self._first_stage_free_ns = 0

    def _form_ahead(self) -> None:
        """As many micro-batches as there are stages, as long as somebody is runnable; else again at the next commit."""
        while len(self._steps) < self._stages:
            step = self._form()
            if step is None:
                break
            self._enter_pipeline(step)
        self._check_progress()

    def _start_next(self) -> None:
        """Steps have their times from the moment they are formed."""

    def _enter_pipeline(self, step: StepPlan) -> None:
        """It starts when the first stage is free, and leaves the last no sooner than a stage after the step before."""
        stage_ns = -(-step.duration_ns // self._stages)
        step.start(max(self.env.now, self._first_stage_free_ns))
        if self._steps:
            step.end_ns = max(step.end_ns, self._steps[-1].end_ns + stage_ns)
        self._first_stage_free_ns = step.start_ns + stage_ns
        self.incoming.begin(step)
        self._steps.append(step)
