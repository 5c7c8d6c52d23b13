"""``Client``: calls that wait, from any number of threads."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import finalize

from naiad.client import questions
from naiad.client.address import read_address
from naiad.client.connection import BlockingConnection, IdleConnections
from naiad.client.deadline import Deadline, deadline_in
from naiad.client.encode import InferOptions
from naiad.client.errors import ConnectionFailedError, ResponseError
from naiad.client.opening import open_protocol
from naiad.client.protocol import Parts, PlainRequest, ServerResponse
from naiad.client.region import PlacedTensors
from naiad.client.region_calls import open_pool, unregister_left
from naiad.client.region_pool import RegionPool, left_behind
from naiad.client.result import InferResult
from naiad.client.retries import RetryBudget, RetryPolicy
from naiad.errors import NaiadError
from naiad.tensor.dtypes import DataType

TIMEOUT_S: Final = 60.0
_NO_PARAMETERS: Final[Mapping[str, Any]] = {}
Result = TypeVar("Result")


class Client:
    """A client of one server over HTTP or gRPC. Any thread may use it; each call has a connection for itself meanwhile.

    Args:
        url: ``host:port`` for HTTP, which may begin with ``http://`` or ``https://``; ``grpc://host:port`` or ``grpcs://``.
        headers: of every request, such as ``{"Authorization": "Bearer ..."}``.
        timeout_s: how long a call may take in seconds, its retries included.
        retries: how requests are sent again.
        tls: how to encrypt, where the system's certificates do not do.
        shared_memory: whether large tensors lie in memory that the client shares with the server. None: where the
            server is at a loopback address and takes it. True: a server that does not take it is an error.

    Raises:
        InvalidArgumentError: the address or a header is none.
    """

    def __init__(
        self,
        url: str = "localhost:8000",
        *,
        headers: Mapping[str, str] = _NO_PARAMETERS,
        timeout_s: float = TIMEOUT_S,
        retries: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        shared_memory: bool | None = None,
    ) -> None:
        self._address = read_address(url, tls)
        self._protocol = open_protocol(self._address, headers)
        self._timeout_s = timeout_s
        self._budget = RetryBudget(retries or RetryPolicy())
        self._idle = IdleConnections()
        self._datatypes: dict[tuple[str, str], dict[str, DataType]] = {}
        self._regions = open_pool(self._address, shared_memory)
        if self._regions is not None:
            finalize(self, unregister_left, self._address, self._protocol, self._regions.names)

    def close(self) -> None:
        """Unregister all shared memory, and close the connections that carry no request."""
        if self._regions is not None:
            self._unregister(self._regions.close(), deadline_in(self._timeout_s))
        self._idle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Inference

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        version: str | int = "",
        outputs: Sequence[str] = (),
        request_id: str = "",
        parameters: Mapping[str, Any] = _NO_PARAMETERS,
        headers: Mapping[str, str] = _NO_PARAMETERS,
        timeout_s: float | None = None,
    ) -> InferResult:
        """Send an inference request and wait for its response.

        Args:
            model: its name.
            inputs: arrays, lists, strings or tensors of other libraries by name. Lists get the datatypes of the model,
                which are fetched once.
            version: of the model; "" for the one that the server chooses.
            outputs: the wanted outputs; empty for all.
            request_id: for the log of the server, and in the response.
            parameters: of the request, such as ``sequence_id``, ``priority`` or the model's own.
            headers: of this request, beside the client's.
            timeout_s: in place of the client's.

        Raises:
            ResponseError: the server or the model refused the request.
            ConnectionFailedError: the server could not be reached, or ended the connection.
            DeadlineExceededError: the time has passed.
            InvalidArgumentError: an input is no tensor of the protocol, or a header is none.
        """
        deadline = deadline_in(self._timeout_s if timeout_s is None else timeout_s)
        options = InferOptions(str(version), tuple(outputs), request_id, parameters, headers)
        datatypes = self._datatypes_of(model, options.version, deadline) if questions.has_lists(inputs) else {}
        repeatable = questions.is_repeatable(parameters)
        if self._regions is not None:
            once = partial(self._infer_once, self._regions, model, inputs, options, datatypes, deadline, repeatable)
            return self._attempts(once, deadline, repeatable=repeatable)
        request = self._protocol.infer(model, inputs, options, datatypes)
        return self._call(request, deadline, repeatable=repeatable).result()

    def stream(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        version: str | int = "",
        outputs: Sequence[str] = (),
        request_id: str = "",
        parameters: Mapping[str, Any] = _NO_PARAMETERS,
        headers: Mapping[str, str] = _NO_PARAMETERS,
        timeout_s: float | None = None,
    ) -> Iterator[InferResult]:
        """Send an inference request over gRPC and yield its responses, any number of them; arguments as ``infer``.

        A caller that stops to iterate cancels the request. It is not sent again.

        Args:
            timeout_s: how long each response may take, in place of the client's.

        Raises:
            InvalidArgumentError: the client speaks HTTP; or as ``infer``.
            NaiadError: as ``infer``.
        """
        from naiad.client.grpc_messages import stream_result

        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = deadline_in(timeout_s)
        options = InferOptions(str(version), tuple(outputs), request_id, parameters, headers)
        datatypes = self._datatypes_of(model, options.version, deadline) if questions.has_lists(inputs) else {}
        request = self._protocol.stream(model, inputs, options, datatypes)
        connection = BlockingConnection(self._address, self._protocol.exchange(), deadline)
        messages = connection.stream(request, timeout_s)
        try:
            for message in messages:
                yield stream_result(message)
        finally:
            # Ends the connection unless all has been read.
            messages.close()
            # Every stream has a new connection, so one is enough to keep.
            self._idle.keep(connection, most=1)

    def _datatypes_of(self, model: str, version: str, deadline: Deadline) -> dict[str, DataType]:
        found = self._datatypes.get((model, version))
        if found is None:
            question = questions.metadata(model, version)
            found = questions.input_datatypes(self._plain(question, deadline).read(question))
            self._datatypes[model, version] = found
        return found

    # Questions

    def live(self, *, headers: Mapping[str, str] = _NO_PARAMETERS) -> bool:
        """Whether the server runs."""
        return self._succeeds(questions.LIVE._replace(headers=headers))

    def ready(self, *, headers: Mapping[str, str] = _NO_PARAMETERS) -> bool:
        """Whether the server and its models can serve requests."""
        return self._succeeds(questions.READY._replace(headers=headers))

    def model_ready(self, model: str, version: str | int = "", *, headers: Mapping[str, str] = _NO_PARAMETERS) -> bool:
        """Whether a model can serve requests."""
        return self._succeeds(questions.model_ready(model, str(version))._replace(headers=headers))

    def server_metadata(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        return dict(self._json(questions.SERVER))

    def metadata(self, model: str, version: str | int = "") -> dict[str, Any]:
        """The inputs and outputs of a model."""
        return dict(self._json(questions.metadata(model, str(version))))

    def config(
        self, model: str, version: str | int = "", *, headers: Mapping[str, str] = _NO_PARAMETERS
    ) -> dict[str, Any]:
        """The configuration of a model."""
        return dict(self._json(questions.config(model, str(version))._replace(headers=headers)))

    def statistics(self, model: str = "", version: str | int = "") -> dict[str, Any]:
        """The counters of a model, or of all."""
        return dict(self._json(questions.statistics(model, str(version))))

    def index(self, ready_only: bool = False, *, headers: Mapping[str, str] = _NO_PARAMETERS) -> list[dict[str, str]]:
        """The models of the repositories, each with its state."""
        return list(self._json(questions.index(ready_only)._replace(headers=headers)))

    def load(self, model: str, config: str | None = None, files: Mapping[str, bytes] = _NO_PARAMETERS) -> None:
        """Load a model.

        Args:
            config: its configuration as JSON, in place of the repository's.
            files: its files by their paths in its folder, in place of the repository's; they need a ``config``.
        """
        self._json(questions.load(model, config, files))

    def unload(self, model: str, unload_dependents: bool = False) -> None:
        """Unload a model."""
        self._json(questions.unload(model, unload_dependents))

    # Routes, over HTTP

    def routes(self, model: str) -> dict[str, Any]:
        """The aliases, the split and the shadow of a model."""
        return dict(self._json(questions.routes(model)))

    def change_routes(self, model: str, **change: Any) -> dict[str, Any]:
        """Change ``aliases``, ``split`` or ``shadow`` of a model, all or none; returns the routes."""
        return dict(self._json(questions.change_routes(model, change)))

    def promote(self, model: str, version: str | int = "", alias: str = "") -> dict[str, Any]:
        """Give all requests that name no version to one version, the shadow's by default; returns the routes."""
        return dict(self._json(questions.promote(model, str(version), alias)))

    def rollback(self, model: str) -> dict[str, Any]:
        """Go back to the routes before the last change; returns them."""
        return dict(self._json(questions.rollback(model)))

    def _succeeds(self, question: PlainRequest) -> bool:
        try:
            return self._plain(question).agrees(question)
        except (ResponseError, ConnectionFailedError):
            return False

    def _json(self, question: PlainRequest) -> Any:
        return self._plain(question).read(question)

    def _plain(self, question: PlainRequest, deadline: Deadline | None = None) -> ServerResponse:
        request = self._protocol.plain(question)
        limit = deadline_in(self._timeout_s) if deadline is None else deadline
        return self._call(request, limit, repeatable=question.method == "GET")

    # Calls

    def _call(self, request: Parts, deadline: Deadline, *, repeatable: bool) -> ServerResponse:
        """Send a request, again where that may help."""

        def once() -> ServerResponse:
            return self._exchange(request, deadline, repeatable).checked()

        return self._attempts(once, deadline, repeatable=repeatable)

    def _attempts(self, once: Callable[[], Result], deadline: Deadline, *, repeatable: bool) -> Result:
        self._budget.requested()
        attempt = 1
        while True:
            try:
                return once()
            except NaiadError as error:
                if not self._budget.take(attempt, error, repeatable=repeatable):
                    raise
                pause_s = self._budget.policy.pause_s(attempt, error)
                if pause_s >= deadline.left_s:
                    raise
            attempt += 1
            time.sleep(pause_s)

    def _exchange(self, request: Parts, deadline: Deadline, repeatable: bool) -> ServerResponse:
        while True:
            connection = self._idle.take()
            if connection is None:
                connection = BlockingConnection(self._address, self._protocol.exchange(), deadline)
            was_used = connection.is_used
            try:
                response = connection.exchange(request, deadline)
            except ConnectionFailedError as error:
                # The server has closed it since its last request: that is no failure, and all idle ones may be like it.
                if not was_used or (error.was_sent and not repeatable):
                    raise
                continue
            self._idle.keep(connection)
            return response

    # Shared memory

    def _infer_once(
        self,
        regions: RegionPool,
        model: str,
        inputs: Mapping[str, Any],
        options: InferOptions,
        datatypes: Mapping[str, DataType],
        deadline: Deadline,
        repeatable: bool,
    ) -> InferResult:
        """Send a request whose large tensors lie in a region; without one where there is none."""
        placed = regions.placed(model, inputs, options, repeatable=repeatable)
        if placed is not None and self._register(regions, placed, deadline):
            try:
                with placed:
                    request = self._protocol.infer(model, inputs, options, datatypes, placed)
                    response = self._exchange(request, deadline, repeatable=False)
                    result = response.checked().result(placed)
            except NaiadError as error:
                if not regions.may_send(error, model, options, repeatable=repeatable):
                    raise
            else:
                regions.note(model, inputs, options, result)
                return result
        request = self._protocol.infer(model, inputs, options, datatypes)
        result = self._exchange(request, deadline, repeatable).checked().result()
        regions.note(model, inputs, options, result)
        return result

    def _register(self, regions: RegionPool, placed: PlacedTensors, deadline: Deadline) -> bool:
        """Let the server know a region; whether it does."""
        region = placed.region
        try:
            self._unregister(regions.take_discarded(), deadline)
            if region.is_registered:
                return True
            question = questions.register_region(region.name, region.key, region.byte_size)
            self._exchange(self._protocol.plain(question), deadline, repeatable=True).checked()
        except NaiadError as error:
            regions.refused(placed, error)
            return False
        except BaseException:
            regions.discard(region)
            raise
        finally:
            region.unlink()
        if regions.registered(region):
            self._unregister_left_behind(deadline)
        return True

    def _unregister_left_behind(self, deadline: Deadline) -> None:
        request = self._protocol.plain(questions.REGIONS)
        with suppress(NaiadError):
            response = self._exchange(request, deadline, repeatable=True).checked()
            names = questions.region_names(response.read(questions.REGIONS))
            self._unregister(left_behind(names), deadline)

    def _unregister(self, names: Iterable[str], deadline: Deadline) -> None:
        # A server that is gone has no regions either.
        with suppress(NaiadError):
            for name in names:
                request = self._protocol.plain(questions.unregister_region(name))
                self._exchange(request, deadline, repeatable=True).checked()
