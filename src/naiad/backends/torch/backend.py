"""The backend ``pytorch``: TorchScript models (``model.pt``, platform ``pytorch_libtorch``).

``torch`` is imported inside functions, so that a server without such models does not need it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from naiad.backend_api.backend import Backend, BackendContext, Instance, threads_per_instance
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.torch.instance import CallPlan, TorchInstance
from naiad.backends.torch.session import load_module, memory_effects
from naiad.backends.torch.signature import bind_inputs, bind_outputs, read_schema
from naiad.errors import BackendError, ModelLoadError, first_line

if TYPE_CHECKING:
    from naiad.backends.torch.signature import ForwardSchema
    from naiad.config.spec import InstanceGroupSpec, ModelSpec, TensorSpec

log = logging.getLogger("naiad")

_UNSUPPORTED = ("UINT16", "UINT32", "UINT64")
_PROCESS_WIDE = ("ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING", "ENABLE_TENSOR_FUSER")
# The profiling executor watches the first run and optimises in the second.
_SETTLING_RUNS = 2


class PyTorchBackend(Backend):
    """One TorchScript model version; every instance has a module of its own unless ENABLE_WEIGHT_SHARING is set."""

    framework = "torch"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._lock = threading.Lock()
        self._modules: dict[str | None, Any] = {}
        self._spec: ModelSpec | None = None
        self._plan: CallPlan | None = None
        self._threads = 1
        self._share = False

    def complete(self, config: Any) -> None:
        """Fills nothing in: TorchScript has no names, types or shapes. Refuses a configuration without tensors."""
        if not config.input or not config.output:
            # Loaded for the error text alone, which names the arguments.
            schema = read_schema(load_module(self.context.model, self.context.model_path, "cpu"))
            raise _no_tensors(self.context.model, schema)

    def start(self, spec: ModelSpec) -> None:
        """Load the first module and fit the configuration to its ``forward``."""
        _check_platform(spec)
        device = _device(spec.instance_groups[0], 0) if spec.instance_groups else "cpu"
        _check_devices(spec)
        reader = ParameterReader(spec.name, spec.parameters)
        self._threads = self._threads_of(spec, reader)
        self._share = reader.boolean("ENABLE_WEIGHT_SHARING", False)
        # Before the module loads: torch takes the number only before its first parallel work.
        _apply_process_wide(spec, reader)
        module = self._modules[device] = load_module(spec.name, self.context.model_path, device)
        schema = read_schema(module)
        if not spec.inputs or not spec.outputs:
            raise _no_tensors(spec.name, schema)
        _check_tensors(spec)
        self._plan = _plan(spec, schema, module, reader)
        self._spec = spec

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """New instances divide the cores by the new instance count; existing ones keep their threads."""
        super().regroup(spec, config)
        _check_devices(spec)
        self._threads = self._threads_of(spec, ParameterReader(spec.name, spec.parameters))
        self._spec = spec

    def _threads_of(self, spec: ModelSpec, reader: ParameterReader) -> int:
        wanted = reader.integer("INTRA_OP_THREAD_COUNT", 0)
        return wanted or threads_per_instance(self.context, spec.instance_count)

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance whose thread is the calling one: torch counts its worker threads per calling thread."""
        import torch

        if self._plan is None or self._spec is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        # Reading first matters: a thread's first use of the number overwrites it with the one last set anywhere.
        torch.get_num_threads()
        torch.set_num_threads(self._threads)
        device = _device(group, index)
        on_gpu = device is not None and device != "cpu"
        instance = TorchInstance(self._module(device), self._plan, device if on_gpu else None)
        _settle(instance, self._spec, self._plan)
        return instance

    def close(self) -> None:
        """Release the modules that the instances shared."""
        self._modules.clear()

    def _module(self, device: str | None) -> Any:
        with self._lock:
            # The module that ``start`` has loaded goes to the first instance.
            module = self._modules.pop(device, None)
            if module is None:
                module = load_module(self.context.model, self.context.model_path, device)
            if self._share:
                self._modules[device] = module
        return module


def _plan(spec: ModelSpec, schema: ForwardSchema, module: Any, reader: ParameterReader) -> CallPlan:
    tensors = (*spec.inputs.values(), *spec.outputs.values())
    arguments = bind_inputs(spec, schema)
    return CallPlan(
        arguments=arguments,
        positional=tuple(argument for _, argument in arguments) == schema.arguments[: len(arguments)],
        places=bind_outputs(spec, schema),
        strings=frozenset(t.name for t in tensors if t.dtype.is_bytes),
        rows=spec.max_batch_size > 0,
        returns_strings=schema.returns_strings,
        effects=memory_effects(module),
        inference_mode=reader.boolean("INFERENCE_MODE", True),
        optimized=not reader.boolean("DISABLE_OPTIMIZED_EXECUTION", False),
        clean_cache=reader.boolean("ENABLE_CACHE_CLEANING", False),
        cudnn=not reader.boolean("DISABLE_CUDNN", False),
    )


