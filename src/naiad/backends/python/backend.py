"""The backend ``python``: ``model.py`` files, each instance in a process of its own.

Source: the reference's Python backend. What runs in the process is in ``naiad.worker``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from google.protobuf.json_format import ParseDict, ParseError

from naiad.backend_api.backend import Backend, BackendContext, Instance, WorkerSpec
from naiad.backends.environments.environment import Environment, resolve
from naiad.backends.environments.parameters import of_python_model
from naiad.backends.python.misspelt import warn_of_misspelt
from naiad.backends.python.source import Source, own_source, shared_source
from naiad.backends.python.trial import TrialRequests
from naiad.backends.shared.worker_limits import WorkerLimits, check_processes, read_limits
from naiad.config.export import config_json
from naiad.config.freeze import instance_group
from naiad.config.parsing.single_values import with_lists
from naiad.errors import InternalError, ModelLoadError
from naiad.execution.worker.process import END_S, WorkerProcess, WorkerTimeoutError
from naiad.worker.ipc.frames import CONFIG, VERSION

if TYPE_CHECKING:
    from naiad.config.spec import InstanceGroupSpec, ModelSpec
    from naiad.processes.affinity import Affinity

_COMPLETED: Final = (
    "max_batch_size",
    "input",
    "output",
    "dynamic_batching",
    "sequence_batching",
    "model_transaction_policy",
)
_COMPLETES: Final = b"auto_complete_config"
_STANDS_ALONE: Final = re.compile(rb"^class\s+TritonPythonModel\s*(\(\s*(object\s*)?\)\s*)?:", re.MULTILINE)
_SILENCE_S: Final = 30
# For an ``initialize`` that never ends: loading a large model may take many minutes.
_START_S: Final = 3600
# ``naiad check`` is waited for by a person or by a build.
TRIAL_S: Final = 60
_TIME_LIMIT: Final = "stub-timeout-seconds"
# The least that the reference accepts, whatever its text says.
_MIN_SHARED_BYTES: Final = 1 << 20
FORCE_CPU: Final = "FORCE_CPU_ONLY_INPUT_TENSORS"


class PythonBackend(Backend):
    """One version of a Python model.

    ``--backend-config=python,...``: ``stub-timeout-seconds`` is how long an instance may give no sign of life (30 by
    default), and how long it may take to start (an hour by default: ``initialize`` may load much).
    ``worker_limits.py`` has the limits of a batch's time and of a process's memory. The settings for the size of shared
    memory are checked and have no effect: it is as large as the tensors.

    Args:
        backend_py: the file of the Python-based backend that runs the model, None for a model with code of its own.
    """

    _environment: Environment | None = None
    _decoupled = False
    _splits_failed = False
    _source: Source | None = None
    _first_group: InstanceGroupSpec | None = None

    def __init__(self, context: BackendContext, backend_py: Path | None = None) -> None:
        super().__init__(context)
        self._backend_py = backend_py

    def uses_gpus(self) -> bool:
        """True: which device its code uses, a Python model decides itself."""
        return True

    def complete(self, config: Any) -> None:
        """Let the model's ``auto_complete_config`` fill the configuration in, in a process of its own."""
        source = self._code()
        source.describe(config)
        text = source.model_py.read_bytes()
        if _COMPLETES not in text and _STANDS_ALONE.search(text):
            # A process less to start. A class that inherits, or is imported, may have it from elsewhere.
            return
        kind, content = self._run_code(config)
        if kind == CONFIG:
            _merge(config, content["config"], self.context.model)

    def try_out(self) -> str:
        """Start one instance, ``initialize`` included, and end it.

        A failure counts only if the model had what a server gives it: enough time, and the other models.
        """
        child = self._first_worker_spec()
        is_limited = _TIME_LIMIT not in self.context.backend_config
        if is_limited:
            child = replace(child, start_s=TRIAL_S)
        requests = TrialRequests()
        name = f"{self.context.model}_{self.context.version}_check"
        process = WorkerProcess(name, child)
        try:
            process.begin(requests.handle)
            process.finalize()
            process.end(END_S)
        except WorkerTimeoutError:
            if not is_limited:
                raise
            return (
                f"initialize() had not returned after {TRIAL_S} s and was ended; a server waits {_START_S} s. "
                f"--backend-config=python,{_TIME_LIMIT}=N sets the time for both"
            )
        except ModelLoadError as error:
            if not requests.wanted:
                raise
            return f"initialize() asked for {requests.wanted}, which a check does not serve, and failed: {error}"
        finally:
            process.end()
            process.close()
            requests.close()
        return ""

    def _run_code(self, config: Any) -> tuple[int, Any]:
        """The reply of a process that imports the model's file and calls ``auto_complete_config``, if it has that."""
        name = f"{self.context.model}_{self.context.version}_auto_complete"
        groups = [instance_group(group) for group in config.instance_group]
        affinity = self.context.policies.first(groups)
        process = WorkerProcess(name, self._worker_spec(config, name, "complete", "CPU", affinity))
        try:
            kind, content = process.begin()
            # The process ends by itself after its reply.
            process.end(_SILENCE_S)
        finally:
            process.end()
            process.close()
        return kind, content

    def start(self, spec: ModelSpec) -> None:
        """Check the model file, the settings and the environment."""
        check_processes(spec)
        self._code().describe(self.config)
        self._decoupled = spec.decoupled
        self._splits_failed = spec.splits_failed
        self._first_group = spec.instance_groups[0] if spec.instance_groups else None
        self._timeout_s(_START_S)
        self._check_shared_memory()
        forced = spec.parameters.get(FORCE_CPU, "yes")
        if forced not in ("yes", "no"):
            raise ModelLoadError(f"Incorrect value for {FORCE_CPU}: '{forced}'")
        self._limits(self.config)
        self._resolved(self.config)

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """Check how many processes that takes."""
        check_processes(spec)
        super().regroup(spec, config)

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """Not called: every instance is a process."""
        raise InternalError("instances of Python models are processes")

    def load_command(self, group: InstanceGroupSpec, index: int) -> Mapping[str, Any]:
        """What the process of an instance is told."""
        return self.worker_spec(group, index).load_command

    def worker_spec(self, group: InstanceGroupSpec, index: int) -> WorkerSpec:
        """How the process of an instance is started."""
        kind, affinity = group.kind.removeprefix("KIND_"), self.context.policies.affinity(group, index)
        return self._worker_spec(self.config, f"{group.name}_{index}", "serve", kind, affinity, group.gpu(index) or 0)

    def _first_worker_spec(self) -> WorkerSpec:
        if self._first_group is None:
            raise InternalError(f"model '{self.context.model}': start() comes before try_out()")
        return self.worker_spec(self._first_group, 0)

    def _worker_spec(
        self, config: Any, instance: str, mode: str, kind: str, affinity: Affinity, gpu: int = 0
    ) -> WorkerSpec:
        environment, source, limits = self._resolved(config), self._code(), self._limits(config)
        described = config_json(config)
        arguments = {
            "model_config": described.decode(),
            "model_instance_kind": kind,
            "model_instance_device_id": str(gpu),
            "model_instance_name": instance,
            "model_repository": str(source.model_directory),
            "model_version": str(self.context.version),
            "model_name": config.name,
        }
        load_command = {
            "version": VERSION,
            "mode": mode,
            "model_py": str(source.model_py),
            "model_directory": str(source.version_directory),
            "paths": [str(path) for path in source.paths],
            "args": arguments,
            "config": orjson.loads(described),
            "decoupled": self._decoupled,
            "splits_failed": self._splits_failed,
            "memory_bytes": limits.memory_bytes,
        }
        return WorkerSpec(
            environment.python,
            environment.env,
            load_command,
            self._timeout_s(_START_S),
            environment,
            silence_s=self._timeout_s(_SILENCE_S),
            execute_s=limits.execute_s,
            memory_bytes=limits.memory_bytes,
            affinity=affinity,
        )

    def _resolved(self, config: Any) -> Environment:
        # Once for all instances: to unpack or to build an environment may take minutes.
        if self._environment is None:
            folder = self._code().model_directory
            warn_of_misspelt(config.parameters, self.context.model)
            given = of_python_model({n: value.string_value for n, value in config.parameters.items()}, folder)
            self._environment = resolve(folder, given, self.context.backend_config)
        return self._environment

    def _code(self) -> Source:
        if self._source is None:
            context, shared = self.context, self._backend_py
            self._source = own_source(context) if shared is None else shared_source(context, shared)
        return self._source

    def _limits(self, config: Any) -> WorkerLimits:
        parameters = {name: value.string_value for name, value in config.parameters.items()}
        return read_limits("python", self.context.model, parameters, self.context.backend_config)

    def _timeout_s(self, default: int) -> int:
        return self._setting(_TIME_LIMIT, default, 1)

    def _check_shared_memory(self) -> None:
        if self._setting("shm-default-byte-size", _MIN_SHARED_BYTES, 0) < _MIN_SHARED_BYTES:
            raise ModelLoadError("shm-default-byte-size can't be smaller than 1 MiB")
        self._setting("shm-growth-byte-size", 1 << 20, 1)
        self._setting("thread-pool-size", 32, 1)

    def _setting(self, name: str, default: int, minimum: int) -> int:
        text = self.context.backend_config.get(name)
        if text is None:
            return default
        # ``int`` takes more than digits, and raises for texts of thousands of them.
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        if value < minimum:
            raise ModelLoadError(f"--backend-config=python,{name}={text}: expected a whole number from {minimum} on")
        return value


