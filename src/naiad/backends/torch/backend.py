"""The backend ``pytorch``: TorchScript, archives of ``torch.export``, packages of AOTInductor, and ``nn.Module``.

``torch`` is imported inside functions, so that a server without such models does not need it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from naiad.backend_api.backend import Backend, BackendContext, Instance, threads_of_group
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.torch.archive import FileKind, kind_of
from naiad.backends.torch.compile_cache import keep_inductor_files
from naiad.backends.torch.on_device import release_gpu_memory
from naiad.errors import BackendError, ModelLoadError, first_line

if TYPE_CHECKING:
    from naiad.backends.torch.model import TorchModel
    from naiad.config.spec import InstanceGroupSpec, ModelSpec

log = logging.getLogger("naiad")

_PROCESS_WIDE = ("ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING", "ENABLE_TENSOR_FUSER")
_SCRIPT_PLATFORM = "pytorch_libtorch"
_PROGRAM_PLATFORM = "torch_aoti"


class PyTorchBackend(Backend):
    """One model version. The kind of model follows from its file."""

    framework = "torch"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._model: TorchModel | None = None
        self._spec: ModelSpec | None = None
        self._threads = 0

    def uses_gpus(self) -> bool:
        """Whether the installed torch finds a GPU, and the model was not compiled for the processor."""
        import torch

        if not torch.cuda.is_available():
            return False
        path = self.context.model_path
        if kind_of(path) is not FileKind.COMPILED:
            return True
        from naiad.backends.torch.aoti import made_for

        return made_for(self.context.model, path) != "cpu"

    def complete(self, config: Any) -> None:
        """Fill in what the kind of model says itself; refuse a configuration that lacks what it does not say."""
        self._made(config.platform).complete(config)

    def start(self, spec: ModelSpec) -> None:
        """Load the first module or program and fit the configuration to it."""
        model = self._made(spec.platform)
        device = _device(spec.instance_groups[0], 0) if spec.instance_groups else "cpu"
        _check_devices(spec)
        reader = ParameterReader(spec.name, spec.parameters)
        self._threads = _threads(reader)
        # Before the module loads: torch takes the number only before its first parallel work.
        _apply_process_wide(spec, reader)
        model.start(spec, device)
        self._spec = spec

    def advice(self) -> str:
        """How to export a model whose kind torch has deprecated."""
        return "" if self._model is None else self._model.advice()

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """New instances divide the cores by the new instance count; existing ones keep their threads."""
        super().regroup(spec, config)
        _check_devices(spec)
        self._threads = _threads(ParameterReader(spec.name, spec.parameters))
        self._spec = spec

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance whose thread is the calling one: torch counts its worker threads per calling thread."""
        import torch

        if self._model is None or self._spec is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        # Reading first matters: a thread's first use of the number overwrites it with the one last set anywhere.
        torch.get_num_threads()
        torch.set_num_threads(self._threads or threads_of_group(self.context, self._spec, group, index))
        instance = self._model.instance(_device(group, index))
        if runs := self._model.settling_runs:
            _settle(instance, self._spec, runs)
        return instance

    def close(self) -> None:
        """Release what the instances shared, and the memory of the GPUs that torch would keep for later models."""
        if self._model is not None:
            self._model.close()
        if self._spec is not None and any(_is_on_gpu(group) for group in self._spec.instance_groups):
            release_gpu_memory()

    def _made(self, platform: str) -> TorchModel:
        if self._model is None:
            # Before torch imports its compiler, which makes a folder.
            keep_inductor_files()
            self._model = _model_of(self.context, platform)
        return self._model


