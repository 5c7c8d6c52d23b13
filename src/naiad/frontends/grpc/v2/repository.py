"""``RepositoryIndex``, ``RepositoryModelLoad`` and ``RepositoryModelUnload``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.errors import InvalidArgumentError, NaiadError, UnsupportedError
from naiad.frontends.grpc.rpc.call import Body, RpcCall, Unary, fail, reply_message
from naiad.frontends.grpc.v2.replies import check_size, read_request
from naiad.frontends.grpc.v2.sliced_reply import reply_in_slices
from naiad.lifecycle.state.model_requests import Done
from naiad.repository.local.overrides import FILE, Content, Overrides

NAMED: Final = "'repository_name' specification is not supported"
_Start = Callable[[Any, Done], None]
_Reply = Callable[[RpcCall, Any], None]


class Repository:
    """The methods of ``inference.GRPCInferenceService`` about the repository, by their names in the protocol."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def methods(self) -> dict[str, Unary]:
        """All of them."""
        return {
            "RepositoryIndex": _method("RepositoryIndex", self._index, self._send_index),
            "RepositoryModelLoad": _method("RepositoryModelLoad", self._load, may_be_large=True),
            "RepositoryModelUnload": _method("RepositoryModelUnload", self._unload),
        }

    def _index(self, request: Any, done: Done) -> None:
        # Ready models are known; the others need a look at the repositories.
        if request.ready:
            done(None)
        else:
            self._engine.refresh_index(done)

    def _send_index(self, call: RpcCall, request: Any) -> None:
        response = message_class("RepositoryIndexResponse")()

        def add(rows: list[dict[str, str]]) -> None:
            for row in rows:
                # The protocol's message has no such field, and protobuf would refuse it.
                row.pop("namespace", None)
                response.models.add(**row)

        rows = self._engine.index_by_model(request.ready)
        reply_in_slices(self._engine, call, response, rows, add)

    def _load(self, request: Any, done: Done) -> None:
        config: str | None = None
        files: dict[str, Content] = {}
        for name, value in request.parameters.items():
            if name == "config":
                config = _value(name, value, "string_param")
            elif name.startswith(FILE):
                files[name] = _value(name, value, "bytes_param")
            else:
                raise InvalidArgumentError(f"unrecognized load parameter '{name}'.")
        self._engine.load(request.model_name, Overrides(config, files), done)

    def _unload(self, request: Any, done: Done) -> None:
        # Other parameters are ignored, as over HTTP.
        dependents = False
        if "unload_dependents" in request.parameters:
            given = request.parameters["unload_dependents"]
            if given.WhichOneof("parameter_choice") != "bool_param":
                raise InvalidArgumentError("invalid value type for 'unload_dependents' parameter, expected bool_param.")
            dependents = given.bool_param
        self._engine.unload(request.model_name, dependents, done)


def _value(name: str, parameter: Any, wanted: str) -> Any:
    """The value of a parameter of a load, which must have the type ``wanted``."""
    if parameter.WhichOneof("parameter_choice") != wanted:
        raise InvalidArgumentError(f"invalid value type for load parameter '{name}', expected {wanted}.")
    return getattr(parameter, wanted)


def _method(name: str, start: _Start, reply: _Reply | None = None, may_be_large: bool = False) -> Unary:
    """A method that ``start`` begins. At its end ``reply`` responds to the request, or the empty response is sent.

    ``may_be_large``: its requests contain files.
    """
    message_type = message_class(f"{name}Request")
    empty = message_class(f"{name}Response")()

    def finish(call: RpcCall, message: Any, error: NaiadError | None) -> None:
        if error is not None:
            fail(call, error)
        elif reply is None:
            reply_message(call, empty)
        else:
            reply(call, message)

    def handle(call: RpcCall, body: Body) -> None:
        message = read_request(call, message_type, body, may_be_large)
        if message is None:
            return
        try:
            if message.repository_name:
                raise UnsupportedError(NAMED)
            # A load may wait long: it holds its files already, and the message with a second copy of them is dropped.
            start(message, partial(finish, call, message if reply is not None else None))
        except NaiadError as error:
            fail(call, error)

    return Unary(handle, check_room=None if may_be_large else check_size)