def _merge(config: Any, completed: dict[str, Any], model: str) -> None:
    """Copy what ``auto_complete_config`` may set into the configuration."""
    try:
        chosen = with_lists({k: completed[k] for k in _COMPLETED if k in completed}, config.DESCRIPTOR)
        made = ParseDict(chosen, type(config)(), True)
    except ParseError as error:
        raise ModelLoadError(
            f"auto_complete_config of model '{model}' returned an unusable configuration: {error}"
        ) from error
    config.max_batch_size = made.max_batch_size
    for name in ("input", "output"):
        config.ClearField(name)
        getattr(config, name).extend(getattr(made, name))
    if made.HasField("model_transaction_policy"):
        config.model_transaction_policy.CopyFrom(made.model_transaction_policy)
    _merge_scheduler(config, made, model)


def _merge_scheduler(config: Any, made: Any, model: str) -> None:
    """Take over the scheduler, unless the configuration has one."""
    chosen, scheduler = (c.WhichOneof("scheduling_choice") for c in (config, made))
    if scheduler is None or chosen == scheduler:
        return
    if chosen is not None:
        raise ModelLoadError(
            f"auto_complete_config of model '{model}' returned {scheduler}, but the configuration has {chosen}"
        )
    getattr(config, scheduler).CopyFrom(getattr(made, scheduler))
