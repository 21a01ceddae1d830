"""Do the router's and the door's policies go with this run? What can be known before the clock starts is said then."""

from __future__ import annotations

from llmqsim.engine.deployment import Deployment
from llmqsim.requests import UNSET, RequestTable


def front_faults(table: RequestTable, servers: Deployment, alone: bool = True) -> list[tuple[str, str]]:
    """(scenario key, sentence) for each thing that does not fit. alone : is this the only pool?"""
    routing, admission = servers.routing, servers.admission
    faults = []
    if told := routing.unfit(servers.replicas, table.classes):
        faults.append(("routing", told))
    if routing.needs_predictions and (table.predicted_tokens == UNSET).all():
        faults.append(("routing", "looks at predicted lengths, and nothing predicts them; set workload.predictor"))
    if servers.late_binding is not None and not alone:
        faults.append(("routing.late_binding", "is for a single pool; between pools requests are sent at once"))
    if servers.signal_age_ns and not (routing.reads_signals or admission.reads_signals):
        faults.append(
            ("routing.signal_age", "plays no part: the policy looks at no report; use least_loaded or least_kv")
        )
    if admission.needs_deadlines and (table.deadline_ns == UNSET).all():
        faults.append(("admission", "looks at deadlines, and no request has one; set slo.ttft or slo.e2e"))
    return faults
