"""Predicted lengths into the request table: which predictor, and its draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmqsim import registry
from llmqsim.errors import ScenarioError
from llmqsim.requests import INDEX, RequestTable
from llmqsim.rng import stream
from llmqsim.workload import predictors

KEY = "workload.predictor"


def fill(table: RequestTable, spec: dict[str, Any], folder: Path, seed: int, replication: int) -> None:
    """Write `predicted_tokens` of every request, and the correction of those that outlive it.

    spec : policy and its parameters. folder : where file names start. Raises ScenarioError for a predictor or a
    parameter that is none, DataError for a trace that can't be read.
    """
    parameters = {key: value for key, value in spec.items() if key != "policy"}
    try:
        predictor = registry.make("predictor", spec["policy"], parameters)
    except ScenarioError as error:
        raise ScenarioError(*(f"{KEY}: {fault}" for fault in error.faults)) from None
    rows = predictors.Lengths(table.prompt_tokens, table.output_tokens, table.class_id)
    told = predictor.predict(rows, folder, stream(seed, replication, "predictor"))
    table.data[INDEX["predicted_tokens"]] = predictor.drifted(told)
    table.re_estimate = float(predictor.online)