def _device(group: InstanceGroupSpec, index: int) -> str | None:
    """Where an instance's module goes; None leaves it where it was saved (KIND_MODEL)."""
    if group.kind == "KIND_MODEL":
        return None
    if group.kind != "KIND_GPU":
        return "cpu"
    gpus = group.gpus or (0,)
    return f"cuda:{gpus[index % len(gpus)]}"


def _check_platform(spec: ModelSpec) -> None:
    if spec.platform == "torch_aoti":
        raise ModelLoadError(
            f"model '{spec.name}': platform torch_aoti (model.pt2) is not supported by this version; export it as "
            f'TorchScript (model.pt) and write platform: "pytorch_libtorch"'
        )


def _check_devices(spec: ModelSpec) -> None:
    import torch

    for group in spec.instance_groups:
        if group.kind == "KIND_GPU" and not torch.cuda.is_available():
            raise ModelLoadError(
                f"model '{spec.name}': instance group '{group.name}' has kind KIND_GPU, and torch finds no "
                f"GPU; install a torch with CUDA on a machine with a GPU, or write kind: KIND_CPU"
            )


def _check_tensors(spec: ModelSpec) -> None:
    for tensor in (*spec.inputs.values(), *spec.outputs.values()):
        if tensor.dtype.wire in _UNSUPPORTED:
            raise ModelLoadError(
                f"model '{spec.name}': tensor '{tensor.name}' is {tensor.dtype.config}, which TorchScript cannot "
                f"compute with; use a signed type of at least that size, such as TYPE_INT64"
            )
        if tensor.dtype.is_bytes and not _is_string_list(spec, tensor):
            raise ModelLoadError(
                f"model '{spec.name}': tensor '{tensor.name}' is TYPE_STRING with dims {list(tensor.dims)}; "
                f"TorchScript has lists of strings only, so write dims: [ {'1' if spec.max_batch_size else '-1'} ]"
            )


def _is_string_list(spec: ModelSpec, tensor: TensorSpec) -> bool:
    return tensor.dims == (1,) if spec.max_batch_size else len(tensor.dims) == 1


def _no_tensors(model: str, schema: ForwardSchema) -> ModelLoadError:
    names = [a.name for a in schema.arguments] or ["INPUT__0"]
    inputs = ", ".join(f'{{ name: "{n}" data_type: TYPE_FP32 dims: [ -1 ] }}' for n in names)
    return ModelLoadError(
        f"model '{model}': the configuration must list the inputs and outputs, as TorchScript does not say their "
        f"types and shapes; write, with the right data_type and dims: input [ {inputs} ] "
        f'output [ {{ name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ -1 ] }} ]'
    )


def _apply_process_wide(spec: ModelSpec, reader: ParameterReader) -> None:
    """Apply INTER_OP_THREAD_COUNT, which torch takes once per process.

    The switches of the old executors are not set, as they would change every other model.
    """
    import torch

    for name in _PROCESS_WIDE:
        if name in spec.parameters and not reader.boolean(name, True):
            log.warning("model '%s': parameter '%s' is not applied, as it would change all models", spec.name, name)
    count = reader.integer("INTER_OP_THREAD_COUNT", 0)
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


def _settle(instance: TorchInstance, spec: ModelSpec, plan: CallPlan) -> None:
    """Run twice on zeros, so that no request waits for the optimiser (0.3 s a run for a model of 1000 layers).

    Left out where zeros could change the model or their shape is not known. A model that refuses zeros is left to its
    first requests.
    """
    tensors = spec.inputs.values()
    shapes = {t.name: t.dims if t.reshape is None else t.reshape for t in tensors}
    if plan.effects.writes_state or plan.strings or any(-1 in shape for shape in shapes.values()):
        return
    lead = (1,) if plan.rows else ()
    zeros = {t.name: np.zeros((*lead, *shapes[t.name]), t.dtype.numpy) for t in tensors}
    try:
        for _ in range(_SETTLING_RUNS):
            instance.execute(zeros, tuple(spec.outputs))
    except BackendError as error:
        log.info("model '%s' does not run on zeros and optimises itself in its first requests: %s", spec.name, error)
