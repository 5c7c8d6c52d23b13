"""``AsyncClient``: calls that are coroutines, any number of them side by side."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import finalize

from naiad.client import questions
from naiad.client.address import read_address
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
from naiad.client.stream import AsyncConnection
from naiad.client.sync import TIMEOUT_S
from naiad.errors import InvalidArgumentError, NaiadError
from naiad.tensor.dtypes import DataType

_NO_PARAMETERS: Final[Mapping[str, Any]] = {}
Result = TypeVar("Result")


class AsyncClient:
    """A client of one server over HTTP or gRPC, in one event loop at a time. Arguments as ``Client``."""

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
        self._idle: list[AsyncConnection] = []
        # Where its connections are.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._datatypes: dict[tuple[str, str], dict[str, DataType]] = {}
        self._regions = open_pool(self._address, shared_memory)
        if self._regions is not None:
            finalize(self, unregister_left, self._address, self._protocol, self._regions.names)

    async def close(self) -> None:
        """Unregister all shared memory, and close the connections that carry no request."""
        if self._regions is not None:
            await self._unregister(self._regions.close(), deadline_in(self._timeout_s))
        self._enter_loop()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        # The loop closes sockets in its next turn.
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Inference

    async def infer(
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
        """Send an inference request and wait for its response; arguments and errors as ``Client.infer``."""
        deadline = deadline_in(self._timeout_s if timeout_s is None else timeout_s)
        options = InferOptions(str(version), tuple(outputs), request_id, parameters, headers)
        datatypes = await self._datatypes_of(model, options.version, deadline) if questions.has_lists(inputs) else {}
        repeatable = questions.is_repeatable(parameters)
        if self._regions is not None:
            once = partial(self._infer_once, self._regions, model, inputs, options, datatypes, deadline, repeatable)
            return await self._attempts(once, deadline, repeatable)
        request = self._protocol.infer(model, inputs, options, datatypes)
        return (await self._call(request, deadline, repeatable=repeatable)).result()

    async def stream(
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
    ) -> AsyncGenerator[InferResult, None]:
        """Send an inference request over gRPC and yield its responses; arguments and errors as ``Client.stream``."""
        from naiad.client.grpc_messages import stream_result

        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = deadline_in(timeout_s)
        options = InferOptions(str(version), tuple(outputs), request_id, parameters, headers)
        datatypes = await self._datatypes_of(model, options.version, deadline) if questions.has_lists(inputs) else {}
        request = self._protocol.stream(model, inputs, options, datatypes)
        connection = await self._connect(deadline)
        try:
            async with aclosing(connection.stream(request)) as messages:
                while True:
                    async with asyncio.timeout(timeout_s):
                        message = await anext(messages, None)
                    if message is None:
                        break
                    yield stream_result(message)
        except TimeoutError:
            raise self._address.too_late(timeout_s) from None
        finally:
            # Also of a caller who stops to iterate. Every stream has a new connection, so one is enough to keep.
            if connection.is_open and not self._idle:
                self._idle.append(connection)
            else:
                connection.close()

    async def _datatypes_of(self, model: str, version: str, deadline: Deadline) -> dict[str, DataType]:
        found = self._datatypes.get((model, version))
        if found is None:
            question = questions.metadata(model, version)
            found = questions.input_datatypes((await self._plain(question, deadline)).read(question))
            self._datatypes[model, version] = found
        return found

    # Questions

    async def live(self, *, headers: Mapping[str, str] = _NO_PARAMETERS) -> bool:
        """Whether the server runs."""
        return await self._succeeds(questions.LIVE._replace(headers=headers))

    async def ready(self, *, headers: Mapping[str, str] = _NO_PARAMETERS) -> bool:
        """Whether the server and its models can serve requests."""
        return await self._succeeds(questions.READY._replace(headers=headers))

    async def model_ready(
        self, model: str, version: str | int = "", *, headers: Mapping[str, str] = _NO_PARAMETERS
    ) -> bool:
        """Whether a model can serve requests."""
        return await self._succeeds(questions.model_ready(model, str(version))._replace(headers=headers))

    async def server_metadata(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        return dict(await self._json(questions.SERVER))

    async def metadata(self, model: str, version: str | int = "") -> dict[str, Any]:
        """The inputs and outputs of a model."""
        return dict(await self._json(questions.metadata(model, str(version))))

    async def config(
        self, model: str, version: str | int = "", *, headers: Mapping[str, str] = _NO_PARAMETERS
    ) -> dict[str, Any]:
        """The configuration of a model."""
        return dict(await self._json(questions.config(model, str(version))._replace(headers=headers)))

    async def statistics(self, model: str = "", version: str | int = "") -> dict[str, Any]:
        """The counters of a model, or of all."""
        return dict(await self._json(questions.statistics(model, str(version))))

    async def index(
        self, ready_only: bool = False, *, headers: Mapping[str, str] = _NO_PARAMETERS
    ) -> list[dict[str, str]]:
        """The models of the repositories, each with its state."""
        return list(await self._json(questions.index(ready_only)._replace(headers=headers)))

    async def load(self, model: str, config: str | None = None, files: Mapping[str, bytes] = _NO_PARAMETERS) -> None:
        """Load a model; arguments as ``Client.load``."""
        await self._json(questions.load(model, config, files))

    async def unload(self, model: str, unload_dependents: bool = False) -> None:
        """Unload a model."""
        await self._json(questions.unload(model, unload_dependents))

    # Routes, over HTTP

    async def routes(self, model: str) -> dict[str, Any]:
        """The aliases, the split and the shadow of a model."""
        return dict(await self._json(questions.routes(model)))

    async def change_routes(self, model: str, **change: Any) -> dict[str, Any]:
        """Change ``aliases``, ``split`` or ``shadow`` of a model, all or none; returns the routes."""
        return dict(await self._json(questions.change_routes(model, change)))

    async def promote(self, model: str, version: str | int = "", alias: str = "") -> dict[str, Any]:
        """Give all requests that name no version to one version, the shadow's by default; returns the routes."""
        return dict(await self._json(questions.promote(model, str(version), alias)))

    async def rollback(self, model: str) -> dict[str, Any]:
        """Go back to the routes before the last change; returns them."""
        return dict(await self._json(questions.rollback(model)))

    async def _succeeds(self, question: PlainRequest) -> bool:
        try:
            return (await self._plain(question)).agrees(question)
        except (ResponseError, ConnectionFailedError):
            return False

    async def _json(self, question: PlainRequest) -> Any:
        return (await self._plain(question)).read(question)

    async def _plain(self, question: PlainRequest, deadline: Deadline | None = None) -> ServerResponse:
        request = self._protocol.plain(question)
        limit = deadline_in(self._timeout_s) if deadline is None else deadline
        return await self._call(request, limit, repeatable=question.method == "GET")

    # Calls

    async def _call(self, request: Parts, deadline: Deadline, *, repeatable: bool) -> ServerResponse:
        async def once() -> ServerResponse:
            return (await self._exchange(request, deadline, repeatable)).checked()

        return await self._attempts(once, deadline, repeatable)

    async def _attempts(self, once: Callable[[], Awaitable[Result]], deadline: Deadline, repeatable: bool) -> Result:
        """Send a request, again where that may help."""
        self._budget.requested()
        attempt = 1
        while True:
            try:
                return await once()
            except NaiadError as error:
                if not self._budget.take(attempt, error, repeatable=repeatable):
                    raise
                pause_s = self._budget.policy.pause_s(attempt, error)
                if pause_s >= deadline.left_s:
                    raise
            attempt += 1
            await asyncio.sleep(pause_s)

    async def _exchange(self, request: Parts, deadline: Deadline, repeatable: bool) -> ServerResponse:
        while True:
            connection = self._take() or await self._connect(deadline)
            was_used = connection.is_used
            try:
                response = await connection.exchange(request, deadline)
            except ConnectionFailedError as error:
                # The server has closed it since its last request: that is no failure, and all idle ones may be like it.
                if not was_used or (error.was_sent and not repeatable):
                    raise
                continue
            if connection.is_open:
                self._idle.append(connection)
            return response

    # Shared memory

    async def _infer_once(
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
        if placed is not None and await self._register(regions, placed, deadline):
            try:
                with placed:
                    request = self._protocol.infer(model, inputs, options, datatypes, placed)
                    response = await self._exchange(request, deadline, repeatable=False)
                    result = response.checked().result(placed)
            except NaiadError as error:
                if not regions.may_send(error, model, options, repeatable=repeatable):
                    raise
            else:
                regions.note(model, inputs, options, result)
                return result
        request = self._protocol.infer(model, inputs, options, datatypes)
        result = (await self._exchange(request, deadline, repeatable)).checked().result()
        regions.note(model, inputs, options, result)
        return result

    async def _register(self, regions: RegionPool, placed: PlacedTensors, deadline: Deadline) -> bool:
        """Let the server know a region; whether it does."""
        region = placed.region
        try:
            await self._unregister(regions.take_discarded(), deadline)
            if region.is_registered:
                return True
            question = questions.register_region(region.name, region.key, region.byte_size)
            request = self._protocol.plain(question)
            (await self._exchange(request, deadline, repeatable=True)).checked()
        except NaiadError as error:
            regions.refused(placed, error)
            return False
        except BaseException:
            regions.discard(region)
            raise
        finally:
            region.unlink()
        if regions.registered(region):
            await self._unregister_left_behind(deadline)
        return True

    async def _unregister_left_behind(self, deadline: Deadline) -> None:
        request = self._protocol.plain(questions.REGIONS)
        with suppress(NaiadError):
            response = (await self._exchange(request, deadline, repeatable=True)).checked()
            names = left_behind(questions.region_names(response.read(questions.REGIONS)))
            await self._unregister(names, deadline)

    async def _unregister(self, names: Iterable[str], deadline: Deadline) -> None:
        # A server that is gone has no regions either.
        with suppress(NaiadError):
            for name in names:
                request = self._protocol.plain(questions.unregister_region(name))
                (await self._exchange(request, deadline, repeatable=True)).checked()

    # Connections

    def _enter_loop(self) -> None:
        """Use the running loop, and forget the connections of one that has ended.

        Raises:
            InvalidArgumentError: the client is used in another loop, which runs.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise InvalidArgumentError("this AsyncClient is used in another event loop: make one for each loop")
        self._idle.clear()
        self._loop = loop

    def _take(self) -> AsyncConnection | None:
        self._enter_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self, deadline: Deadline) -> AsyncConnection:
        try:
            async with asyncio.timeout(deadline.left_s):
                return await self._open()
        except TimeoutError:
            raise self._address.too_late(deadline.timeout_s) from None

    async def _open(self) -> AsyncConnection:
        self._enter_loop()
        address = self._address
        name = address.host if address.tls is not None else None
        try:
            _, made = await asyncio.get_running_loop().create_connection(
                lambda: AsyncConnection(address, self._protocol.exchange()),
                address.host,
                address.port,
                ssl=address.tls,
                server_hostname=name,
            )
        except OSError as error:
            raise address.unreachable(error, was_sent=False) from None
        return made
