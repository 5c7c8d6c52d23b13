"""The backend ``onnxruntime``: ONNX models on ONNX Runtime.

The package of the same name is imported inside functions, so that a server without ONNX models does not need it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import Backend, BackendContext, Instance
from naiad.backends.onnx.instance import AdaptingInstance, BFloat16Instance, OnnxInstance, supports_bfloat16
from naiad.backends.onnx.session import SessionSettings, create_session, model_file, read_settings, run_options
from naiad.backends.onnx.signature import read_signature
from naiad.backends.shared.completion import GraphSignature, complete
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.signature import check_signature
from naiad.config.freeze import accelerators, graph_level, parameters
from naiad.errors import BackendUnavailableError, ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from naiad.config.spec import InstanceGroupSpec, ModelSpec, TensorSpec

# Instances of a model without an instance count (the reference's number for this backend on processors).
_DEFAULT_INSTANCES = 2
_NO_DEVICE = -1


class OnnxRuntimeBackend(Backend):
    """One ONNX model version.

    When an instance has one thread only, all instances share a session: runs are thread-safe and nothing is loaded
    twice. Otherwise each instance has a session, as a pool of threads serves one run at a time well.
    """

    framework = "onnxruntime"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._lock = threading.Lock()
        self._settings: SessionSettings | None = None
        self._sessions: dict[int, Any] = {}
        self._spec: ModelSpec | None = None
        self._scalars: frozenset[str] = frozenset()

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the graph; the session made for that is used by ``start``."""
        _refuse_accelerators(self.context.model, accelerators(config))
        self._settings = read_settings(
            self.context, parameters(config), graph_level(config), _expected_instances(config)
        )
        session = self._sessions[_NO_DEVICE] = self._create(_NO_DEVICE)
        reader = ParameterReader(self.context.model, self.context.backend_config, "backend config setting")
        complete(config, read_signature(session), reader.integer("default-max-batch-size", 4))

    def start(self, spec: ModelSpec) -> None:
        """Make the first session, unless ``complete`` made a fitting one, and check ``spec`` against the graph."""
        _refuse_accelerators(spec.name, spec.accelerators)
        settings = read_settings(self.context, spec.parameters, spec.graph_level, spec.instance_count)
        # The instance count was a guess in ``complete``; with another one the session has the wrong number of threads.
        if settings != self._settings:
            self._sessions.clear()
        self._settings = settings
        self._spec = spec
        device = self._check_devices(spec)
        session = self._sessions.get(device) or self._create(device)
        # Without the processor's session of ``complete`` if the first instance is on a GPU.
        self._sessions = {device: session}
        graph = read_signature(session)
        check_signature(spec, graph.inputs, graph.outputs)
        self._scalars = _scalars(spec, graph)
        _check_bfloat16(spec)

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """New sessions divide the cores by the new instance count; existing ones keep their threads."""
        super().regroup(spec, config)
        settings = read_settings(self.context, spec.parameters, spec.graph_level, spec.instance_count)
        self._check_devices(spec)
        with self._lock:
            if settings != self._settings:
                self._sessions.clear()
            self._settings, self._spec = settings, spec

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance on the processor, or on the GPU that is the index-th of a KIND_GPU group."""
        spec, settings = self._started()
        session = self._session(_device(group, index))
        options = run_options(settings)
        tensors = (*spec.inputs.values(), *spec.outputs.values())
        strings = _named(tensors, "BYTES")
        bfloat16 = _named(tensors, "BF16")
        # Most models are numeric: their instance looks at no tensor.
        if not (strings or bfloat16 or self._scalars):
            return OnnxInstance(session, options)
        adapting = AdaptingInstance(session, options, strings, self._scalars)
        return BFloat16Instance(session, options, bfloat16, adapting) if bfloat16 else adapting

    def close(self) -> None:
        """Release the sessions that the instances shared."""
        self._sessions.clear()

    def _session(self, device: int) -> Any:
        """The session for the next instance on ``device``: the shared one, or an exclusive one."""
        _, settings = self._started()
        # While it loads, too: two instances that start at once must not each load a session that they could share.
        with self._lock:
            session = self._sessions.pop(device, None) or self._create(device)
            if settings.shareable:
                self._sessions[device] = session
        return session

    def _create(self, device: int) -> Any:
        if self._settings is None:
            raise ModelLoadError(f"model '{self.context.model}': complete() or start() comes first")
        providers: list[str | tuple[str, dict[str, str]]] = ["CPUExecutionProvider"]
        if device != _NO_DEVICE:
            # In front: the framework prefers the first provider that can run a node.
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": str(device)}))
        return create_session(self.context.model, model_file(self.context), self._settings, providers)

    def _started(self) -> tuple[ModelSpec, SessionSettings]:
        if self._spec is None or self._settings is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        return self._spec, self._settings

    def _check_devices(self, spec: ModelSpec) -> int:
        """The device of the first instance; ``ModelLoadError`` for a GPU that the framework cannot use."""
        import onnxruntime

        gpu_groups = [g for g in spec.instance_groups if g.kind == "KIND_GPU"]
        if gpu_groups and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ModelLoadError(
                f"model '{spec.name}': instance group '{gpu_groups[0].name}' has kind KIND_GPU, and the installed "
                f"onnxruntime has no CUDA provider; install onnxruntime-gpu, or write kind: KIND_CPU"
            )
        return _device(spec.instance_groups[0], 0) if spec.instance_groups else _NO_DEVICE


def _device(group: InstanceGroupSpec, index: int) -> int:
    if group.kind != "KIND_GPU":
        return _NO_DEVICE
    gpus = group.gpus or (0,)
    return gpus[index % len(gpus)]


def _named(tensors: Iterable[TensorSpec], wire: str) -> frozenset[str]:
    return frozenset(t.name for t in tensors if t.dtype.wire == wire)


def _scalars(spec: ModelSpec, graph: GraphSignature) -> frozenset[str]:
    """Tensors without a shape in the graph that the configuration declares with ``dims: [ 1 ]``.

    The framework's Python interface cannot tell a scalar from a tensor of unknown rank. ONNX allows the latter inside a
    graph, but not as its input or output.
    """
    if spec.max_batch_size:
        return frozenset()
    bare = {t.name for t in (*graph.inputs, *graph.outputs) if t.shape is None}
    return frozenset(
        t.name for t in (*spec.inputs.values(), *spec.outputs.values()) if t.name in bare and t.dims == (1,)
    )


def _check_bfloat16(spec: ModelSpec) -> None:
    """The framework accepts BF16 from Python only as ``OrtValue``, which cannot have strings."""
    names = _named((*spec.inputs.values(), *spec.outputs.values()), "BF16")
    strings = _named(spec.inputs.values(), "BYTES")
    if names and strings:
        raise ModelLoadError(
            f"model '{spec.name}': onnxruntime cannot be given TYPE_STRING (input '{min(strings)}') together with "
            f"TYPE_BF16 (tensor '{min(names)}') from Python; cast the latter to FP32 or FP16 at the model's border"
        )
    if names and not supports_bfloat16():
        raise BackendUnavailableError(
            f"model '{spec.name}': tensor '{min(names)}' is TYPE_BF16, which the installed onnxruntime cannot pass "
            f"from Python; run: pip install --upgrade onnxruntime"
        )


def _expected_instances(config: Any) -> int:
    """The count that the configuration will have once it is normalised; being wrong costs a second load only."""
    groups = [g for g in config.instance_group if not g.passive]
    return sum(g.count or _DEFAULT_INSTANCES for g in groups) if config.instance_group else _DEFAULT_INSTANCES


def _refuse_accelerators(model: str, names: tuple[str, ...]) -> None:
    if names:
        raise ModelLoadError(
            f"model '{model}': optimization.execution_accelerators names '{names[0]}', and this version has none for "
            f"onnxruntime; remove it to run on the processor"
        )
