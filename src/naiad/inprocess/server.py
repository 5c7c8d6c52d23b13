"""``naiad.Server``: functions and model repositories, served by this process."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from naiad.binding.function import THREAD, bind_function
from naiad.binding.model_folder import CALLABLE
from naiad.binding.tensor_types import TensorType
from naiad.errors import InvalidArgumentError, UnavailableError
from naiad.inprocess.bound_model import BindableModel, FunctionModel, backend_of_bound
from naiad.inprocess.engine_thread import EngineThread
from naiad.inprocess.file_log import FileLog
from naiad.inprocess.model import Model
from naiad.inprocess.model_dictionary import ModelDictionary
from naiad.inprocess.options import read_options
from naiad.inprocess.stop_signals import stop_signals
from naiad.repository.local.layout import check_model_name
from naiad.repository.local.overrides import FILE, NO_OVERRIDES, Overrides
from naiad.server.process import allow_open_files
from naiad.shared_memory.registry import MAX_REGIONS
from naiad.telemetry.logs.server_log import LogSettings, Rotation, ServerLog


class Server:
    """A server in this process, in a thread of its own.

    ```python
    server = naiad.Server()
    server.bind("doubler", lambda x: 2 * x)
    server.serve()
    ```

    ``serve`` opens the ports of ``naiad serve`` and returns when the program is stopped. ``start`` opens the ports that
    were named (``http_port=0`` for any free one), returns at once, and ``stop`` leaves nothing behind; a ``with``
    statement calls both.

    Args:
        model_repository: folders or addresses of model repositories.
        options: those of ``naiad serve``, with ``_`` in place of ``-``; or of the reference's Python package.
    """

    def __init__(self, model_repository: str | Path | Sequence[str | Path] = (), **options: Any) -> None:
        one = isinstance(model_repository, str | Path)
        self._repositories: list[str | Path] = [model_repository] if one else list(model_repository)  # type: ignore[list-item, arg-type]
        self._options = options
        self._bound: dict[str, BindableModel] = {}
        self._engine: EngineThread | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._file_log: FileLog | None = None
        self._stopped = threading.Event()
        # Before anything starts: a misspelled option should fail here.
        read_options(options, ["."], {}, opens_all=False)

    # Functions

    def bind(
        self,
        name: str,
        function: Any,
        *,
        inputs: Mapping[str, TensorType] | None = None,
        outputs: Mapping[str, TensorType] | None = None,
        instances: int = 1,
        workers: str = THREAD,
    ) -> None:
        """Serve a function as the model ``name``; on a server that runs, from now on.

        Args:
            name: of the model. A function that was bound under it before is replaced.
            function: a function, a coroutine function, a generator of either kind, or a class with ``predict`` and
                ``setup``.
            inputs: the inputs, such as ``{"x": naiad.FP32[-1, 16]}``; None for those of the type hints. A parameter
                without a hint is ``FP32[-1]``.
            outputs: the outputs; None for those of the return annotation. Without one there is ``output``, of the first
                input's datatype and number of dimensions.
            instances: how many copies run side by side.
            workers: ``"thread"``: in this process; ``"process"``: each in a process of its own.

        Raises:
            InvalidArgumentError: the function cannot be bound like this.
            ModelLoadError: the server runs, and an instance cannot be created.
        """
        check_model_name(name)
        self.bind_model(FunctionModel(bind_function(name, function, inputs, outputs, instances, workers)))

    def bind_model(self, bound: BindableModel) -> None:
        """Serve a model that another package makes of a function; errors as ``bind``."""
        check_model_name(bound.model)
        self._bound[bound.model] = bound
        if self._engine is not None and self._folder is not None:
            self._engine.take_up(bound.write_folder(Path(self._folder.name)))

    # Life

    def start(self, wait_until_ready: bool = True) -> Self:
        """Start to serve, in a thread, and open the ports that were named.

        The log goes to the program's handlers of ``logging``, and to the file of the option ``log_file``.

        Args:
            wait_until_ready: return when the models are loaded, rather than while they are.

        Raises:
            OptionError: an option is wrong, or a port or a repository cannot be used.
            ModelLoadError: a model cannot be loaded.
        """
        if self._engine is not None or not read_options(self._options, ["."], os.environ, opens_all=False).log_file:
            self._start(wait_until_ready, opens_all=False, log=ServerLog(LogSettings()))
            return self
        log = self._log()
        self._file_log = FileLog(log)
        try:
            self._start(wait_until_ready, opens_all=False, log=log)
        except BaseException:
            self._close_file_log()
            raise
        return self

    def stop(self) -> None:
        """Complete the requests in flight and end all threads, processes and connections of the server.

        Nothing happens when it does not run.
        """
        engine, self._engine = self._engine, None
        folder, self._folder = self._folder, None
        if engine is not None:
            try:
                engine.stop(self._exit_timeout_s)
            finally:
                if folder is not None:
                    folder.cleanup()
                self._close_file_log()
        self._stopped.set()

    def serve(self) -> None:
        """Start, open the ports of ``naiad serve``, and return after SIGINT, SIGTERM, or ``stop`` in another thread.

        The log goes to the terminal as that of ``naiad serve``. Errors as ``start``.
        """
        with self._log() as log, stop_signals(self._stopped):
            self._start(True, opens_all=True, log=log)
            try:
                self._stopped.wait()
            finally:
                self.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, wait_until_ready: bool, opens_all: bool, log: ServerLog) -> None:
        if self._engine is not None:
            raise InvalidArgumentError("the server runs already: call stop() first")
        self._stopped.clear()
        folder = tempfile.TemporaryDirectory(prefix="naiad-functions-")
        try:
            for bound in self._bound.values():
                bound.write_folder(Path(folder.name))
            options = read_options(self._start_options(), [*self._repositories, folder.name], os.environ, opens_all)
            if opens_all:
                allow_open_files(options.http_max_connections, options.grpc_max_connections, MAX_REGIONS)
            self._exit_timeout_s = float(options.exit_timeout_secs)
            engine = EngineThread(options, log, {CALLABLE: backend_of_bound(self._bound)})
            engine.start(wait_until_ready)
        except BaseException:
            folder.cleanup()
            raise
        self._engine, self._folder = engine, folder

    def _start_options(self) -> Mapping[str, Any]:
        """The options, with the functions among the models that explicit mode loads at the start."""
        given = dict(self._options)
        mode = given.get("model_control_mode")
        if str(getattr(mode, "value", mode)) == "explicit":
            named = given.pop("startup_models", given.pop("load_model", ()))
            names = [named] if isinstance(named, str) else list(named)
            given["load_model"] = names if "*" in names else [*names, *self._bound]
        return given

    def _close_file_log(self) -> None:
        log, self._file_log = self._file_log, None
        if log is not None:
            log.close()

    def _log(self) -> ServerLog:
        options = read_options(self._options, ["."], os.environ, opens_all=True)
        return ServerLog(
            LogSettings.from_options(options),
            for_terminals="log_format" not in options.given,
            rotation=Rotation.from_options(options),
        )

    # Questions

    @property
    def http_url(self) -> str:
        """``host:port`` of the HTTP service; "" where it has no port."""
        return self._running.addresses.get("HTTPService", "")

    @property
    def grpc_url(self) -> str:
        """``host:port`` of the gRPC service; "" where it has no port."""
        return self._running.addresses.get("GRPCInferenceService", "")

    @property
    def metrics_url(self) -> str:
        """``host:port`` of the metrics page; "" where it has no port."""
        return self._running.addresses.get("Metrics Service", "")

    def live(self) -> bool:
        """Whether the server runs."""
        return self._engine is not None and self._engine.read(lambda engine: engine.is_live())

    def ready(self) -> bool:
        """Whether the server and its models can serve requests."""
        return self._engine is not None and self._engine.read(lambda engine: engine.is_ready())

    def metadata(self) -> dict[str, Any]:
        """Name, version and protocol extensions."""
        return self._running.read(lambda engine: engine.server_metadata())

    def metrics(self) -> str:
        """The metrics page, in the text format of Prometheus."""
        return self._running.metrics()

    def model(self, model_name: str, model_version: int | str = -1) -> Model:
        """A model by name and version, -1 for the newest one; it need not be loaded.

        Raises:
            UnavailableError: the server does not run.
        """
        return Model(self._running, model_name, model_version)

    def models(self, exclude_not_ready: bool = False) -> ModelDictionary:
        """All models of the repositories by name and version; -1 where no version was tried."""
        rows = self._running.read(lambda engine: engine.index(exclude_not_ready))
        return ModelDictionary(self._running, rows)

    # Changes

    def load(self, model_name: str, parameters: Mapping[str, str | bytes] | None = None) -> Model:
        """Load a model, in explicit mode.

        Args:
            model_name: the model.
            parameters: ``config``, a configuration as JSON, and ``file:<path>`` with the content of a file.

        Raises:
            UnavailableError: the server does not run in explicit mode.
            NaiadError: the model cannot be loaded.
        """
        self._running.load(model_name, _overrides(parameters) if parameters else NO_OVERRIDES)
        return Model(self._running, model_name)

    def unload(
        self,
        model: str | Model,
        unload_dependents: bool = False,
        wait_until_unloaded: bool = False,
        polling_interval: float = 0.1,
        timeout: float | None = None,
    ) -> None:
        """Unload a model, in explicit mode; it is closed after its last response. Errors as ``load``.

        Args:
            model: the model.
            unload_dependents: unload the models that only it needs, too.
            wait_until_unloaded: return when the model is closed.
            polling_interval: seconds between two looks.
            timeout: for how many seconds to wait at most; None for any time. No error follows.
        """
        name = model.name if isinstance(model, Model) else model
        self._running.unload(name, unload_dependents)
        end = math.inf if timeout is None else time.monotonic() + timeout
        while wait_until_unloaded and self._is_loaded(name) and time.monotonic() < end:
            time.sleep(polling_interval)

    def _is_loaded(self, name: str) -> bool:
        rows = self._running.read(lambda engine: engine.index(False))
        return any(row["name"] == name and row.get("state", "UNAVAILABLE") != "UNAVAILABLE" for row in rows)

    @property
    def _running(self) -> EngineThread:
        if self._engine is None:
            raise UnavailableError("the server does not run: call start() first")
        return self._engine


def _overrides(parameters: Mapping[str, str | bytes]) -> Overrides:
    files: dict[str, bytes] = {}
    config: str | None = None
    for name, content in parameters.items():
        if name == "config":
            config = content.decode() if isinstance(content, bytes) else content
        elif name.startswith(FILE):
            files[name] = content.encode() if isinstance(content, str) else content
        else:
            raise InvalidArgumentError(f"found the load parameter '{name}', expected 'config' or 'file:<path>'")
    return Overrides(config, files)
