"""Descriptions of models and identity servers for the tests of ``naiad perf``'s inputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from naiad.perf.steps import ModelDescription, Step, TensorDescription, TensorValue
from naiad.tensor.dtypes import DATATYPES
from naiad.testing import RunningServer
from support import served_models

IDENTITIES = {t.wire: f"identity_{t.wire.lower()}" for t in DATATYPES}
"""Models with batches of a tensor of 3 elements, by datatype."""


def tensor(name: str, datatype: str, *shape: int, **extra: bool) -> TensorDescription:
    """One input or output."""
    return TensorDescription(name, datatype, shape, **extra)


def model(*inputs: TensorDescription, max_batch_size: int = 0, **extra: Any) -> ModelDescription:
    """A model named ``m`` whose outputs are OUTPUT0, OUTPUT1 ... like its inputs."""
    outputs = tuple(TensorDescription(f"OUTPUT{i}", t.datatype, t.shape) for i, t in enumerate(inputs))
    return ModelDescription("m", "1", inputs, outputs, max_batch_size, **extra)


def write_identities(repository: Path) -> None:
    """A model of ``IDENTITIES`` for each datatype."""
    for datatype in DATATYPES:
        text = served_models.identity(datatype.config, "3", max_batch_size=8)
        served_models.write_model(repository, IDENTITIES[datatype.wire], text)


def infer_binary(server: RunningServer, name: str, step: Step) -> list[TensorValue]:
    """Send a step over HTTP as binary tensors; gives back the outputs."""
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": t.name,
                    "datatype": t.datatype,
                    "shape": list(t.shape),
                    "parameters": {"binary_data_size": len(t.data)},
                }
                for t in step.inputs
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    body = head + b"".join(t.data for t in step.inputs)
    headers: Sequence[tuple[str, str]] = [("Inference-Header-Content-Length", str(len(head)))]
    response = server.request("POST", f"/v2/models/{name}/infer", body, headers)
    assert response.status == 200, response.body
    at = int(response.headers["inference-header-content-length"])
    found = []
    for output in response.json()["outputs"]:
        end = at + output["parameters"]["binary_data_size"]
        found.append(
            TensorValue(output["name"], output["datatype"], tuple(output["shape"]), bytes(response.body[at:end]))
        )
        at = end
    return found
