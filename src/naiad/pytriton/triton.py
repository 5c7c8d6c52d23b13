"""``Triton``: serves inference functions of this program; ``RemoteTriton``: loads them into a server elsewhere."""

from __future__ import annotations

import atexit
import logging
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from naiad.binding.function import PROCESS, THREAD
from naiad.inprocess.server import Server
from naiad.inprocess.stop_signals import stop_signals
from naiad.pytriton.client.url import TritonUrl
from naiad.pytriton.client.waiting import wait_for_ready
from naiad.pytriton.constants import (
    DEFAULT_TRITON_STARTUP_TIMEOUT_S,
    TRITON_ACCESS_HEADER,
    TRITON_LOCAL_IP,
)
from naiad.pytriton.decorators.context import TritonContext
from naiad.pytriton.exceptions import PyTritonInvalidOperationError, PyTritonValidationError
from naiad.pytriton.model_config.model_config import ModelConfig
from naiad.pytriton.model_config.tensor import Tensor
from naiad.pytriton.serving.bound_model import BoundTritonModel, server_config
from naiad.pytriton.serving.remote_models import RemoteModels
from naiad.pytriton.serving.security import (
    DEFAULT_PROTECTED_ENDPOINTS,
    VALID_TRITON_ENDPOINTS,
    DefaultTritonLifecyclePolicy,
    TritonLifecyclePolicy,
    TritonSecurityConfig,
    VertextAILifecyclePolicy,
)
from naiad.pytriton.serving.triton_config import TritonConfig, merged

__all__ = [
    "DEFAULT_PROTECTED_ENDPOINTS",
    "TRITON_ACCESS_HEADER",
    "VALID_TRITON_ENDPOINTS",
    "DefaultTritonLifecyclePolicy",
    "RemoteTriton",
    "Triton",
    "TritonBase",
    "TritonConfig",
    "TritonLifecyclePolicy",
    "TritonSecurityConfig",
    "VertextAILifecyclePolicy",
]

logger = logging.getLogger("naiad")

MONITORING_PERIOD_S: Final = 10.0
_MODEL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


