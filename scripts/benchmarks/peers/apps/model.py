"""The reference server's Python backend: batches of its dynamic batcher, joined for one call of the network."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One network. The parameters of the model say where the network and its packages are."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load it, once for each instance."""
        parameters = json.loads(args["model_config"])["parameters"]
        for name in ("PEER_NETWORK", "PEER_ROW", "PEER_WIRE", "PEER_WORKERS"):
            os.environ[name] = parameters[name]["string_value"]
        # Behind its own packages, so that those keep the version of numpy that they came with.
        sys.path += parameters["path"]["string_value"].split(os.pathsep)
        from network import Network

        self.network = Network()

    def execute(self, requests: list[Any]) -> list[Any]:
        """The scores of all rows of all requests."""
        given = [pb_utils.get_input_tensor_by_name(request, "rows").as_numpy() for request in requests]
        scores = self.network.run(np.concatenate(given))
        ends = np.cumsum([len(rows) for rows in given])[:-1]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("scores", part)]) for part in np.split(scores, ends)]
