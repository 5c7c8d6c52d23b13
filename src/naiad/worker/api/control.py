"""Control requests and notifications of a model to the server: models, and metrics.

``CONTROL_REQUEST`` frames, whose reply is ``{"value": ...}`` or ``{"error": {"message": text, "code": n}}``:

====================== ======================================================================= =======================
what                   more                                                                    value
====================== ======================================================================= =======================
``load_model``         ``name``, ``config`` (JSON text, "" for the repository's own),          null
                       ``files`` (content in base64 by path, such as ``file:1/model.py``)
``unload_model``       ``name``, ``unload_dependents`` (bool)                                  null
``is_model_ready``     ``name``, ``version`` (text, "" for any)                                bool
``metric_family``      ``family`` (number), ``name``, ``description``, ``kind``                null
                       ("counter", "gauge" or "histogram")
``metric``             ``metric`` (number), ``family``, ``labels`` (text by name), ``buckets`` null
                       (numbers, null except for a histogram)
``metric_value``       ``metric``                                                              number
====================== ======================================================================= =======================

``NOTIFICATION`` frames: ``metric_increment`` (``metric``, ``by``), ``metric_set`` (``metric``, ``to``),
``metric_observe`` (``metric``, ``value``), ``metric_delete`` (``metric``) and ``metric_family_delete`` (``family``);
``trace_activity`` (``request``, ``name``, ``at_ns``) adds to the trace of a request that runs.

The worker numbers its families and metrics from 1, each kind on its own. A family of the same name and kind as an
existing one shares it, a metric of the same labels too. What a worker has not deleted when it ends is deleted with it.
Numbers that are not finite are texts: ``nan``, ``inf``, ``-inf``.
"""

from __future__ import annotations

from typing import Any, Mapping

from ..ipc.errors import TritonModelException, as_text
from ..ipc.reader import Waiter
from . import current


class PendingReply:
    """The reply to a control request under way."""

    __slots__ = ("_error", "_value", "is_delivered", "waiter")

    def __init__(self) -> None:
        self.is_delivered = False
        self.waiter = Waiter()
        self._value: Any = None
        self._error: str | None = None

    def deliver(self, content: Mapping[str, Any]) -> None:
        """Take the reply."""
        error = content.get("error")
        self._error = error["message"] if error is not None else None
        self._value = content.get("value")
        # Last: a waiter that is awake takes the value at once.
        self.is_delivered = True
        self.waiter.wake()

    def has_reply(self) -> bool:
        """Whether the reply is there."""
        return self.is_delivered

    def value(self) -> Any:
        """The value of the reply.

        Raises:
            TritonModelException: the reply is an error.
        """
        if self._error is not None:
            raise TritonModelException(self._error)
        return self._value


def send_request(failure: str, what: str, **more: Any) -> Any:
    """Send a control request and wait for its value; ``failure`` begins the text of an error.

    Raises:
        TritonModelException: the server refused it.
    """
    try:
        return current.running().send_request({"what": what, **more})
    except TritonModelException as error:
        raise TritonModelException(f"{failure}: {error}") from None


def notify(what: str, **more: Any) -> None:
    """Send a notification; does nothing without a server."""
    host = current.find()
    if host is not None:
        host.notify({"what": what, **more})


def load_model(model_name: str, config: str = "", files: dict[str, bytes] | None = None) -> None:
    """Load a model, with a configuration as JSON and files that take the place of the repository's.

    Raises:
        TritonModelException: it could not be loaded, or the server does not allow it.
    """
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and file contents"
        )
    name, text = as_text(model_name, "load_model: model_name"), as_text(config, "load_model: config")
    import base64  # Few models need it.

    contents = {path: base64.b64encode(_bytes(path, content)).decode() for path, content in (files or {}).items()}
    send_request("Failed to load model", "load_model", name=name, config=text, files=contents)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model, and with ``unload_dependents`` the models that only it needs.

    Raises:
        TritonModelException: the server does not allow it.
    """
    name = as_text(model_name, "unload_model: model_name")
    send_request("Failed to unload model", "unload_model", name=name, unload_dependents=bool(unload_dependents))


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model, or one version of it, can serve requests.

    Raises:
        TritonModelException: the version is no number.
    """
    name = as_text(model_name, "is_model_ready: model_name")
    version = as_text(model_version, "is_model_ready: model_version")
    return bool(send_request("Failed to check model readiness", "is_model_ready", name=name, version=version))


def _bytes(path: str, content: Any) -> bytes:
    if not isinstance(content, (bytes, bytearray, str)):
        raise TypeError(f"load_model: the content of '{path}' must be bytes, found {type(content)}")
    return content.encode() if isinstance(content, str) else bytes(content)
