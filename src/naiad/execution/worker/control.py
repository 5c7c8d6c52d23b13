"""Control requests and notifications of a worker: about models, and about its metrics.

``naiad.worker.api.control`` lists all of them. Used on the event loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from naiad.errors import InternalError, NaiadError, UnsupportedError
from naiad.execution.model_directory import ModelDirectory
from naiad.execution.worker.metrics import WorkerMetrics
from naiad.request import RequestTrace
from naiad.worker.ipc.frames import CATCH_UP

logger = logging.getLogger("naiad")

Content = Mapping[str, Any]
Reply = Callable[[Content], None]
"""Takes the content of a ``REPLY`` frame, once, on the event loop."""


class Topic(Protocol):
    """Control requests that belong together."""

    def handle(self, content: Content, succeed: Callable[[Any], None], fail: Callable[[NaiadError], None]) -> bool:
        """Reply to a request now or later; False when it is not one of these.

        Raises:
            NaiadError: the reply is that error.
        """


class ModelControlRequests:
    """Requests about the models of this server; none is known without ``models``."""

    def __init__(self, models: ModelDirectory | None) -> None:
        self._models = models

    def handle(self, content: Content, succeed: Callable[[Any], None], fail: Callable[[NaiadError], None]) -> bool:
        """Reply to a request now or later; False when it is not one of these.

        Raises:
            NaiadError: the reply is that error.
        """
        models = self._models
        what = content.get("what")
        if models is None or what not in ("is_model_ready", "load_model", "unload_model"):
            return False
        name = str(content["name"])

        def done(error: NaiadError | None) -> None:
            if error is None:
                succeed(None)
            else:
                fail(error)

        if what == "is_model_ready":
            succeed(models.is_model_ready(name, str(content.get("version") or "")))
        elif what == "load_model":
            # The reply follows when the load ends: the loop must not wait for it.
            files = {str(path): str(text) for path, text in content.get("files", {}).items()}
            models.load_model(name, content.get("config") or None, files, done)
        else:
            models.unload_model(name, bool(content.get("unload_dependents")), done)
        return True


def _no_trace(number: int) -> RequestTrace | None:
    return None


class ControlRequests:
    """Control requests of one worker.

    Args:
        models: serves requests about models.
        metrics: serves requests about metrics.
        trace_of: the trace of a request that runs, by its number.
    """

    def __init__(
        self,
        models: ModelControlRequests,
        metrics: WorkerMetrics,
        trace_of: Callable[[int], RequestTrace | None] = _no_trace,
    ) -> None:
        self._trace_of = trace_of
        self._topics: tuple[Topic, ...] = (models, metrics)
        self._metrics = metrics

    def handle(self, content: Content, reply: Reply) -> None:
        """Reply to a request, now or later."""

        def fail(error: NaiadError) -> None:
            reply({"error": {"message": str(error), "code": error.grpc_code}})

        def succeed(value: Any) -> None:
            reply({"value": value})

        if content.get("what") == CATCH_UP:
            # Frames are handled in their order, so everything that the worker sent before has been handled.
            reply({"value": None})
            return
        try:
            if not any(topic.handle(content, succeed, fail) for topic in self._topics):
                fail(not_known(content))
        except NaiadError as error:
            fail(error)
        except Exception:
            # A worker may send anything; a wrong request must not end the reading of its frames.
            logger.exception("a question of a model failed")
            fail(InternalError("the question failed inside the server, see its log"))

    def notify(self, content: Content) -> None:
        """Take a notification."""
        try:
            if content.get("what") == "trace_activity":
                trace = self._trace_of(int(content["request"]))
                if trace is not None:
                    trace.add_activity(str(content["name"]), int(content["at_ns"]))
                return
            self._metrics.notify(content)
        except NaiadError as error:
            # A notification has no reply, so the log is the only place for its error.
            logger.warning("%s", error)
        except Exception:
            logger.exception("what a model told could not be taken in")

    def close(self) -> None:
        """Delete the metrics of a worker that is gone."""
        self._metrics.close()


def not_known(content: Content) -> NaiadError:
    """The error for a request that is not served here."""
    return UnsupportedError(f"'{content.get('what', '')}' is not served to models here")
