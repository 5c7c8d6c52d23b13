"""The backend ``tensorrt``: plans (``model.plan``), which run on NVIDIA's GPUs only.

The packages ``tensorrt`` and ``cuda`` are imported inside functions, so that a server without plans does not need them.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import Backend, BackendContext, Instance
from naiad.backends.shared.completion import complete
from naiad.backends.shared.signature import check_signature
from naiad.backends.tensorrt.cuda import GpuStream
from naiad.backends.tensorrt.graph_specs import usual_sizes, wanted_graphs
from naiad.backends.tensorrt.instance import PlanInstance, PlanTensor, PlanTensors
from naiad.backends.tensorrt.session import load_engine, make_context
from naiad.backends.tensorrt.settings import PlanSettings, profile_numbers, read_settings
from naiad.backends.tensorrt.signature import PlanSignature, narrowed, read_signature
from naiad.errors import ModelLoadError
from naiad.tensor.dtypes import BF16, BY_WIRE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.backends.shared.signature import ModelTensor
    from naiad.config.spec import InstanceGroupSpec, ModelSpec

log = logging.getLogger("naiad")


class TensorRtBackend(Backend):
    """One plan. The instances on a GPU share its engine, with its weights; each has execution contexts of its own."""

    framework = "tensorrt"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._lock = threading.Lock()
        self._engines: dict[tuple[int, int | None], Any] = {}
        self._spec: ModelSpec | None = None
        self._settings = PlanSettings()
        self._signature: PlanSignature | None = None
        self._tensors: PlanTensors | None = None

    def uses_gpus(self) -> bool:
        """True: a plan has no other place."""
        return True

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the plan; the engine that was loaded for that is used by ``start``."""
        _check_kinds(self.context.model, [group.kind for group in self._groups(config)])
        self._settings = read_settings(self.context, config)
        signature = read_signature(self.context.model, self._engine(*self._first_place(self._groups(config))))
        complete(config, signature.graph, signature.most_rows)

    def start(self, spec: ModelSpec) -> None:
        """Load the plan onto the first GPU, and check ``spec`` against it."""
        _check_kinds(spec.name, [group.kind for group in spec.instance_groups])
        self._settings = read_settings(self.context, self.config)
        engine = self._engine(*self._first_place(spec.instance_groups))
        signature = read_signature(spec.name, engine)
        graph, narrow = narrowed(spec, signature.graph)
        check_signature(spec, graph.inputs, graph.outputs)
        if narrow:
            log.info(
                "model '%s': %s are TYPE_INT64 and 32 bits wide in the plan; a value beyond that is refused",
                spec.name,
                ", ".join(sorted(narrow)),
            )
        _check_shape_tensors(spec, signature)
        self._check_groups(spec, signature)
        self._signature, self._spec = signature, spec
        self._tensors = PlanTensors(
            _plan_tensors(graph.inputs, narrow, signature),
            _plan_tensors(graph.outputs, narrow, signature),
            self._settings.pinned,
            self.context.pinned_bytes,
        )

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """New instances use other GPUs and profiles; existing ones stay."""
        _check_kinds(spec.name, [group.kind for group in spec.instance_groups])
        if self._signature is not None:
            self._check_groups(spec, self._signature)
        super().regroup(spec, config)
        with self._lock:
            self._spec = spec

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance on its GPU, with what is to be captured captured."""
        spec, signature, tensors = self._spec, self._signature, self._tensors
        device = group.gpu(index)
        if spec is None or signature is None or tensors is None or device is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        settings = self._settings
        engine = self._engine(device, group.dla)
        stream = GpuStream(device, settings.priority, settings.busy_waits)
        numbers = profile_numbers(spec.name, group.profile, len(signature.profiles))
        contexts = {n: make_context(spec.name, engine, settings.strategy, n, stream.handle) for n in numbers}
        instance = PlanInstance(tensors, contexts, [signature.profiles[n] for n in numbers], stream)
        if settings.captures:
            instance.capture(spec.name, self._wanted(spec, settings, [t.name for t in tensors.inputs]))
        return instance

    def close(self) -> None:
        """Release the engines that the instances shared."""
        self._engines.clear()

    def _engine(self, device: int, dla: int | None) -> Any:
        with self._lock:
            if (device, dla) not in self._engines:
                path = self.context.model_path
                self._engines[device, dla] = load_engine(self.context.model, path, device, dla, self._settings)
            return self._engines[device, dla]

    @staticmethod
    def _groups(config: Any) -> list[InstanceGroupSpec]:
        # Imported here: freezing knows the whole configuration.
        from naiad.config.freeze import instance_group

        return [instance_group(group) for group in config.instance_group]

    @staticmethod
    def _first_place(groups: Sequence[InstanceGroupSpec]) -> tuple[int, int | None]:
        return (groups[0].gpu(0) or 0, groups[0].dla) if groups else (0, None)

    @staticmethod
    def _wanted(spec: ModelSpec, settings: PlanSettings, names: Sequence[str]) -> list[Any]:
        dims = {t.name: t.dims if t.reshape is None else t.reshape for t in spec.inputs.values()}
        preferred = spec.batching.preferred_batch_sizes if spec.batching is not None else ()
        return wanted_graphs(settings.graph_specs, names, dims, usual_sizes(spec.max_batch_size, preferred))

    def _check_groups(self, spec: ModelSpec, signature: PlanSignature) -> None:
        for group in spec.instance_groups:
            for number in profile_numbers(spec.name, group.profile, len(signature.profiles)):
                most = signature.profiles[number].most_rows
                if most < spec.max_batch_size:
                    raise ModelLoadError(
                        f"model '{spec.name}': max_batch_size is {spec.max_batch_size}, and profile {number} of the "
                        f"plan takes batches of {most} at most; write max_batch_size: {most}, or build one for more"
                    )


def _check_kinds(model: str, kinds: Sequence[str]) -> None:
    wrong = [kind for kind in kinds if kind not in ("KIND_GPU", "KIND_AUTO")]
    if wrong:
        raise ModelLoadError(
            f"model '{model}': an instance group has kind {wrong[0]}, and a plan of TensorRT runs on NVIDIA's GPUs "
            f"only; write kind: KIND_GPU, or serve the ONNX file that the plan was built from"
        )


def _check_shape_tensors(spec: ModelSpec, signature: PlanSignature) -> None:
    if spec.max_batch_size and signature.on_host:
        raise ModelLoadError(
            f"model '{spec.name}': '{min(signature.on_host)}' is a shape tensor, which a batch of several requests "
            f"cannot have in common; write max_batch_size: 0 and full shapes as dims"
        )


def _plan_tensors(
    tensors: Sequence[ModelTensor], narrow: frozenset[str], signature: PlanSignature
) -> tuple[PlanTensor, ...]:
    found = []
    for tensor in tensors:
        if tensor.dtype is not None:
            own = BY_WIRE["INT32"] if tensor.name in narrow else tensor.dtype
            # The bits of BF16, which numpy does not know, travel as they are.
            stored = BY_WIRE["UINT16"].numpy if own is BF16 else own.numpy
            found.append(PlanTensor(tensor.name, tensor.dtype, stored, tensor.name in signature.on_host))
    return tuple(found)
