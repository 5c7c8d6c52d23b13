"""An inference function as a Python model, in a worker process."""

from __future__ import annotations

import asyncio
import importlib
import json
import pickle
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from naiad.pytriton.decorators.context import TritonContext
from naiad.pytriton.proxy.types import Request
from naiad.pytriton.serving.infer_call import InferCall, InferFunction

FUNCTIONS_FILE = "functions.pickle"


class InferModel:
    """Runs a function of any kind."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the function of this instance and warm it up."""
        # Only a worker has this module; it is the interface of Python models.
        self._api: Any = importlib.import_module("triton_python_backend_utils")
        file = Path(args["model_repository"]) / args["model_version"] / FUNCTIONS_FILE
        functions: list[InferFunction] = pickle.loads(file.read_bytes())
        index = int(args["model_instance_name"].rpartition("_")[2])
        given = functions[index % len(functions)]
        self._decoupled = given.config.decoupled
        self._call = InferCall(given, TritonContext())
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._call.warm_up(given.warmups, self._api.Logger.log_warn))

    def finalize(self) -> None:
        """Release the loop."""
        self._loop.close()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Call the function once with all requests."""
        return self._loop.run_until_complete(self._stream(requests) if self._decoupled else self._respond(requests))

    async def _respond(self, requests: list[Any]) -> list[Any]:
        async with aclosing(self._call.responses(self._given(requests))) as responses:
            async for outputs in responses:
                return [self._response(request, made) for request, made in zip(requests, outputs, strict=True)]
        raise ValueError("the function yielded nothing, and its model is not decoupled")

    async def _stream(self, requests: list[Any]) -> None:
        senders = [request.get_response_sender() for request in requests]
        final = self._api.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        try:
            async with aclosing(self._call.responses(self._given(requests))) as responses:
                async for outputs in responses:
                    for request, sender, made in zip(requests, senders, outputs, strict=True):
                        sender.send(self._response(request, made))
                    if all(sender.is_cancelled() for sender in senders):
                        break
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            for sender in senders:
                sender.send(self._api.InferenceResponse(error=self._api.TritonError(text)), flags=final)
            return
        for sender in senders:
            sender.send(flags=final)

    def _given(self, requests: list[Any]) -> list[Request]:
        return [
            self._call.request(
                {tensor.name(): tensor.as_numpy() for tensor in request.inputs()},
                json.loads(request.parameters() or "{}"),
                sorted(request.requested_output_names()),
            )
            for request in requests
        ]

    def _response(self, request: Any, outputs: Mapping[str, Any]) -> Any:
        wanted = request.requested_output_names()
        tensors = [self._api.Tensor(name, array) for name, array in outputs.items() if name in wanted]
        return self._api.InferenceResponse(output_tensors=tensors)
