"""The backend ``keras``: files of Keras 3 (``model.keras``), on TensorFlow, PyTorch or JAX."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import Backend, BackendContext, Instance, threads_per_instance
from naiad.backends.keras.framework import import_keras
from naiad.backends.keras.instance import KerasInstance
from naiad.backends.keras.session import load_model
from naiad.backends.keras.signature import CallShape, call_shape
from naiad.backends.shared.completion import complete
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.signature import check_signature
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import InstanceGroupSpec, ModelSpec


class KerasBackend(Backend):
    """One Keras model version; every instance has a model of its own."""

    framework = "keras"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._keras = import_keras()
        self._lock = threading.Lock()
        self._loaded: Any = None
        self._shape: CallShape | None = None
        self._threads = 1

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the model, which then goes to the first instance."""
        self._loaded = self._load()
        reader = ParameterReader(self.context.model, self.context.backend_config, "backend config setting")
        tensors = call_shape(self._keras, self._loaded).tensors
        complete(config, tensors, reader.integer("default-max-batch-size", 4))

    def start(self, spec: ModelSpec) -> None:
        """Load the model, unless ``complete`` has, and check ``spec`` against it."""
        _check_devices(spec)
        if self._loaded is None:
            self._loaded = self._load()
        self._shape = call_shape(self._keras, self._loaded)
        check_signature(spec, self._shape.tensors.inputs, self._shape.tensors.outputs)
        self._threads = self._threads_of(spec)

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """New instances divide the cores by the new instance count; existing ones keep their threads."""
        super().regroup(spec, config)
        _check_devices(spec)
        self._threads = self._threads_of(spec)

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance on the processor, whose thread is the calling one."""
        if self._shape is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        if self._keras.backend.backend() == "torch":
            self._divide_cores()
        with self._lock:
            model, self._loaded = self._loaded, None
        return KerasInstance(self._keras, self._load() if model is None else model, self._shape)

    def close(self) -> None:
        """Release the model that no instance has taken."""
        self._loaded = None

    def _threads_of(self, spec: ModelSpec) -> int:
        return threads_per_instance(self.context, spec.instance_count, self.context.policies.of_process())

    def _load(self) -> Any:
        return load_model(self._keras, self.context.model, self.context.model_path)

    def _divide_cores(self) -> None:
        """Torch counts its worker threads per calling thread; the other libraries have one pool for all."""
        import torch

        # Reading first matters: a thread's first use of the number overwrites it with the one last set anywhere.
        torch.get_num_threads()
        torch.set_num_threads(self._threads)


def _check_devices(spec: ModelSpec) -> None:
    for group in spec.instance_groups:
        if group.kind == "KIND_GPU":
            raise ModelLoadError(
                f"model '{spec.name}': instance group '{group.name}' has kind KIND_GPU, and the backend keras runs "
                f"models on the processor; write kind: KIND_CPU"
            )
