"""The backend ``onnxruntime``: ONNX models on ONNX Runtime.

The package of the same name is imported inside functions, so that a server without ONNX models does not need it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import Backend, BackendContext, Instance
from naiad.backends.onnx.accelerator_cache import SETTING as CACHE_SETTING
from naiad.backends.onnx.accelerator_cache import accelerator_cache, build_folder, with_builds
from naiad.backends.onnx.accelerators import (
    CUDA_PROVIDER,
    check_available,
    check_has_gpu,
    providers,
    read_accelerations,
    with_defaults,
)
from naiad.backends.onnx.bound_outputs import BoundOutputs
from naiad.backends.onnx.device_instance import DeviceOnnxInstance
from naiad.backends.onnx.instance import AdaptingInstance, BFloat16Instance, OnnxInstance, supports_bfloat16
from naiad.backends.onnx.operators import runs_by_shape
from naiad.backends.onnx.session import (
    SHRINKAGE,
    SessionSettings,
    create_session,
    model_file,
    read_settings,
    run_options,
    with_shrinkable_devices,
)
from naiad.backends.onnx.signature import read_signature
from naiad.backends.shared.completion import GraphSignature, complete
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.signature import check_signature, shape_text
from naiad.config.freeze import accelerators, graph_level, instance_group, parameters
from naiad.config.spec import InstanceGroupSpec
from naiad.errors import BackendUnavailableError, ModelLoadError
from naiad.tensor.device_tensor import CUDA, Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from naiad.backends.onnx.accelerators import Acceleration
    from naiad.config.spec import AcceleratorSpec, ModelSpec, TensorSpec
    from naiad.processes.affinity import Affinity

log = logging.getLogger("naiad")

# Instances of a model without an instance count (the reference's number for this backend on processors).
_DEFAULT_INSTANCES = 2
_NO_DEVICE = -1


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a session runs: the number of a GPU, or ``_NO_DEVICE``, and the cores of its threads."""

    device: int
    affinity: Affinity

    @property
    def gpu(self) -> int | None:
        """The number of the GPU, None on the processor."""
        return None if self.device == _NO_DEVICE else self.device


