"""``POST /v2/repository/index`` and ``POST /v2/repository/models/{model}/load`` and ``.../unload``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from naiad.engine.engine import Engine
from naiad.errors import InvalidArgumentError, MalformedRequestError, NaiadError, UnsupportedError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_error, send_json
from naiad.frontends.http.server.sliced_response import send_in_slices
from naiad.frontends.http.v2.load_body import place, read_object
from naiad.frontends.http.v2.simple_handlers import Done, action_handler
from naiad.frontends.http.v2.small_body import check_size, read_settings
from naiad.repository.local.overrides import FILE, Content, Overrides
from naiad.wire.json_text import kind_of

NAMED: Final = "'repository_name' specification is not supported"


class _Parameters(NamedTuple):
    """The parameters of a request; ``cut`` are the contents that ``read_object`` cut out."""

    values: Mapping[str, Any]
    cut: Sequence[memoryview]


def index(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the repository index; the optional body is ``{"ready": bool}``."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            ready_only = _flag(read_settings(body) if body else {}, "ready", "Invalid value for")
        except NaiadError as error:
            send_error(exchange, error)
            return
        if ready_only:
            # Models that are ready are known; the others need a look at the repositories.
            _send_index(engine, exchange, ready_only)
        else:
            engine.refresh_index(partial(_refreshed, engine, exchange))

    return handle


def load(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of loading; the optional body is ``{"parameters": {"config": JSON, "file:<path>": base64, ...}}``."""

    def start(body: Body, done: Done) -> None:
        engine.load(model, _overrides(_parameters(body)), done)

    return action_handler(start)


def unload(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of unloading; the optional body is ``{"parameters": {"unload_dependents": bool}}``."""

    def start(body: Body, done: Done) -> None:
        # Only loads bring files; another large body is refused before it is read.
        check_size(body)
        engine.unload(model, _flag(_parameters(body).values, "unload_dependents", "Unable to parse"), done)

    return action_handler(start)


def named(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of both when a repository is named, which the reference does not take either."""

    def handle(exchange: Exchange, body: Body) -> None:
        send_error(exchange, UnsupportedError(NAMED))

    return handle


def _parameters(body: Body) -> _Parameters:
    root, cut = read_object(body)
    values = root.get("parameters", {})
    if not isinstance(values, dict):
        raise MalformedRequestError("Unable to parse 'parameters': expected an object of names and values")
    return _Parameters(values, cut)


def _refreshed(engine: Engine, exchange: Exchange, error: NaiadError | None) -> None:
    if error is not None:
        send_error(exchange, error)
    else:
        _send_index(engine, exchange, ready_only=False)


def _send_index(engine: Engine, exchange: Exchange, ready_only: bool) -> None:
    def send(found: list[list[dict[str, str]]]) -> None:
        send_json(exchange, list(chain.from_iterable(found)))

    send_in_slices(engine.sliced_work, exchange, engine.index_by_model(ready_only), send)


def _overrides(parameters: _Parameters) -> Overrides:
    config: str | None = None
    files: dict[str, Content] = {}
    cut = {place(number): content for number, content in enumerate(parameters.cut)}
    for name, value in parameters.values.items():
        if name != "config" and not name.startswith(FILE):
            raise InvalidArgumentError(f"Unrecognized load parameter '{name}' with type '{_type_name(value)}'")
        if not isinstance(value, str):
            wanted = "a model configuration as JSON in a string" if name == "config" else "base64 in a string"
            raise MalformedRequestError(f"Unable to parse '{name}': expected {wanted}, found {_type_name(value)}")
        if name == "config":
            config = value
        else:
            # Still base64: the loading thread decodes it.
            files[name] = cut.get(value, value)
    return Overrides(config, files)


def _type_name(value: Any) -> str:
    """How the reference calls the type of a parameter; what no parameter can be is named as JSON names it."""
    names = {bool: "BOOL", int: "INT", float: "DOUBLE", str: "STRING"}
    return names.get(type(value), kind_of(value))


def _flag(values: Mapping[str, Any], name: str, refusal: str) -> bool:
    """A boolean of a body, false unless it is there; ``refusal`` begins the error for any other value."""
    found = values.get(name, False)
    if not isinstance(found, bool):
        raise MalformedRequestError(f"{refusal} '{name}': expected a boolean, found {_type_name(found)}")
    return found