class TritonBase:
    """What ``Triton`` and ``RemoteTriton`` have in common: models, and a life from ``run`` to ``stop``."""

    def __init__(self, policy: TritonLifecyclePolicy) -> None:
        self._policy = policy
        self._context = TritonContext()
        self._models: dict[str, BoundTritonModel] = {}
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._failure = ""
        self._runs = False

    def bind(
        self,
        model_name: str,
        infer_func: Callable[..., Any] | Sequence[Callable[..., Any]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: list[str] | None = None,
        *,
        workers: str = THREAD,
    ) -> None:
        """Serve a function as a model; on a server that runs, from now on.

        Args:
            model_name: letters, digits, dots, underscores and dashes.
            infer_func: gets a list of requests and returns a list of responses, or a decorated function; a list of
                functions for as many instances.
            inputs: without a name they are ``INPUT_1`` and so on.
            outputs: without a name they are ``OUTPUT_1`` and so on.
            config: how it runs; None for ``ModelConfig()``.
            strict: check names, datatypes and shapes of what the function returns. Numbers of responses and of rows are
                checked always.
            trace_config: accepted; traces are an option of the server.
            workers: ``"thread"``, or ``"process"`` for a process for each function. This is Naiad's own.

        Raises:
            PyTritonValidationError: the name, the function or a tensor is wrong.
            PyTritonInvalidOperationError: a model of this name is bound.
            NaiadError: the server cannot load the model; the text says why.
        """
        _check_name(model_name)
        settings = config or ModelConfig()
        functions = [infer_func] if callable(infer_func) else infer_func
        if not isinstance(functions, Sequence) or not functions or not all(map(callable, functions)):
            raise PyTritonValidationError("infer_func has to be either callable or sequence of callables")
        if workers not in (THREAD, PROCESS):
            raise PyTritonValidationError(f"found workers={workers!r}, expected 'thread' or 'process'")
        bound = BoundTritonModel(
            functions,
            server_config(model_name, model_version, inputs, outputs, settings, len(functions)),
            settings,
            strict,
            self._workers(workers),
            self._context,
            self._fail,
        )
        with self._lock:
            if model_name.lower() in self._models:
                raise PyTritonInvalidOperationError("Cannot add model with the same name twice.")
            if self._runs:
                self._load(bound)
            self._models[model_name.lower()] = bound

    def connect(self) -> None:
        """Load the models that were bound; nothing happens when that is done.

        Raises:
            TimeoutError: the server is not ready.
        """
        self._start()

    def serve(self, monitoring_period_s: float = MONITORING_PERIOD_S) -> None:
        """Serve until Ctrl-C, SIGTERM, ``stop`` in another thread, or the end of the server.

        Args:
            monitoring_period_s: how often to look whether the server still runs.
        """
        ended = threading.Event()
        with stop_signals(ended):
            self._start()
            self._announce()
            try:
                while not ended.is_set() and not self._stopped.wait(min(0.1, monitoring_period_s)):
                    if not self.is_alive():
                        break
            except KeyboardInterrupt:
                logger.info("SIGINT: the server stops")
            finally:
                self.stop()

    def stop(self) -> bool:
        """Complete the requests in flight and leave nothing behind; whether there was something to stop."""
        with self._lock:
            if not self._runs:
                return False
            self._runs = False
            atexit.unregister(self.stop)
            try:
                self._end()
            finally:
                self._models.clear()
                self._stopped.set()
        return True

    def is_alive(self) -> bool:
        """Whether the server and its models can serve requests."""
        return self._runs and not self._failure and self._is_live()

    def is_connected(self) -> bool:
        """Whether the models are loaded."""
        return self._runs

    def __enter__(self) -> Self:
        if self._policy.launch_triton_on_startup:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        with self._lock:
            if self._runs:
                return
            self._stopped.clear()
            self._failure = ""
            self._begin()
            self._runs = True
            atexit.register(self.stop)

    def _fail(self, text: str) -> None:
        """Stop: a function cannot run again. Called in its thread, which has to respond first."""
        logger.error("an inference function cannot run again, so the server stops: %s", text)
        self._failure = text
        threading.Thread(target=self.stop, name="naiad-stop").start()

    def _workers(self, wanted: str) -> str:
        return wanted

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _load(self, bound: BoundTritonModel) -> None:
        raise NotImplementedError

    def _is_live(self) -> bool:
        raise NotImplementedError

    def _announce(self) -> None:
        for bound in self._models.values():
            logger.info("the function of model '%s' is served: POST /v2/models/%s/infer", bound.model, bound.model)


class Triton(TritonBase):
    """A server of inference functions in this program.

    Args:
        config: options of the server, before those of ``PYTRITON_TRITON_CONFIG_*`` variables.
        workspace: accepted and not used: the server keeps what it writes in a temporary folder.
        triton_lifecycle_policy: when it starts; by default ``VertextAILifecyclePolicy`` where
            Vertex AI is allowed, which looks for its model at the start, else ``DefaultTritonLifecyclePolicy``.
        security_config: which endpoints need a token.

    Raises:
        OptionError: an option is wrong.
    """

    def __init__(
        self,
        *,
        config: TritonConfig | None = None,
        workspace: str | Path | None = None,
        triton_lifecycle_policy: TritonLifecyclePolicy | None = None,
        security_config: TritonSecurityConfig | None = None,
    ) -> None:
        self._config = merged(TritonConfig.from_env(), config or TritonConfig())
        default = VertextAILifecyclePolicy if self._config.allow_vertex_ai else DefaultTritonLifecyclePolicy
        super().__init__(triton_lifecycle_policy or default)
        self._security_config = security_config or TritonSecurityConfig()
        self._server: Server | None = None
        self._new_server()

    def run(self) -> None:
        """Start the server and load the models; errors as ``naiad.Server.start``."""
        self._start()

    def get_access_token(self) -> str | None:
        """The token of protected endpoints; None where none are."""
        return self._security_config.access_token

    @property
    def http_url(self) -> str:
        """``host:port`` of HTTP; "" without."""
        return "" if self._server is None else self._server.http_url

    @property
    def grpc_url(self) -> str:
        """``host:port`` of gRPC; "" without."""
        return "" if self._server is None else self._server.grpc_url

    def metrics(self) -> str:
        """The metrics page; "" while the server does not run. This is Naiad's own, as the addresses are."""
        return "" if self._server is None else self._server.metrics()

    def _new_server(self) -> Server:
        given = {name: value for name, value in self._config.to_dict().items() if value is not None}
        # Their ports are those of ``naiad serve`` unless the configuration names others.
        for allow in ("allow_http", "allow_grpc", "allow_metrics"):
            given.setdefault(allow, True)
        # A port alone opens nothing here.
        for allow in ("allow_sagemaker", "allow_vertex_ai"):
            given.setdefault(allow, False)
        repository = given.pop("model_repository", ())
        given |= self._security_config.options(given)
        given |= {"model_control_mode": "explicit", "load_model": ["*"]}
        return Server(repository, **given)

    def _begin(self) -> None:
        server = self._new_server()
        for bound in self._models.values():
            server.bind_model(bound)
        server.start(wait_until_ready=True)
        self._server = server

    def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _load(self, bound: BoundTritonModel) -> None:
        if self._server is not None:
            self._server.bind_model(bound)

    def _is_live(self) -> bool:
        return self._server is not None and self._server.live()

    def _announce(self) -> None:
        super()._announce()
        logger.info("the server is ready at http://%s", self.http_url or f"{TRITON_LOCAL_IP} (no HTTP)")


class RemoteTriton(TritonBase):
    """Loads functions into a server elsewhere, where each runs in a process of its own.

    The server is a ``Triton`` of another program, or ``naiad serve --model-control-mode=explicit``. It runs the
    functions with its own Python, so it needs the packages that they use.

    Args:
        url: of the server, ``http://host:8000`` or ``grpc://host:8001``.
        workspace: accepted and not used.
        access_token: of the server's protected endpoints.
    """

    def __init__(self, url: str, workspace: str | Path | None = None, access_token: str | None = None) -> None:
        super().__init__(TritonLifecyclePolicy())
        self._url = TritonUrl.from_url(url)
        self._access_token = access_token
        self._remote: RemoteModels | None = None

    def _workers(self, wanted: str) -> str:
        # There is nothing of this program in the server.
        return PROCESS

    def _begin(self) -> None:
        wait_for_ready(self._url, DEFAULT_TRITON_STARTUP_TIMEOUT_S, self._access_token)
        remote = RemoteModels(self._url, self._access_token)
        for bound in self._models.values():
            remote.load(bound)
        self._remote = remote

    def _end(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            for bound in self._models.values():
                remote.unload(bound.model)
            remote.close()

    def _load(self, bound: BoundTritonModel) -> None:
        if self._remote is not None:
            self._remote.load(bound)

    def _is_live(self) -> bool:
        return self._remote is not None and self._remote.is_live()


def _check_name(name: str) -> None:
    if not name:
        raise PyTritonValidationError("Model name cannot be empty")
    if not _MODEL_NAME.fullmatch(name):
        raise PyTritonValidationError(
            f"Model name can only contain alphanumeric characters, dots, underscores and dashes; found {name!r}"
        )