def _model_of(context: BackendContext, platform: str) -> TorchModel:
    """The kind of model by its file. The platform decides only where the file does not say, as when it is missing.

    Raises:
        ModelLoadError: the platform and the file contradict each other.
    """
    path = context.model_path
    kind = kind_of(path)
    source = path if kind is FileKind.SOURCE else path.with_suffix(".py")
    # A file beside a class that is no archive is damaged, or of torch.save()'s old format.
    if kind is FileKind.SOURCE or (kind in (FileKind.STATE, FileKind.UNKNOWN) and source.is_file()):
        # Imported here, as the others below: a load pays for its own kind alone.
        from naiad.backends.torch.eager import EagerModel

        return EagerModel(context, source)
    is_program = kind in (FileKind.EXPORTED, FileKind.COMPILED)
    wanted = platform or (_PROGRAM_PLATFORM if context.model_path.suffix == ".pt2" else _SCRIPT_PLATFORM)
    if (is_program and wanted == _SCRIPT_PLATFORM) or (kind is FileKind.SCRIPT and wanted == _PROGRAM_PLATFORM):
        right = _PROGRAM_PLATFORM if is_program else _SCRIPT_PLATFORM
        raise ModelLoadError(
            f"model '{context.model}': the configuration has platform: \"{wanted}\", and {path} is "
            f'{kind.value}; write platform: "{right}", or put the right file there'
        )
    if wanted == _PROGRAM_PLATFORM:
        from naiad.backends.torch.flat_model import FlatModel

        return FlatModel(context)
    from naiad.backends.torch.script import ScriptModel

    return ScriptModel(context)


def _device(group: InstanceGroupSpec, index: int) -> str | None:
    """Where an instance's module goes; None leaves it where it was saved (KIND_MODEL)."""
    if group.kind == "KIND_MODEL":
        return None
    gpu = group.gpu(index)
    return "cpu" if gpu is None else f"cuda:{gpu}"


def _is_on_gpu(group: InstanceGroupSpec) -> bool:
    return (_device(group, 0) or "cuda").startswith("cuda")


def _check_devices(spec: ModelSpec) -> None:
    import torch

    for group in spec.instance_groups:
        if group.kind == "KIND_GPU" and not torch.cuda.is_available():
            raise ModelLoadError(
                f"model '{spec.name}': instance group '{group.name}' has kind KIND_GPU, and torch finds no "
                f"GPU; install a torch with CUDA on a machine with a GPU, or write kind: KIND_CPU"
            )


def _threads(reader: ParameterReader) -> int:
    """The configured threads of one instance, 0 for none."""
    return reader.integer("INTRA_OP_THREAD_COUNT", reader.integer("NUM_THREADS", 0))


def _apply_process_wide(spec: ModelSpec, reader: ParameterReader) -> None:
    """Apply INTER_OP_THREAD_COUNT, which torch takes once per process.

    The switches of the old executors are not set, as they would change every other model.
    """
    import torch

    for name in _PROCESS_WIDE:
        if name in spec.parameters and not reader.boolean(name, True):
            log.warning("model '%s': parameter '%s' is not applied, as it would change all models", spec.name, name)
    count = reader.integer("INTER_OP_THREAD_COUNT", reader.integer("NUM_INTEROP_THREADS", 0))
    if not count or torch.get_num_interop_threads() == count:
        return
    try:
        torch.set_num_interop_threads(count)
    except RuntimeError as error:
        log.warning(
            "model '%s': INTER_OP_THREAD_COUNT stays at %d, torch takes %d only before its first parallel work: %s",
            spec.name,
            torch.get_num_interop_threads(),
            count,
            first_line(error),
        )


def _settle(instance: Instance, spec: ModelSpec, runs: int) -> None:
    """Run on zeros, so that no request waits for the optimiser (0.3 s a run for a model of 1000 layers).

    Left out where the shapes are not known. A model that refuses zeros is left to its first requests.
    """
    tensors = spec.inputs.values()
    shapes = {t.name: t.dims if t.reshape is None else t.reshape for t in tensors}
    if any(-1 in shape for shape in shapes.values()):
        return
    lead = (1,) if spec.max_batch_size > 0 else ()
    zeros = {t.name: np.zeros((*lead, *shapes[t.name]), t.dtype.numpy) for t in tensors}
    try:
        for _ in range(runs):
            instance.execute(zeros, tuple(spec.outputs))
    except BackendError as error:
        log.info("model '%s' does not run on zeros and optimises itself in its first requests: %s", spec.name, error)
