"""``ModelClient`` and ``DecoupledModelClient``: calls that wait."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from time import monotonic
from types import TracebackType
from typing import Any, Self

from naiad.client.retries import RetryPolicy
from naiad.client.sync import Client
from naiad.pytriton.client.base import Array, BaseModelClient, Values, check_arguments, texts
from naiad.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientValueError,
)
from naiad.pytriton.client.waiting import wait_for_model, wait_for_server
from naiad.pytriton.model_config.parser import ModelConfigParser
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig


class ModelClient(BaseModelClient):
    """A client of one model. Any thread may use it; arguments as ``BaseModelClient``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        self._connections.close()

    # The model

    def wait_for_server(self, timeout_s: float) -> None:
        """Wait until the server is ready.

        Raises:
            PyTritonClientTimeoutError: not in time.
        """
        wait_for_server(self._client(), timeout_s)

    def wait_for_model(self, timeout_s: float) -> None:
        """Wait until the server and the model are ready; errors as ``wait_for_server``."""
        wait_for_model(self._client(), self._model_name, self._model_version, timeout_s)

    @property
    def model_config(self) -> TritonModelConfig:
        """The configuration of the model, which is waited for.

        Raises:
            PyTritonClientTimeoutError: the model is not ready in time.
            PyTritonClientClosedError: the client is closed.
        """
        if self._model_config is None:
            client = self._client()
            wait_for_model(client, self._model_name, self._model_version, self._init_timeout_s)
            with self._errors():
                found = client.config(self._model_name, self._model_version or "")
            self._model_config = ModelConfigParser.from_dict(found)
            self._model_ready = True
        return self._model_config

    @property
    def is_batching_supported(self) -> bool:
        """Whether the model batches; errors as ``model_config``."""
        return self.model_config.max_batch_size > 0

    def load_model(self, config: str | None = None, files: dict[str, bytes] | None = None) -> None:
        """Load the model, with a configuration (JSON) and files (``file:1/model.py``) in place of its own."""
        paths = {name.removeprefix("file:"): content for name, content in (files or {}).items()}
        with self._errors():
            self._client().load(self._model_name, config, paths)

    def unload_model(self) -> None:
        """Unload the model."""
        with self._errors():
            self._client().unload(self._model_name)

    # Inference

    def infer_sample(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Any:
        """Send one sample: arrays without a batch dimension, by position or by name.

        Args:
            parameters: of the request.
            headers: of HTTP, or metadata of gRPC.

        Returns:
            The outputs by name.

        Raises:
            PyTritonClientValueError: the arguments are wrong.
            PyTritonClientTimeoutError: the model is not ready, or did not respond, in time.
            PyTritonClientInferenceServerError: the server or the function failed; the text is theirs.
            PyTritonClientClosedError: the client is closed.
        """
        return self._infer(check_arguments(inputs, named_inputs, parameters, headers), parameters, headers, True)

    def infer_batch(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Any:
        """Send arrays with a batch dimension; arguments and errors as ``infer_sample``.

        Raises:
            PyTritonClientModelDoesntSupportBatchingError: the model does not batch.
        """
        return self._infer(check_arguments(inputs, named_inputs, parameters, headers), parameters, headers, False)

    def _infer(
        self,
        inputs: tuple[Any, ...] | dict[str, Any],
        parameters: Values | None,
        headers: Values | None,
        sample: bool,
    ) -> Any:
        config = self._ready_config()
        if config.decoupled:
            raise PyTritonClientInferenceServerError("Model config is decoupled. Use DecoupledModelClient instead.")
        arrays = self._request(config, inputs, sample)
        with self._errors():
            result = self._client().infer(
                self._model_name,
                arrays,
                version=self._model_version or "",
                request_id=self._next_request_id,
                parameters=parameters or {},
                headers=texts(headers),
                timeout_s=self._inference_timeout_s,
            )
        return self._outputs(config, result, sample)

    def _ready_config(self) -> TritonModelConfig:
        begun_s = monotonic()
        config = self.model_config
        if not self._model_ready:
            self.wait_for_model(max(0.0, begun_s + self._init_timeout_s - monotonic()))
            self._model_ready = True
        return config

    # Connections

    def _handle_lazy_init(self) -> None:
        with self._errors():
            self._connections = Client(
                self._url,
                headers=self._headers,
                timeout_s=min(self._init_timeout_s, self._inference_timeout_s),
                retries=RetryPolicy(attempts=1),
            )
        if not self._lazy_init:
            self._ready_config()

    def _client(self) -> Client:
        if self._closed:
            raise PyTritonClientClosedError("ModelClient is closed")
        return self._connections


class DecoupledModelClient(ModelClient):
    """A client of a model with any number of responses for each request, over gRPC.

    ``infer_sample`` and ``infer_batch`` return iterators of outputs; any number of them may be open.
    """

    def _handle_lazy_init(self) -> None:
        if self._triton_url.scheme == "http":
            raise PyTritonClientValueError("DecoupledModelClient is only supported for grpc protocol")
        super()._handle_lazy_init()

    def _infer(
        self,
        inputs: tuple[Any, ...] | dict[str, Any],
        parameters: Values | None,
        headers: Values | None,
        sample: bool,
    ) -> Iterator[dict[str, Array]]:
        config = self._ready_config()
        if not config.decoupled:
            raise PyTritonClientInferenceServerError("Model config is coupled. Use ModelClient instead.")
        arrays = self._request(config, inputs, sample)
        return self._stream(config, self._client(), arrays, parameters, headers, sample)

    def _stream(
        self,
        config: TritonModelConfig,
        client: Client,
        arrays: dict[str, Array],
        parameters: Values | None,
        headers: Values | None,
        sample: bool,
    ) -> Generator[dict[str, Array], None, None]:
        with self._errors():
            for result in client.stream(
                self._model_name,
                arrays,
                version=self._model_version or "",
                request_id=self._next_request_id,
                parameters=parameters or {},
                headers=texts(headers),
                timeout_s=self._inference_timeout_s,
            ):
                yield self._outputs(config, result, sample)
