"""``AsyncioModelClient`` and ``AsyncioDecoupledModelClient``: calls that are coroutines."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from types import TracebackType
from typing import Any, Self

from naiad.client.aio import AsyncClient
from naiad.client.retries import RetryPolicy
from naiad.pytriton.client.base import Array, BaseModelClient, Values, check_arguments, texts
from naiad.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientValueError,
)
from naiad.pytriton.client.waiting import async_wait_for_model
from naiad.pytriton.model_config.parser import ModelConfigParser
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig


class AsyncioModelClient(BaseModelClient):
    """A client of one model in one event loop; arguments as ``BaseModelClient``.

    Without ``lazy_init``, ``async with`` waits for the model.
    """

    async def __aenter__(self) -> Self:
        if not self._lazy_init:
            try:
                await self._ready_config()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._connections.close()

    async def wait_for_model(self, timeout_s: float) -> None:
        """Wait until the server and the model are ready.

        Raises:
            PyTritonClientTimeoutError: not in time.
        """
        await async_wait_for_model(self._client(), self._model_name, self._model_version, timeout_s)

    @property
    async def model_config(self) -> TritonModelConfig:
        """The configuration of the model, which is waited for; errors as ``ModelClient.model_config``."""
        if self._model_config is None:
            client = self._client()
            await async_wait_for_model(client, self._model_name, self._model_version, self._init_timeout_s)
            with self._errors():
                found = await client.config(self._model_name, self._model_version or "")
            self._model_config = ModelConfigParser.from_dict(found)
            self._model_ready = True
        return self._model_config

    async def infer_sample(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> dict[str, Array]:
        """Send one sample; arguments, result and errors as ``ModelClient.infer_sample``."""
        given = check_arguments(inputs, named_inputs, parameters, headers)
        return await self._infer(given, parameters, headers, True)

    async def infer_batch(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> dict[str, Array]:
        """Send arrays with a batch dimension; arguments, result and errors as ``ModelClient.infer_batch``."""
        given = check_arguments(inputs, named_inputs, parameters, headers)
        return await self._infer(given, parameters, headers, False)

    async def _infer(
        self,
        inputs: tuple[Any, ...] | dict[str, Any],
        parameters: Values | None,
        headers: Values | None,
        sample: bool,
    ) -> dict[str, Array]:
        config = await self._ready_config()
        if config.decoupled:
            raise PyTritonClientInferenceServerError(
                "Model config is decoupled. Use AsyncioDecoupledModelClient instead."
            )
        arrays = self._request(config, inputs, sample)
        with self._errors():
            result = await self._client().infer(
                self._model_name,
                arrays,
                version=self._model_version or "",
                request_id=self._next_request_id,
                parameters=parameters or {},
                headers=texts(headers),
                timeout_s=self._inference_timeout_s,
            )
        return self._outputs(config, result, sample)

    async def _ready_config(self) -> TritonModelConfig:
        begun_s = monotonic()
        config = await self.model_config
        if not self._model_ready:
            await self.wait_for_model(max(0.0, begun_s + self._init_timeout_s - monotonic()))
            self._model_ready = True
        return config

    def _handle_lazy_init(self) -> None:
        with self._errors():
            self._connections = AsyncClient(
                self._url,
                headers=self._headers,
                timeout_s=min(self._init_timeout_s, self._inference_timeout_s),
                retries=RetryPolicy(attempts=1),
            )

    def _client(self) -> AsyncClient:
        if self._closed:
            raise PyTritonClientClosedError("AsyncioModelClient is closed")
        return self._connections


class AsyncioDecoupledModelClient(AsyncioModelClient):
    """A client of a model with any number of responses for each request, over gRPC.

    ``infer_sample`` and ``infer_batch`` are asynchronous generators of outputs.
    """

    async def infer_sample(  # type: ignore[override]
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> AsyncGenerator[dict[str, Array], None]:
        """Send one sample and yield the outputs; arguments and errors as ``ModelClient.infer_sample``."""
        given = check_arguments(inputs, named_inputs, parameters, headers)
        async with aclosing(self._stream(given, parameters, headers, True)) as results:
            async for result in results:
                yield result

    async def infer_batch(  # type: ignore[override]
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> AsyncGenerator[dict[str, Array], None]:
        """Send arrays with a batch dimension; as ``infer_sample``, and errors as ``ModelClient.infer_batch``."""
        given = check_arguments(inputs, named_inputs, parameters, headers)
        async with aclosing(self._stream(given, parameters, headers, False)) as results:
            async for result in results:
                yield result

    async def _stream(
        self,
        inputs: tuple[Any, ...] | dict[str, Any],
        parameters: Values | None,
        headers: Values | None,
        sample: bool,
    ) -> AsyncGenerator[dict[str, Array], None]:
        if self._triton_url.scheme == "http":
            raise PyTritonClientValueError("AsyncioDecoupledModelClient is only supported for grpc protocol")
        config = await self._ready_config()
        if not config.decoupled:
            raise PyTritonClientInferenceServerError("Model config is coupled. Use AsyncioModelClient instead.")
        arrays = self._request(config, inputs, sample)
        responses = self._client().stream(
            self._model_name,
            arrays,
            version=self._model_version or "",
            request_id=self._next_request_id,
            parameters=parameters or {},
            headers=texts(headers),
            timeout_s=self._inference_timeout_s,
        )
        with self._errors():
            async with aclosing(responses):
                async for result in responses:
                    yield self._outputs(config, result, sample)
