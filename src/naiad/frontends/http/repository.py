"""``POST /v2/repository/index``."""

from __future__ import annotations

import orjson

from naiad.engine.engine import Engine
from naiad.errors import MalformedRequestError, NaiadError
from naiad.frontends.http.answers import send_error, send_json
from naiad.frontends.http.infer_read import Body
from naiad.frontends.http.protocol import Exchange, Handler


def index(engine: Engine, model: str, version: str | None) -> Handler:
    """Handler of the repository index; the optional body is ``{"ready": bool}``."""

    def handle(exchange: Exchange, body: Body) -> None:
        try:
            send_json(exchange, engine.index(_ready_only(body)))
        except NaiadError as error:
            send_error(exchange, error)

    return handle


def _ready_only(body: Body) -> bool:
    if not body:
        return False
    try:
        root = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedRequestError(f"failed to parse the request JSON buffer: {error.msg} at {error.pos}") from None
    ready = root.get("ready", False) if isinstance(root, dict) else None
    if not isinstance(ready, bool):
        raise MalformedRequestError(
            "Unable to parse 'ready': the body must be an object whose 'ready' is true or false"
        )
    return ready
