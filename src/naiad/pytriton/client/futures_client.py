"""``FuturesModelClient``: calls that return futures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

from naiad.pytriton.client.base import DEFAULT_INIT_TIMEOUT_S, Array, Values
from naiad.pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientQueueFullError
from naiad.pytriton.client.model_client import ModelClient
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig

_MANY: Final = 1024


class FuturesModelClient:
    """A client of one model whose calls return ``concurrent.futures.Future`` at once.

    Args:
        url, model_name, model_version, init_timeout_s, inference_timeout_s: as ``ModelClient``.
        max_workers: how many requests run side by side; None for 1,024.
        max_queue_size: how many wait besides; None for any number.
        non_blocking: refuse a request when the queue is full, rather than wait for room.
        access_token: of protected endpoints.

    Raises:
        ValueError: ``max_workers`` or ``max_queue_size`` is less than 1.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        max_workers: int | None = 128,
        max_queue_size: int | None = 128,
        non_blocking: bool = False,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        access_token: str | None = None,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if max_queue_size is not None and max_queue_size <= 0:
            raise ValueError("max_queue_size must be greater than 0")
        self._arguments = (url, model_name, model_version)
        self._init_timeout_s = DEFAULT_INIT_TIMEOUT_S if init_timeout_s is None else init_timeout_s
        self._inference_timeout_s = inference_timeout_s
        self._access_token = access_token
        self._non_blocking = non_blocking
        self._pool = ThreadPoolExecutor(max_workers or _MANY, thread_name_prefix=f"naiad-{model_name}")
        self._room = None if max_queue_size is None else threading.BoundedSemaphore(max_queue_size)
        self._lock = threading.Lock()
        self._client: ModelClient | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, wait: bool = True) -> None:
        """Take no more requests, and end.

        Args:
            wait: until all requests are complete.
        """
        self._closed = True
        self._pool.shutdown(wait=wait)
        if wait and self._client is not None:
            self._client.close()

    def wait_for_model(self, timeout_s: float) -> Future[None]:
        """A future that is done when the model is ready.

        Raises:
            PyTritonClientClosedError: the client is closed.
            PyTritonClientQueueFullError: there is no room for the call.
        """
        return self._submit(lambda client: client.wait_for_model(timeout_s), waits=False)

    def model_config(self) -> Future[TritonModelConfig]:
        """The configuration of the model; errors as ``wait_for_model``."""
        return self._submit(lambda client: client.model_config)

    def infer_sample(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Future[dict[str, Array]]:
        """Send one sample; the future has the result and the errors of ``ModelClient.infer_sample``.

        Raises:
            PyTritonClientClosedError, PyTritonClientQueueFullError: as ``wait_for_model``.
        """
        return self._submit(
            lambda client: client.infer_sample(*inputs, parameters=parameters, headers=headers, **named_inputs)
        )

    def infer_batch(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Future[dict[str, Array]]:
        """Send arrays with a batch dimension; as ``infer_sample``."""
        return self._submit(
            lambda client: client.infer_batch(*inputs, parameters=parameters, headers=headers, **named_inputs)
        )

    def _submit(self, call: Callable[[ModelClient], Any], waits: bool = True) -> Future[Any]:
        if self._closed:
            raise PyTritonClientClosedError("FutureModelClient is already closed")
        limit_s = 0.0 if self._non_blocking else self._inference_timeout_s
        if self._room is not None and not self._room.acquire(timeout=limit_s):
            raise PyTritonClientQueueFullError("Queue is full")
        try:
            return self._pool.submit(self._run, call, waits)
        except RuntimeError:
            raise PyTritonClientClosedError("FutureModelClient is already closed") from None

    def _run(self, call: Callable[[ModelClient], Any], waits: bool) -> Any:
        # No longer in the queue.
        if self._room is not None:
            self._room.release()
        return call(self._shared(waits))

    def _shared(self, waits: bool) -> ModelClient:
        """The one client of all threads."""
        with self._lock:
            if self._client is None:
                self._client = ModelClient(
                    *self._arguments,
                    lazy_init=not waits,
                    init_timeout_s=self._init_timeout_s,
                    inference_timeout_s=self._inference_timeout_s,
                    access_token=self._access_token,
                )
            return self._client
