"""pytest plugin: the fixture `simulate` and the marker `slo`. Light: nothing of llmqsim's is imported before it is used.

    @pytest.mark.slo("ttft p99 < 800 ms, tpot < 50 ms, 95 %")
    def test_chat_keeps_its_promise(simulate):
        simulate("scenarios/chat.yaml")

The marker's SLO stands in for the scenario's; the test fails where it is broken, and where the runs can't tell (it never
passes on doubt). Without the marker, look at what `simulate` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from llmqsim.planner.attain import Attained

REPLICATIONS = 5


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "slo(text): an SLO that every scenario simulated in this test must keep")


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Any:
    """A function: `simulate(scenario, variant=None, sets=(), replications=5, seed=None)` -> Simulated."""
    marker = request.node.get_closest_marker("slo")
    texts = () if marker is None else marker.args
    if marker is not None and (len(texts) != 1 or not isinstance(texts[0], str)):
        pytest.fail("pytest.mark.slo takes one text, such as 'ttft p99 < 800 ms'", pytrace=False)

    def run(scenario: Any, variant: Any = None, sets: Any = (), replications: int = REPLICATIONS, seed: int | None = None):
        __tracebackhide__ = True
        told = simulated(scenario, variant, sets, replications, seed, texts[0] if texts else None)
        if texts:
            told.check()
        return told

    return run


class Simulated:
    """Replications of one scenario. results : the runs. attained : how the SLO was kept, None without one."""

    def __init__(self, results: list[Any], attained: Attained | None):
        self.results, self.attained = results, attained

    def mean(self, key: str) -> float:
        """The mean over replications of a figure of the summary, such as "ttft_s.p99". Raises KeyError."""
        values = []
        for result in self.results:
            value: Any = result.summary()
            for part in key.split("."):
                value = value[part]
            values.append(float(value))
        return sum(values) / len(values)

    @property
    def attainment(self) -> dict[str, Any]:
        """mean, low, high of the objective with the least margin, and its verdict `judged`. Raises ValueError without one."""
        if self.attained is None:
            raise ValueError("the scenario has no slo; give one, or mark the test with pytest.mark.slo")
        return self.attained.told()

    def check(self) -> None:
        """Fail the test unless every objective is kept by its whole interval and the runs settle."""
        __tracebackhide__ = True
        told = self.attainment
        low, high = ("–" if told[end] is None else f"{100 * told[end]:.2f} %" for end in ("low", "high"))
        mean = "–" if told["mean"] is None else f"{100 * told['mean']:.2f} %"
        said = f"{told['objective']}: {mean} [{low}, {high}] of {100 * told['asked']:g} % asked for, {told['stability']}"
        if told["judged"] == "broken":
            pytest.fail(f"SLO broken: {said}", pytrace=False)
        if told["judged"] == "open" or told["stability"] != "stable":
            pytest.fail(f"SLO not shown to be kept (more requests or replications may tell): {said}", pytrace=False)


def simulated(
    scenario: Any, variant: Any, sets: Any, replications: int, seed: int | None, text: str | None = None
) -> Simulated:
    """Run a scenario (a file, a mapping, or a loaded one) so many times. text : an SLO instead of its own."""
    from llmqsim.planner.attain import Attained, sample
    from llmqsim.planner.replicate import alike
    from llmqsim.scenario.load import Scenario, from_mapping, load
    from llmqsim.simulation import prepare

    given = [sets] if isinstance(sets, str) else list(sets.items() if isinstance(sets, dict) else sets)
    given += [] if text is None else [("slo", None, "pytest.mark.slo"), ("slo", text, "pytest.mark.slo")]
    if isinstance(scenario, dict):
        scenario = from_mapping(scenario, variant, given)
    elif not isinstance(scenario, Scenario):
        scenario = load(scenario, variant, given)
    prepared = prepare(scenario)
    seed = scenario.spec.run.seed if seed is None else seed
    same = alike(prepared)
    results = [prepared.run(seed, replication) for replication in range(1 if same else replications)]
    from llmqsim.metrics.slo import objectives

    asked = objectives(results[0].promise, results[0].table.classes)
    found = Attained(asked, [sample(result, asked, same) for result in results], results[-1]) if asked else None
    return Simulated(results, found)