class OnnxRuntimeBackend(Backend):
    """One ONNX model version.

    When an instance has one thread only, all instances share a session: runs are thread-safe and nothing is loaded
    twice. Otherwise each instance has a session, as a pool of threads serves one run at a time well.
    """

    framework = "onnxruntime"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._lock = threading.Lock()
        self._settings: dict[SessionPlace, SessionSettings] = {}
        self._sessions: dict[SessionPlace, Any] = {}
        self._spec: ModelSpec | None = None
        self._scalars: Mapping[str, tuple[int, ...]] = {}
        self._runs_by_shape: bool | None = None

    def uses_gpus(self) -> bool:
        """Whether the installed package is built for CUDA."""
        import onnxruntime

        return CUDA_PROVIDER in onnxruntime.get_available_providers()

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the graph; the session made for that is used by ``start``."""
        groups = _expected_groups(config)
        place = self._place(groups[0], 0)
        if place.gpu is not None and not (groups[0].gpus and self.uses_gpus()):
            # What is missing for a GPU is reported later, with everything else that is wrong.
            place = replace(place, device=_NO_DEVICE)
        libraries = _operator_libraries(config)
        self._settings = {
            place: self._read(parameters(config), graph_level(config), accelerators(config), libraries, groups, place)
        }
        session = self._sessions[place] = self._create(place)
        reader = ParameterReader(self.context.model, self.context.backend_config, "backend config setting")
        complete(config, read_signature(session), reader.integer("default-max-batch-size", 4))

    def start(self, spec: ModelSpec) -> None:
        """Make the first session, unless ``complete`` made a fitting one, and check ``spec`` against the graph."""
        _check_devices(spec)
        settings = self._settings_of(spec)
        first = next(iter(settings))
        # The instance count was a guess in ``complete``; with another one the session has the wrong number of threads.
        session = self._sessions.get(first) if self._settings.get(first) == settings[first] else None
        self._settings, self._spec = settings, spec
        # Without the session of ``complete`` where it does not fit the first instance.
        self._sessions.clear()
        self._sessions[first] = session or self._create(first)
        graph = read_signature(self._sessions[first])
        check_signature(spec, graph.inputs, graph.outputs)
        _check_scalars(spec, graph)
        self._scalars = _scalars(spec, graph)
        _check_bfloat16(spec)
        _remark_on_shrinkage(spec, settings.values())

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """New sessions divide the cores by the new instance count; existing ones keep their threads."""
        super().regroup(spec, config)
        _check_devices(spec)
        settings = self._settings_of(spec)
        with self._lock:
            if settings != self._settings:
                self._sessions.clear()
            self._settings, self._spec = settings, spec

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance on the processor, or on the GPU that is the index-th of a KIND_GPU group."""
        if self._spec is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        spec, place = self._spec, self._place(group, index)
        session = self._session(place)
        options = run_options(self._settings[place])
        tensors = (*spec.inputs.values(), *spec.outputs.values())
        strings = _named(tensors, "BYTES")
        bfloat16 = _named(tensors, "BF16")
        # Most models are numeric: their instance looks at no tensor.
        if not (strings or bfloat16 or self._scalars):
            dtypes = {name: tensor.dtype.numpy for name, tensor in spec.outputs.items()}
            if place.gpu is None:
                # What an accelerator does with memory that is not its own is not known.
                bound = None if self._settings[place].accelerations else BoundOutputs(session, dtypes)
                return OnnxInstance(session, options, bound)
            return DeviceOnnxInstance(session, options, Device(CUDA, place.gpu), dtypes)
        adapting = AdaptingInstance(session, options, strings, self._scalars)
        return BFloat16Instance(session, options, bfloat16, adapting) if bfloat16 else adapting

    @property
    def runs_by_shape(self) -> bool:
        """For numbers on the processor, by operators that are known."""
        spec = self._spec
        if spec is None or spec.accelerators or any(group.kind == "KIND_GPU" for group in spec.instance_groups):
            return False
        if _named((*spec.inputs.values(), *spec.outputs.values()), "BYTES"):
            return False
        if self._runs_by_shape is None:
            self._runs_by_shape = runs_by_shape(model_file(self.context))
        return self._runs_by_shape

    def close(self) -> None:
        """Release the sessions that the instances shared."""
        self._sessions.clear()

    # Sessions

    def _session(self, place: SessionPlace) -> Any:
        """The session for the next instance in ``place``: the shared one, or an exclusive one."""
        # While it loads, too: two instances that start at once must not each load a session that they could share.
        with self._lock:
            session = self._sessions.pop(place, None) or self._create(place)
            if self._settings[place].shareable:
                self._sessions[place] = session
        return session

    def _create(self, place: SessionPlace) -> Any:
        file, settings = model_file(self.context), self._settings[place]
        wanted = settings.accelerations
        # The threads of a session stay where the thread is that makes it.
        with place.affinity.held():
            if not any(each.known.cache for each in wanted if not each.caches_itself()):
                return self._on_providers(file, settings, wanted, place)
            return self._with_builds(file, settings, wanted, place)

    def _with_builds(
        self, file: Path, settings: SessionSettings, wanted: Sequence[Acceleration], place: SessionPlace
    ) -> Any:
        """A session whose accelerator keeps what it builds. Of several accelerators one builds at most."""
        import onnxruntime

        builder = next(each for each in wanted if each.known.cache and not each.caches_itself())
        base = accelerator_cache(self.context.backend_config.get(CACHE_SETTING))
        folder = build_folder(base, file, builder, onnxruntime.__version__, place.gpu)
        caching = [each.with_cache(str(folder)) if each is builder else each for each in wanted]
        return with_builds(
            self.context.model,
            builder.known.title,
            folder,
            lambda: self._on_providers(file, settings, caching, place),
        )

    def _on_providers(
        self, file: Path, settings: SessionSettings, wanted: Sequence[Acceleration], place: SessionPlace
    ) -> Any:
        return create_session(self.context.model, file, settings, providers(wanted, place.gpu))

    # What the configuration says

    def _place(self, group: InstanceGroupSpec, index: int) -> SessionPlace:
        return SessionPlace(_device(group, index), self.context.policies.affinity(group, index))

    def _settings_of(self, spec: ModelSpec) -> dict[SessionPlace, SessionSettings]:
        """The settings for each place of an instance, that of the first one first."""
        groups = spec.instance_groups or _expected_groups(None)
        places = dict.fromkeys(self._place(group, index) for group in groups for index in range(group.count))
        libraries = _operator_libraries(self.config)
        return {
            place: self._read(spec.parameters, spec.graph_level, spec.accelerators, libraries, groups, place)
            for place in places
        }

    def _read(
        self,
        given: Mapping[str, str],
        level: int | None,
        found: Sequence[AcceleratorSpec],
        libraries: tuple[str, ...],
        groups: Sequence[InstanceGroupSpec],
        place: SessionPlace,
    ) -> SessionSettings:
        import onnxruntime

        model, available = self.context.model, onnxruntime.get_available_providers()
        wanted = read_accelerations(model, found, given, place.gpu is not None)
        check_has_gpu(model, found, any(group.kind == "KIND_GPU" for group in groups), available)
        check_available(model, wanted, available, onnxruntime.__version__)
        count = self.context.policies.uniform(groups, place.affinity)
        settings = read_settings(self.context, given, level, count, place.affinity)
        accelerations = tuple(with_defaults(each, settings.threads) for each in wanted)
        settings = with_shrinkable_devices(settings, place.gpu)
        return replace(settings, accelerations=accelerations, operator_libraries=libraries)


