"""Python models in threads of the server (``execution=thread``): ``execute`` gets its requests without a copy.

They share the interpreter, its lock and its packages with the server and with each other.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from naiad.backend_api.backend import BackendContext
from naiad.backend_api.request_batch import RequestBatchBackend, RequestBatchInstance, RequestResult
from naiad.backends.environments.parameters import requested
from naiad.backends.python.backend import FORCE_CPU, PythonBackend
from naiad.backends.python.server_host import HOST, provide_interface
from naiad.backends.python.thread_tensors import ThreadTensors
from naiad.backends.shared.import_lock import IMPORT_LOCK
from naiad.backends.shared.worker_limits import EXECUTE, MEMORY
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.errors import BackendError, InternalError, ModelLoadError
from naiad.request import InferRequest
from naiad.tensor.device_tensor import CUDA, Device
from naiad.worker.runtime.batch import WorkerBatch
from naiad.worker.runtime.model_loader import load_model_class
from naiad.worker.runtime.results import FailedBatchError, responses_of

_numbers: Final = itertools.count(1)


class PythonThreadBackend(RequestBatchBackend):
    """One version of a Python model whose instances are threads.

    The configuration is completed in a process, and ``naiad check`` tries the model there, as for any Python model.

    Args:
        backend_py: the file of the Python-based backend that runs the model, None for a model with code of its own.
    """

    def __init__(self, context: BackendContext, backend_py: Path | None = None) -> None:
        super().__init__(context)
        self._processes = PythonBackend(context, backend_py)
        self._spec: ModelSpec | None = None

    def uses_gpus(self) -> bool:
        """As for models in processes."""
        return self._processes.uses_gpus()

    def complete(self, config: Any) -> None:
        """Let the model's ``auto_complete_config`` fill the configuration in, in a process."""
        self._processes.complete(config)

    def try_out(self) -> str:
        """Start one instance in a process, and end it."""
        return self._processes.try_out()

    def start(self, spec: ModelSpec) -> None:
        """Check the model file, and that the model needs nothing that only a process has."""
        self._refuse(_needs_process(spec))
        self._processes.config = self.config
        self._processes.start(spec)
        # That of a Python-based backend's folder, which is found just now.
        self._refuse(_environment_wanted({name: value.string_value for name, value in self.config.parameters.items()}))
        self._spec = spec

    def _refuse(self, wrong: str) -> None:
        if wrong:
            raise ModelLoadError(
                f"model '{self.context.model}': {wrong}, and its execution is \"thread\"; leave the parameter "
                "'execution' out, and each instance has a process of its own"
            )

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """The next instances have these groups."""
        self._processes.regroup(spec, config)
        super().regroup(spec, config)

    def create_request_batch(self, group: InstanceGroupSpec, index: int) -> RequestBatchInstance:
        """Import the model once more, and call ``initialize``."""
        if self._spec is None:
            raise InternalError(f"model '{self.context.model}': start() comes before its instances")
        command = self._processes.load_command(group, index)
        return PythonThreadInstance(command, self._spec, self.device(self._spec, group, index))

    def device(self, spec: ModelSpec, group: InstanceGroupSpec, index: int) -> Device | None:
        """Where the tensors of an instance may be: on its GPU, where the model says that it takes them there."""
        gpu = group.gpu(index)
        return None if gpu is None or spec.parameters.get(FORCE_CPU, "yes") == "yes" else Device(CUDA, gpu)

    def close(self) -> None:
        """Release what the completion used."""
        self._processes.close()


class PythonThreadInstance(RequestBatchInstance):
    """One instance: a module of its own, so that its globals are its own.

    Args:
        command: what a worker would get.
        spec: of the model.
        device: as ``RequestBatchInstance.device``.
    """

    def __init__(self, command: Mapping[str, Any], spec: ModelSpec, device: Device | None = None) -> None:
        arguments = command["args"]
        self._name: str = arguments["model_instance_name"]
        self._model_py: str = command["model_py"]
        self._package = f"naiad_model_{next(_numbers)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._model: Any = None
        host = provide_interface()
        HOST.enter(self._name, command["model_directory"])
        self.device = device
        self._tensors = ThreadTensors(spec, arguments, host, device)
        try:
            # One at a time: the import changes the path and the table of modules.
            with IMPORT_LOCK:
                model_class = load_model_class(
                    self._model_py, arguments["model_version"], command["paths"], self._package
                )
            self._model = model_class()
            if hasattr(self._model, "initialize"):
                self._model.initialize(dict(arguments))
        except BaseException:
            self._forget_modules()
            raise

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[RequestResult]:
        """Call ``execute``."""
        given = [self._tensors.request(number, request) for number, request in enumerate(requests)]
        try:
            found = responses_of(self._name, self._model, self._model_py, WorkerBatch(0, given), self._wait)
        except FailedBatchError as error:
            raise BackendError(str(error)) from None
        results: list[RequestResult | None] = [None] * len(requests)
        for request, response, _ in found:
            number = self._tensors.number(request)
            results[number] = self._tensors.result(response, requests[number])
        return [result or self._tensors.missing(self._name) for result in results]

    def close(self) -> None:
        """Call ``finalize`` and forget the model's modules."""
        try:
            if hasattr(self._model, "finalize"):
                self._model.finalize()
        finally:
            self._model = None
            if self._loop is not None:
                self._loop.close()
            self._forget_modules()

    def _wait(self, coroutine: Any) -> Any:
        # Made for the first coroutine: most models have none.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    def _forget_modules(self) -> None:
        for name in [n for n in tuple(sys.modules) if n == self._package or n.startswith(f"{self._package}.")]:
            sys.modules.pop(name, None)


def _needs_process(spec: ModelSpec) -> str:
    """What a model asks for that only a process has; "" for nothing."""
    if spec.decoupled:
        return "it is decoupled, which needs a response sender"
    if spec.sequence is not None:
        return "it has sequence_batching"
    for name in (EXECUTE, MEMORY):
        if spec.parameters.get(name, "0") not in ("0", ""):
            return f"parameter '{name}' limits a process"
    return _environment_wanted(spec.parameters)


def _environment_wanted(parameters: Mapping[str, str]) -> str:
    name = requested(parameters)
    return f"parameter '{name}' asks for an environment of its own" if name else ""
