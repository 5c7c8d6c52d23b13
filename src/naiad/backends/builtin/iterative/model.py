"""Counts down from INPUT to 0, one response for each run of a request. Runs in the process of a Python model."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

DELAY_MS = 500
NO_START = "the first request of an iterative sequence must have the START flag"
NO_SEQUENCES = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle "
    "such a flag."
)


class TritonPythonModel:
    """Every run takes ``execute_delay_ms``, a parameter of the model, half a second by default."""

    def initialize(self, args: Any) -> None:
        """Read the parameter."""
        config = json.loads(args["model_config"])
        parameters = config.get("parameters", {})
        self.refusal = NO_START if config.get("sequence_batching") else NO_SEQUENCES
        self.delay_s = float(parameters.get("execute_delay_ms", {}).get("string_value", DELAY_MS)) / 1000
        self.left: dict[Any, int] = {}

    def execute(self, requests: Any) -> None:
        """Count each request down by one."""
        for request in requests:
            key = request.correlation_id()
            given = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.left[key] = int(given.flat[0])
            if key in self.left:
                self._step(request, key, np.full(given.shape, self.left[key] - 1, np.int32))
            else:
                # An empty slot of a batch, whose response is dropped, or a model without iterative sequences.
                error = pb_utils.TritonError(self.refusal)
                request.get_response_sender().send(
                    pb_utils.InferenceResponse(error=error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )

    def _step(self, request: Any, key: Any, left: Any) -> None:
        time.sleep(self.delay_s)
        sender = request.get_response_sender()
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", left)]))
        if left.flat[0] > 0:
            self.left[key] -= 1
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        else:
            del self.left[key]
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