def _operator_libraries(config: Any) -> tuple[str, ...]:
    """The paths of the libraries with custom operators, as they are written."""
    return () if config is None else tuple(config.model_operations.op_library_filename)


def _check_devices(spec: ModelSpec) -> None:
    """Refuse GPUs that the framework cannot use."""
    import onnxruntime

    gpu_groups = [g for g in spec.instance_groups if g.kind == "KIND_GPU"]
    if gpu_groups and CUDA_PROVIDER not in onnxruntime.get_available_providers():
        raise ModelLoadError(
            f"model '{spec.name}': instance group '{gpu_groups[0].name}' has kind KIND_GPU, and the installed "
            f"onnxruntime has no CUDA provider; install onnxruntime-gpu, or write kind: KIND_CPU"
        )


def _device(group: InstanceGroupSpec, index: int) -> int:
    gpu = group.gpu(index)
    return _NO_DEVICE if gpu is None else gpu


def _named(tensors: Iterable[TensorSpec], wire: str) -> frozenset[str]:
    return frozenset(t.name for t in tensors if t.dtype.wire == wire)


def _scalars(spec: ModelSpec, graph: GraphSignature) -> Mapping[str, tuple[int, ...]]:
    """Tensors without a shape in the graph that the configuration declares with ``dims`` of ones, and these dims.

    The framework's Python interface cannot tell a scalar from a tensor of unknown rank. ONNX allows the latter inside a
    graph, but not as its input or output.
    """
    if spec.max_batch_size:
        return {}
    bare = {t.name for t in (*graph.inputs, *graph.outputs) if t.shape is None}
    given = (*spec.inputs.values(), *spec.outputs.values())
    return {t.name: t.dims for t in given if t.name in bare and set(t.dims) == {1}}


def _check_scalars(spec: ModelSpec, graph: GraphSignature) -> None:
    """Refuse dims of more than one element for a scalar input: the framework itself would take them."""
    bare = {t.name for t in graph.inputs if t.shape is None}
    for tensor in spec.inputs.values():
        dims = tensor.dims if tensor.reshape is None else tensor.reshape
        if tensor.name in bare and any(dim > 1 for dim in dims):
            raise ModelLoadError(
                f"model '{spec.name}': the configuration does not fit the model: input '{tensor.name}': the "
                f"configuration says {shape_text(dims)}, the model has a scalar; write dims: [ 1 ]"
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


def _remark_on_shrinkage(spec: ModelSpec, settings: Iterable[SessionSettings]) -> None:
    """Warn of devices that are named for shrinkage and whose memory no session keeps."""
    kept = {device for each in settings for device in each.shrinkage.split(";")}
    for device in spec.parameters.get(SHRINKAGE, "").split(";"):
        if device not in kept:
            log.warning(
                "model '%s': parameter '%s' has no effect on %s: no instance keeps memory there",
                spec.name,
                SHRINKAGE,
                device,
            )


def _expected_groups(config: Any) -> tuple[InstanceGroupSpec, ...]:
    """The groups that the configuration will have once it is normalised; being wrong costs a second load only."""
    groups = [] if config is None else [instance_group(group) for group in config.instance_group]
    if not groups:
        return (InstanceGroupSpec("", "KIND_CPU", _DEFAULT_INSTANCES),)
    return tuple(
        replace(g, count=g.count or (len(g.gpus) or 1 if g.kind == "KIND_GPU" else _DEFAULT_INSTANCES)) for g in groups
    )
