"""C11: low utilisation and a missed SLO are a queue to mend, not GPUs to buy."""

from __future__ import annotations

from llmqsim.claims.figure import Figure, Setting
from llmqsim.planner import utilisation
from llmqsim.planner.utilisation import Diagnosis
from llmqsim.simulation import simulate

PLANTED = {
    "few_slots": utilisation.QUEUE,
    "small_pool": utilisation.MEMORY,
    "three_times_the_load": utilisation.HARDWARE,
}
"""variant to whose problem it is"""
LOW_PUBLISHED = 0.5


def measure(setting: Setting) -> list[Figure]:
    """The healthy server, then each planted problem: attainment, utilisation, and whether the verdict names it."""
    full = utilisation.saturated_tokens_per_s(setting.load("c11", sets=_requests(setting)), setting.seed)
    rule = f"saturated throughput of this hardware without limits of its queue: {full:,.0f} tokens/s, prompts included"
    attainment, share, busy, told = _run(setting, None, full)
    figures = [
        Figure("a healthy server: attainment", attainment, 0.95, rule),
        Figure("a healthy server: utilisation", share, LOW_PUBLISHED, rule),
        Figure("a healthy server: share of time with a step under way", busy, None, rule),
        _verdict("a healthy server", utilisation.NO_HARDWARE, told),
    ]
    for variant, problem in PLANTED.items():
        name = variant.replace("_", " ")
        attainment, share, _, told = _run(setting, variant, full)
        figures.append(Figure(f"{name}: attainment", attainment, None, rule))
        figures.append(Figure(f"{name}: utilisation", share, None, rule))
        figures.append(_verdict(name, problem, told))
    return figures


def _requests(setting: Setting) -> dict[str, int]:
    return {"workload.requests": setting.size(3000, 1000)}


def _run(setting: Setting, variant: str | None, full: float) -> tuple[float, float, float, Diagnosis]:
    """Attainment, utilisation, busy share, and the verdict."""
    scenario = setting.load("c11", variant, _requests(setting))
    result = simulate(scenario, seed=setting.seed)
    told, share = result.summary(), utilisation.steady_tokens_per_s(result) / full
    verdict = utilisation.diagnose(told["attainment"], scenario.spec.slo.attainment, share, told["waiting_for"])
    return told["attainment"], share, told["utilisation"]["busy"], verdict


def _verdict(name: str, problem: str, told: Diagnosis) -> Figure:
    """1 where the verdict is the right one."""
    words = f"{name}: the verdict is '{problem}'"
    return Figure(words, float(told.problem == problem), 1.0, told.sentence, f"the verdict was '{told.problem}'")
