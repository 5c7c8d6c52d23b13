"""``/openapi.json``: the description of the HTTP API, made from the table of routes. Source: OpenAPI 3.1."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from naiad.config.routes import ALIAS_PATTERN
from naiad.frontends.access.features import feature_of_http
from naiad.frontends.http.server.replies import JSON, TEXT
from naiad.frontends.http.v2.openapi_schemas import SCHEMAS, request_of, response_of
from naiad.frontends.http.v2.path_templates import templates_of
from naiad.version import __version__

if TYPE_CHECKING:
    from naiad.frontends.http.v2.route_table import Route

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_PARAMETER_PATTERNS: Final = {"version": f"^([0-9]+|{ALIAS_PATTERN})$"}
_BINARY: Final = "application/octet-stream"


_FAILED: Final = {
    "description": "What is wrong; a health check may leave it out.",
    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}, TEXT: {"schema": {"type": "string"}}},
}


@cache
def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """The document for ``routes``, as JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for path in templates_of(route.pattern.pattern):
            paths.setdefault(path, {})[route.method.lower()] = _operation(route, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Naiad",
            "version": __version__,
            "description": "Inference over HTTP, by the protocol of KServe (v2) and the extensions of Triton.",
        },
        # Either no credentials or a key: the document does not tell whether this server has keys.
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _identifier(route.method, path),
        "summary": _summary(route),
        "tags": [feature_of_http(_PARAMETER.sub("1", path))],
        "responses": {"200": _response(path), "default": _FAILED},
    }
    if names := _PARAMETER.findall(path):
        found["parameters"] = [_parameter(name) for name in names]
    if route.method == "POST":
        found["requestBody"] = _body(path)
    return found


def _identifier(method: str, path: str) -> str:
    return method.lower() + "".join(word.capitalize() for word in re.findall(r"\w+", path.removeprefix("/v2")))


def _summary(route: Route) -> str:
    # A partial function has the docstring of ``partial`` itself.
    text = (getattr(route.make, "func", route.make).__doc__ or "").strip().splitlines()
    return text[0].removeprefix("Handler of ").rstrip(".").capitalize() if text else ""


def _parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": _PARAMETER_PATTERNS.get(name, "^[^/]+$")}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _body(path: str) -> dict[str, Any]:
    name, required = request_of(path)
    content: dict[str, Any] = {JSON: {"schema": _schema(name)}}
    if path.endswith("/infer"):
        # JSON with binary data behind it, or the data of a single input alone.
        content[_BINARY] = {"schema": {}}
    return {"required": required, "content": content}


def _response(path: str) -> dict[str, Any]:
    name = response_of(path)
    if not name:
        return {"description": "Yes, or done."}
    if path.endswith("/generate_stream"):
        return {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    content: dict[str, Any] = {JSON: {"schema": _schema(name)}}
    if path.endswith("/infer"):
        content[_BINARY] = {"schema": {}}
    return {"description": "The answer.", "content": content}


def _schema(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
