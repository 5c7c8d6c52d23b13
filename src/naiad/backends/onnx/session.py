"""ONNX Runtime sessions: the model file, the settings of the configuration, and the session made from both."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import threads_per_instance
from naiad.backends.onnx.failures import bare_reason, reason_of
from naiad.backends.shared.parameters import ParameterReader
from naiad.errors import ModelLoadError
from naiad.processes.affinity import ANYWHERE, Affinity, server_cores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from naiad.backend_api.backend import BackendContext
    from naiad.backends.onnx.accelerators import Acceleration

log = logging.getLogger("naiad")

SHRINKAGE = "memory.enable_memory_arena_shrinkage"
SPINNING = "session.intra_op.allow_spinning"

# Level of a run's own log: only errors that end the process.
_FATAL = 4
# optimization.graph.level of the configuration -> member of GraphOptimizationLevel.
_GRAPH_LEVELS = {
    None: "ORT_ENABLE_ALL",
    0: "ORT_ENABLE_ALL",
    -1: "ORT_ENABLE_BASIC",
    1: "ORT_ENABLE_EXTENDED",
    2: "ORT_DISABLE_ALL",
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Everything that decides how a session is made. Equal settings make interchangeable sessions."""

    threads: int
    inter_op_threads: int
    parallel: bool
    memory_arena: bool
    memory_pattern: bool
    graph_level: str
    entries: tuple[tuple[str, str], ...]
    shrinkage: str
    global_pool: bool
    accelerations: tuple[Acceleration, ...] = ()
    operator_libraries: tuple[str, ...] = ()

    @property
    def shareable(self) -> bool:
        """True when one session serves all instances at no cost: it has no threads of its own to fight over."""
        return self.global_pool or (self.threads == 1 and not self.parallel)


def read_settings(
    context: BackendContext,
    parameters: Mapping[str, str],
    graph_level: int | None,
    instance_count: int,
    affinity: Affinity = ANYWHERE,
) -> SessionSettings:
    """The settings of one model, or of its ``instance_count`` instances that run where ``affinity`` says.

    Source: parameters of the reference's onnxruntime backend. Threads are the cores divided among the instances when
    ``intra_op_thread_count`` is absent or 0.

    Raises:
        ModelLoadError: a value does not fit; the text names the parameter.
    """
    reader = ParameterReader(context.model, parameters)
    if graph_level not in _GRAPH_LEVELS:
        raise ModelLoadError(
            f"model '{context.model}': optimization {{ graph {{ level: {graph_level} }} }}: expected -1 (basic), "
            f"0 (all), 1 (extended) or 2 (none)"
        )
    mode = reader.integer("execution_mode", 0)
    if mode > 1:
        raise reader.refused("execution_mode", '"0" (sequential) or "1" (parallel)')
    return SessionSettings(
        threads=reader.integer("intra_op_thread_count", 0) or threads_per_instance(context, instance_count, affinity),
        inter_op_threads=reader.integer("inter_op_thread_count", 0),
        parallel=mode == 1,
        memory_arena=reader.boolean("enable_mem_arena", True),
        memory_pattern=reader.boolean("enable_mem_pattern", True),
        graph_level=_GRAPH_LEVELS[graph_level],
        entries=_entries(reader, parameters),
        shrinkage=_shrinkage(reader),
        global_pool=_global_pool(context, affinity),
    )


