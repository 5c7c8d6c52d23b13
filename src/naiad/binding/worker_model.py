"""A bound function as a Python model, in a worker process."""

from __future__ import annotations

import asyncio
import importlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from naiad.binding.call import Arrays, FunctionCall
from naiad.binding.function import BoundFunction
from naiad.binding.model_folder import FUNCTION_FILE


class BoundModel:
    """Runs plain functions, generators, and batches of coroutines."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the function and set it up."""
        # Only a worker has this module; it is the interface of Python models.
        self._api: Any = importlib.import_module("triton_python_backend_utils")
        file = Path(args["model_repository"]) / args["model_version"] / FUNCTION_FILE
        bound: BoundFunction = pickle.loads(file.read_bytes())
        self._call = FunctionCall(bound)
        self._bound = bound
        self._loop: asyncio.AbstractEventLoop | None = None

    def finalize(self) -> None:
        """Tear the function down."""
        self._call.close()
        if self._loop is not None:
            self._loop.close()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Run requests: one by one, or all in one call for a function with ``@batch``."""
        if self._bound.kind.streams:
            for request in requests:
                self._stream(request)
            return None
        if self._bound.batching is not None and len(requests) > 1:
            return self._run_batch(requests)
        return [self._response(request, self._plain(self._inputs(request))) for request in requests]

    def _plain(self, inputs: Arrays) -> Arrays:
        if self._bound.kind == "coroutine":
            self._loop = self._loop or asyncio.new_event_loop()
            return self._loop.run_until_complete(self._call.coroutine(inputs))
        return self._call.plain(inputs)

    def _run_batch(self, requests: list[Any]) -> list[Any]:
        given = [self._inputs(request) for request in requests]
        outputs = self._plain({name: np.concatenate([g[name] for g in given]) for name in given[0]})
        responses, row = [], 0
        for request, inputs in zip(requests, given, strict=True):
            end = row + len(next(iter(inputs.values())))
            responses.append(self._response(request, {name: array[row:end] for name, array in outputs.items()}))
            row = end
        return responses

    def _stream(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            for outputs in self._call.generator(self._inputs(request)):
                if sender.is_cancelled():
                    break
                sender.send(self._response(request, outputs))
        except Exception as error:
            sender.send(self._failure(error))
        sender.send(flags=self._api.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _inputs(self, request: Any) -> Arrays:
        return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}

    def _response(self, request: Any, outputs: Arrays) -> Any:
        wanted = request.requested_output_names()
        tensors = [self._api.Tensor(name, array) for name, array in outputs.items() if name in wanted]
        return self._api.InferenceResponse(output_tensors=tensors)

    def _failure(self, error: Exception) -> Any:
        text = f"model '{self._bound.model}' failed: {type(error).__name__}: {error}"
        return self._api.InferenceResponse(error=self._api.TritonError(text))


class AsyncBoundModel(BoundModel):
    """Runs coroutines and asynchronous generators, any number of requests side by side."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the function and set it up."""
        super().initialize(args)
        self._tasks: set[asyncio.Task[None]] = set()

    async def execute(self, requests: list[Any]) -> None:  # type: ignore[override]
        """Begin requests; each responds when its coroutine has something."""
        for request in requests:
            # The sender exists before this returns: it says that the response comes later.
            task = asyncio.get_running_loop().create_task(self._respond(request, request.get_response_sender()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond(self, request: Any, sender: Any) -> None:
        final = self._api.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        inputs = self._inputs(request)
        try:
            if not self._bound.kind.streams:
                sender.send(self._response(request, await self._call.coroutine(inputs)), flags=final)
                return
            async for outputs in self._call.async_generator(inputs):
                if sender.is_cancelled():
                    break
                sender.send(self._response(request, outputs))
        except Exception as error:
            sender.send(self._failure(error), flags=final)
            return
        sender.send(flags=final)
