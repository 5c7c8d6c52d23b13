"""What all clients have in common: their arguments, requests as the server gets them, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Self

import numpy as np

from naiad.client.errors import ConnectionFailedError, DeadlineExceededError, ResponseError
from naiad.client.result import InferResult
from naiad.errors import NaiadError
from naiad.pytriton.client.auth import create_auth_headers, extract_access_token_from_headers
from naiad.pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from naiad.pytriton.client.url import TritonUrl
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig

Array = np.ndarray[Any, Any]
Values = Mapping[str, str | int | bool]

DEFAULT_INFERENCE_TIMEOUT_S: Final = 60.0
DEFAULT_INIT_TIMEOUT_S: Final = 300.0


class BaseModelClient:
    """The arguments of a client of one model.

    Args:
        url: ``localhost``, ``http://host:8000`` or ``grpc://host:8001``.
        model_name: of the model.
        model_version: None for the newest one.
        lazy_init: wait for the model with the first request, rather than at once.
        init_timeout_s: how long the server and the model may take to be ready; 300 s.
        inference_timeout_s: how long a request may take; 60 s.
        model_config: of the model; None to fetch it from the server.
        ensure_model_is_ready: wait for the model before the first request, also with ``model_config``.
        access_token: of protected endpoints.

    Raises:
        PyTritonClientInvalidUrlError: the address is none.
        PyTritonClientTimeoutError: without ``lazy_init``: the model is not ready in time.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        lazy_init: bool = True,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        model_config: TritonModelConfig | None = None,
        ensure_model_is_ready: bool = True,
        access_token: str | None = None,
    ) -> None:
        self._triton_url = TritonUrl.from_url(url)
        self._url = self._triton_url.with_scheme
        self._model_name = model_name
        self._model_version = model_version
        self._init_timeout_s = DEFAULT_INIT_TIMEOUT_S if init_timeout_s is None else init_timeout_s
        self._inference_timeout_s = DEFAULT_INFERENCE_TIMEOUT_S if inference_timeout_s is None else inference_timeout_s
        self._model_config = model_config
        self._model_ready = model_config is not None and not ensure_model_is_ready
        self._headers = create_auth_headers(access_token, self._triton_url.scheme) if access_token else {}
        self._lazy_init = lazy_init
        self._request_ids = count()
        self._closed = False
        self._handle_lazy_init()

    @classmethod
    def from_existing_client(cls, existing_client: BaseModelClient) -> Self:
        """A client of the same model, which need not be asked for again."""
        return cls(
            existing_client._url,
            existing_client._model_name,
            existing_client._model_version,
            init_timeout_s=existing_client._init_timeout_s,
            inference_timeout_s=existing_client._inference_timeout_s,
            model_config=existing_client._model_config,
            ensure_model_is_ready=existing_client._model_config is None,
            access_token=extract_access_token_from_headers(existing_client._headers),
        )

    def _handle_lazy_init(self) -> None:
        """Wait for the model unless that is for later."""

    # Requests

    def _request(
        self, config: TritonModelConfig, inputs: tuple[Any, ...] | dict[str, Any], sample: bool
    ) -> dict[str, Array]:
        """The inputs by name; of a sample with a batch dimension, if the model batches."""
        if not sample and not _batches(config):
            raise PyTritonClientModelDoesntSupportBatchingError(
                f"Model {config.model_name} doesn't support batching - use infer_sample method instead"
            )
        named = inputs if isinstance(inputs, dict) else _by_position(config, inputs)
        for name, array in named.items():
            _check_input(name, array)
        return {name: array[np.newaxis, ...] for name, array in named.items()} if sample and _batches(config) else named

    def _outputs(self, config: TritonModelConfig, result: InferResult, sample: bool) -> dict[str, Array]:
        return {name: array[0] for name, array in result.items()} if sample and _batches(config) else dict(result)

    @property
    def _next_request_id(self) -> str:
        return str(next(self._request_ids))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the server and of the connection into those of these clients."""
        try:
            yield
        except (DeadlineExceededError, ConnectionFailedError) as error:
            raise PyTritonClientTimeoutError(
                f"Timeout occurred during inference request. Timeout: {self._inference_timeout_s} s Message: {error}"
            ) from error
        except ResponseError as error:
            raise PyTritonClientInferenceServerError(
                f"Error occurred during inference request. Message: {error}"
            ) from error
        except NaiadError as error:
            raise PyTritonClientValueError(str(error)) from error


def check_arguments(
    inputs: tuple[Any, ...], named_inputs: dict[str, Any], parameters: Values | None, headers: Values | None
) -> tuple[Any, ...] | dict[str, Any]:
    """The inputs of a call, by position or by name.

    Raises:
        PyTritonClientValueError: there are none, or some of both, or a parameter or header is wrong.
    """
    if not inputs and not named_inputs:
        raise PyTritonClientValueError("Provide input data")
    if inputs and named_inputs:
        raise PyTritonClientValueError("Use either positional either keyword method arguments convention")
    for given in (parameters, headers):
        _check_values(given)
    return inputs or named_inputs


def texts(headers: Values | None) -> dict[str, str]:
    """Headers of a call with their values as they are sent."""
    return {name: str(value) for name, value in (headers or {}).items()}


def _check_values(given: Any) -> None:
    if given is None:
        return
    if not isinstance(given, dict):
        raise PyTritonClientValueError("Parameters and headers must be a dictionary")
    if not all(isinstance(key, str) for key in given):
        raise PyTritonClientValueError("Parameter/header key must be a string")
    if not all(isinstance(value, str | int | bool) for value in given.values()):
        raise PyTritonClientValueError("Parameter/header value must be a string, integer or boolean")


def _batches(config: TritonModelConfig) -> bool:
    return config.batching and config.max_batch_size > 0


def _by_position(config: TritonModelConfig, inputs: tuple[Any, ...]) -> dict[str, Any]:
    names = [spec.name for spec in config.inputs or ()]
    if len(inputs) > len(names):
        raise PyTritonClientValueError(
            f"found {len(inputs)} inputs, and model '{config.model_name}' has {len(names)}: {', '.join(names)}"
        )
    return dict(zip(names, inputs, strict=False))


def _check_input(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise PyTritonClientValueError(f"Input {name} is not a numpy array. Got {type(array)} instead.")
    if array.dtype.type is np.str_:
        raise RuntimeError(
            "Unicode inputs are not supported. "
            f"Encode numpy array for {name!r} input (ex. with np.char.encode(array, 'utf-8'))."
        )
    if array.dtype.hasobject and array.size and not isinstance(array.reshape(-1)[0], bytes):
        raise RuntimeError(
            f"Numpy array for {name!r} input with dtype=object should contain encoded strings (e.g. into utf-8). "
            f"Element type: {type(array.reshape(-1)[0])}"
        )
