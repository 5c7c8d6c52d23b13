"""Server reflection: tools learn the services from it, without the ``.proto`` files.

The two versions of the service, v1 and v1alpha, have the same messages in different packages. Source of the rules: the
comments in gRPC's ``reflection.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from naiad.config.messages import message_class, pool
from naiad.errors import InvalidArgumentError, NaiadError, NotFoundError
from naiad.frontends.grpc.rpc.call import Body, Methods, Receiver, RpcCall, Streaming, send_message
from naiad.frontends.grpc.v2.replies import read_request
from naiad.wire.grpc.paths import REFLECTION, path
from naiad.wire.grpc.status import STOPPING, Status

METHOD: Final = "ServerReflectionInfo"


def reflection_methods(services: Sequence[str]) -> Methods:
    """Both versions of the reflection service by path. ``services``: full names of the other services."""
    listed = sorted((*services, *REFLECTION))
    return {path(service, METHOD): _method(service.rpartition(".")[0], listed) for service in REFLECTION}


def _method(package: str, services: Sequence[str]) -> Streaming:
    responder = ReflectionResponder(package, services)

    def open_call(call: RpcCall) -> Receiver:
        return _ReflectionCall(call, package, responder)

    return Streaming(open_call)


class _ReflectionCall:
    """One call: every question gets one response, in order."""

    __slots__ = ("_call", "_package", "_responder")

    def __init__(self, call: RpcCall, package: str, responder: ReflectionResponder) -> None:
        self._call = call
        self._package = package
        self._responder = responder

    def receive(self, message: Body) -> None:
        """Answer a question."""
        request = read_request(self._call, message_class("ServerReflectionRequest", self._package), message)
        if request is None:
            return
        send_message(self._call, self._response(request))
        if self._call.congested:
            # Answers are far larger than questions: no further question is read until these are taken.
            self._call.on_drained = self._call.resume
            self._call.pause()

    def end(self) -> None:
        """The caller has no more questions."""
        self._call.finish()

    def stop(self) -> None:
        """The server stops."""
        self._call.finish(Status.UNAVAILABLE, STOPPING)

    def cancel(self) -> None:
        """The caller gave up; nothing is in flight."""

    def _response(self, request: Any) -> Any:
        response = message_class("ServerReflectionResponse", self._package)(
            valid_host=request.host, original_request=request
        )
        try:
            self._responder(request, response)
        except NaiadError as error:
            response.error_response.error_code = error.grpc_code
            response.error_response.error_message = str(error)
        return response


class ReflectionResponder:
    """Answers questions in one version of the service; called with the question and the response to fill.

    Raises:
        NotFoundError: there is no such file, symbol or extension.
        InvalidArgumentError: the question is of an unknown kind.
    """

    __slots__ = ("_fill", "_services")

    def __init__(self, package: str, services: Sequence[str]) -> None:
        entry = message_class("ServiceResponse", package)
        self._services = [entry(name=name) for name in services]
        self._fill: dict[str, Callable[[Any, Any], None]] = {
            "list_services": self._list_services,
            "file_by_filename": self._file_by_name,
            "file_containing_symbol": self._file_of_symbol,
            "file_containing_extension": self._file_of_extension,
            "all_extension_numbers_of_type": self._extension_numbers,
        }

    def __call__(self, request: Any, response: Any) -> None:
        kind = request.WhichOneof("message_request")
        if kind is None:
            raise InvalidArgumentError(
                f"the kind of the reflection request is unknown; one of {', '.join(self._fill)} must be set"
            )
        self._fill[kind](getattr(request, kind), response)

    def _list_services(self, ignored: str, response: Any) -> None:
        response.list_services_response.service.extend(self._services)

    def _file_by_name(self, name: str, response: Any) -> None:
        try:
            file = pool().FindFileByName(name)
        except KeyError:
            raise NotFoundError(f"File not found: {name}") from None
        _add_files(file, response)

    def _file_of_symbol(self, symbol: str, response: Any) -> None:
        _add_files(_find_symbol(symbol), response)

    def _file_of_extension(self, extension: Any, response: Any) -> None:
        _find_message(extension.containing_type)
        raise NotFoundError(
            f"Extension not found: {extension.containing_type} has no extension {extension.extension_number}"
        )

    def _extension_numbers(self, name: str, response: Any) -> None:
        _find_message(name)
        # The protocol's messages are proto3, which has no extensions.
        response.all_extension_numbers_response.base_type_name = name


def _find_symbol(symbol: str) -> Any:
    """The file that declares a service, a method, a message, an enumeration or a field."""
    try:
        return pool().FindFileContainingSymbol(symbol)
    except KeyError:
        pass
    try:
        # The pool does not count methods among the symbols.
        return pool().FindMethodByName(symbol).containing_service.file
    except KeyError:
        raise NotFoundError(f"Symbol not found: {symbol}") from None


def _find_message(name: str) -> Any:
    try:
        return pool().FindMessageTypeByName(name)
    except KeyError:
        raise NotFoundError(f"Type not found: {name}") from None


def _add_files(file: Any, response: Any) -> None:
    """Add a file and all its dependencies, so that a tool need not ask again."""
    found: dict[str, Any] = {}
    _collect((file,), found)
    response.file_descriptor_response.file_descriptor_proto.extend(f.serialized_pb for f in found.values())


def _collect(files: Iterable[Any], found: dict[str, Any]) -> None:
    for file in files:
        if file.name not in found:
            found[file.name] = file
            _collect(file.dependencies, found)