def _entries(reader: ParameterReader, parameters: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The ``session.*`` entries. Spinning is off unless the configuration sets it.

    A thread that spins gains tens of microseconds per run of a small model while it is alone; with a second instance
    beside it the 99th percentile was measured 30 times higher, and the event loop needs the core as well.
    """
    if parameters.get(SPINNING, "0") not in ("0", "1"):
        raise reader.refused(SPINNING, '"0" or "1"')
    entries = {SPINNING: "0"} | {k: v for k, v in parameters.items() if k.startswith("session.")}
    # Sorted, since settings are compared: equal ones share a session.
    return tuple(sorted(entries.items()))


def _shrinkage(reader: ParameterReader) -> str:
    value = reader.text(SHRINKAGE) or ""
    if value and not re.fullmatch(r"(cpu|gpu):\d+(;(cpu|gpu):\d+)*", value):
        raise reader.refused(SHRINKAGE, 'devices such as "cpu:0" or "cpu:0;gpu:0"')
    return value


def with_shrinkable_devices(settings: SessionSettings, gpu: int | None) -> SessionSettings:
    """``settings`` with those devices of ``shrinkage`` alone whose memory a session on ``gpu`` keeps.

    onnxruntime fails each run that names another device.
    """
    kept = {f"gpu:{gpu}"} | ({"cpu:0"} if settings.memory_arena else set())
    return replace(settings, shrinkage=";".join(each for each in settings.shrinkage.split(";") if each in kept))


class _GlobalPool:
    """ONNX Runtime's one pool of threads for all sessions of a process, and whether it exists.

    Once made it cannot be resized, and every later session of the process must use it: that is the framework's rule.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: tuple[int, int] | None = None

    @property
    def exists(self) -> bool:
        return self._sizes is not None

    def make(self, intra_op: int, inter_op: int) -> None:
        """Make the pool unless it exists; a wish that cannot be met is a warning."""
        # Models load in several threads.
        with self._lock:
            if self._sizes == (intra_op, inter_op):
                return
            if self._sizes is not None:
                log.warning(
                    "onnxruntime: the global thread pool stays at %d intra-op and %d inter-op threads; "
                    "it cannot be changed to %d and %d while the process runs",
                    *self._sizes,
                    intra_op,
                    inter_op,
                )
                return
            self._create(intra_op, inter_op)

    def _create(self, intra_op: int, inter_op: int) -> None:
        import onnxruntime

        create = getattr(onnxruntime, "set_global_thread_pool_sizes", None)
        if create is None:
            log.warning(
                "onnxruntime %s cannot make a global thread pool from Python: enable-global-threadpool is ignored and "
                "each session has its own threads; update onnxruntime to use it",
                onnxruntime.__version__,
            )
            return
        create(intra_op, inter_op)
        self._sizes = (intra_op, inter_op)


_pool = _GlobalPool()


def _global_pool(context: BackendContext, affinity: Affinity) -> bool:
    """Whether sessions use the process-wide pool, created here with ``enable-global-threadpool``."""
    reader = ParameterReader(context.model, context.backend_config, "backend config setting")
    if reader.boolean("enable-global-threadpool", False):
        # A policy gives a process of the model's own fewer cores than the server has.
        here = context.policies.of_process()
        intra_op = reader.integer("intra_op_thread_count", 0) or len(here.cores) or context.cores
        with here.held():
            _pool.make(intra_op, reader.integer("inter_op_thread_count", 0) or 1)
    if _pool.exists and not server_cores() <= set(affinity.cores or server_cores()):
        raise ModelLoadError(
            f"model '{context.model}' is to run on {affinity} (--host-policy), and the global thread pool of "
            f"onnxruntime (enable-global-threadpool) serves all models of the server on all cores; write "
            f"execution=process, or leave one of the two out"
        )
    return _pool.exists


def model_file(context: BackendContext) -> Path:
    """The ``.onnx`` file of the model: ``model_path`` itself, or the file inside if it is a folder.

    A folder has a model with external data: weights in files beside the graph.
    """
    path = context.model_path
    if path.is_dir():
        path = _file_inside(context.model, path)
    if not path.is_file():
        raise ModelLoadError(
            f"model '{context.model}': there is no file {path}; put the model there, or name it with "
            f"default_model_filename in the configuration"
        )
    if path.stat().st_size == 0:
        raise ModelLoadError(f"model '{context.model}': the model file {path} is empty; export or copy it again")
    return path


def _file_inside(model: str, folder: Path) -> Path:
    usual = folder / "model.onnx"
    if usual.is_file():
        return usual
    found = sorted(folder.glob("*.onnx"))
    if len(found) == 1:
        return found[0]
    names = ", ".join(p.name for p in found) or "none"
    raise ModelLoadError(
        f"model '{model}': {folder} is a folder and should hold a file model.onnx; "
        f"it has {names}; rename one to model.onnx"
    )


def create_session(
    model: str, file: Path, settings: SessionSettings, providers: Sequence[tuple[str, dict[str, str]]]
) -> Any:
    """An ``InferenceSession`` for ``file`` on these providers.

    Raises:
        ModelLoadError: it cannot be made, or a provider cannot be used; with the framework's reason.
    """
    import onnxruntime

    session = _session(model, file, settings, providers)
    if _passed_over(session, providers) and hasattr(onnxruntime, "preload_dlls"):
        # CUDA's libraries may be packages of pip, where the system does not look for libraries.
        onnxruntime.preload_dlls()
        session = _session(model, file, settings, providers)
    if lost := _passed_over(session, providers):
        raise ModelLoadError(
            f"model '{model}': onnxruntime {onnxruntime.__version__} has {lost[0]} and cannot use it here: a library "
            f"that it needs is missing, or a driver or a device; its own line is in the log. pip has CUDA's libraries: "
            f"pip install 'onnxruntime-gpu[cuda,cudnn]'"
        )
    return session


def _session(model: str, file: Path, settings: SessionSettings, providers: Sequence[tuple[str, dict[str, str]]]) -> Any:
    import onnxruntime

    options = _session_options(settings)
    _register_operators(model, options, settings.operator_libraries)
    try:
        # Without enable_fallback=0 a failure is printed and tried a second time.
        return onnxruntime.InferenceSession(str(file), options, providers=list(providers), enable_fallback=0)
    except Exception as error:
        raise ModelLoadError(f"model '{model}': onnxruntime cannot load {file}: {reason_of(error)}") from error


def _register_operators(model: str, options: Any, libraries: Sequence[str]) -> None:
    """Load libraries of custom operators, which the sessions of ``options`` have then."""
    for library in libraries:
        try:
            options.register_custom_ops_library(library)
        except Exception as error:
            raise ModelLoadError(
                f"model '{model}': onnxruntime cannot load the operators of '{library}' "
                f"(model_operations.op_library_filename): {bare_reason(error)}"
            ) from error


def _passed_over(session: Any, providers: Sequence[tuple[str, dict[str, str]]]) -> list[str]:
    """The providers that a session is not on: one whose own libraries are missing costs a line on stderr alone."""
    used = session.get_providers()
    return [name for name, _ in providers if name not in used]


def run_options(settings: SessionSettings) -> Any:
    """The ``RunOptions`` of every run.

    A run that fails is an exception with the reason, which the caller reports: the framework's own line about it, past
    the server's log and in another format, is switched off.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = _FATAL
    if settings.shrinkage:
        options.add_run_config_entry(SHRINKAGE, settings.shrinkage)
    return options


def _session_options(settings: SessionSettings) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if settings.global_pool:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads = settings.threads
        # 0 leaves the number to the framework.
        options.inter_op_num_threads = settings.inter_op_threads
    if settings.parallel:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.enable_cpu_mem_arena = settings.memory_arena
    options.enable_mem_pattern = settings.memory_pattern
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, settings.graph_level)
    for key, value in settings.entries:
        options.add_session_config_entry(key, value)
    return options
