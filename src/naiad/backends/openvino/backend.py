"""The backend ``openvino``: models in OpenVINO's own format (IR), ONNX, Paddle, TensorFlow and TensorFlow Lite.

The package of the same name is imported inside functions, so that a server without such models does not need it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import Backend, BackendContext, Instance
from naiad.backends.openvino.instance import AdaptingOpenVinoInstance, OpenVinoInstance, TensorPlan
from naiad.backends.openvino.model_file import model_file
from naiad.backends.openvino.session import compile_model, make_core, read_model
from naiad.backends.openvino.settings import OpenVinoSettings, read_settings
from naiad.backends.openvino.shapes import (
    BatchAxis,
    FittedModel,
    as_batching,
    fit_batch,
    has_batch_layouts,
    most_rows,
    with_dims,
)
from naiad.backends.openvino.signature import is_scalar, port_name, read_signature, shape_text
from naiad.backends.shared.completion import complete, complete_batching
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.signature import check_signature
from naiad.config.freeze import accelerators, parameters
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from naiad.config.spec import AcceleratorSpec, InstanceGroupSpec, ModelSpec, TensorSpec


class OpenVinoBackend(Backend):
    """One model version. It is compiled once, with a stream for each instance; an instance is an infer request."""

    framework = "openvino"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._lock = threading.Lock()
        self._core: Any = None
        self._read: Any = None
        self._fitted: FittedModel | None = None
        self._compiled: Any = None
        self._settings: OpenVinoSettings | None = None
        self._plan: TensorPlan | None = None

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the model; what was read for that is used by ``start``."""
        name = self.context.model
        _refuse_accelerators(name, accelerators(config))
        settings = read_settings(self.context, parameters(config), 1)
        model = self._model(settings)
        if settings.reshapes_io:
            model = with_dims(name, model, {t.name: _configured_shape(config, t) for t in config.input})
        if not config.max_batch_size:
            # Only for the completion: ``start`` gives it the size that is filled in here.
            model = as_batching(model) or model
        fitted = fit_batch(name, model, _axis_of_config(config), settings)
        reader = ParameterReader(name, self.context.backend_config, "backend config setting")
        default = most_rows(fitted.model, reader.integer("default-max-batch-size", 4))
        inputs, outputs = ({tensor.name for tensor in entries} for entries in (config.input, config.output))
        graph = read_signature(fitted.model, fitted.rows, inputs, outputs)
        # Where the model itself says that it batches, also for a configuration that lists all tensors.
        if has_batch_layouts(model) and graph.can_batch:
            complete_batching(config, graph, default)
        complete(config, graph, default)

    def start(self, spec: ModelSpec) -> None:
        """Give the model the shapes of ``spec``, check it against the configuration, and compile it."""
        _refuse_accelerators(spec.name, spec.accelerators)
        _check_kinds(spec)
        settings = read_settings(self.context, spec.parameters, spec.instance_count)
        model = self._model(settings)
        if settings.reshapes_io:
            model = with_dims(spec.name, model, {t.name: _shape(spec, t) for t in spec.inputs.values()})
        ragged = frozenset(t.name for t in spec.inputs.values() if t.allow_ragged_batch)
        fitted = fit_batch(spec.name, model, BatchAxis(spec.max_batch_size, ragged), settings)
        graph = read_signature(fitted.model, fitted.rows, spec.inputs, spec.outputs)
        check_signature(spec, graph.inputs, graph.outputs)
        self._plan = _plan(spec, fitted, ragged, settings.pads_batch)
        self._fitted, self._settings = fitted, settings
        self._compiled = compile_model(self._core, spec.name, fitted.model, settings)

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """New instances divide the cores by the new instance count, so the model is compiled anew for them."""
        super().regroup(spec, config)
        _check_kinds(spec)
        settings = read_settings(self.context, spec.parameters, spec.instance_count)
        with self._lock:
            if settings != self._settings:
                self._compiled = None
            self._settings = settings

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An infer request of the compiled model that all instances share."""
        # While it compiles, too: two instances that start at once must not each compile the model.
        with self._lock:
            if self._fitted is None or self._settings is None or self._plan is None:
                raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
            if self._compiled is None:
                self._compiled = compile_model(self._core, self.context.model, self._fitted.model, self._settings)
            request = self._compiled.create_infer_request()
        kind = OpenVinoInstance if self._plan.is_plain else AdaptingOpenVinoInstance
        return kind(request, self._plan)

    def close(self) -> None:
        """Release the model and what was compiled of it."""
        self._compiled = self._fitted = self._read = self._core = None

    def _model(self, settings: OpenVinoSettings) -> Any:
        if self._read is None:
            self._core = make_core(self.context.model, settings)
            self._read = read_model(self._core, self.context.model, model_file(self.context))
        return self._read


def _axis_of_config(config: Any) -> BatchAxis:
    made = {name for item in config.batch_input for name in item.target_name}
    return BatchAxis(config.max_batch_size, made.union(t.name for t in config.input if t.allow_ragged_batch))


def _configured_shape(config: Any, tensor: Any) -> list[int]:
    """The full shape of an input of a configuration message, as the model sees it."""
    lead = [-1] if config.max_batch_size and not tensor.allow_ragged_batch else []
    return [*lead, *(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)]


def _shape(spec: ModelSpec, tensor: TensorSpec) -> list[int]:
    """The full shape of an input, as the model sees it."""
    lead = [-1] if spec.max_batch_size and not tensor.allow_ragged_batch else []
    return [*lead, *(tensor.dims if tensor.reshape is None else tensor.reshape)]


def _plan(spec: ModelSpec, fitted: FittedModel, ragged: frozenset[str], pads: bool) -> TensorPlan:
    """How the tensors of ``spec``, which fits the model, are passed."""
    model = fitted.model
    inputs = _places(spec.inputs, model.inputs)
    outputs = _places(spec.outputs, model.outputs)
    tensors = (*spec.inputs.values(), *spec.outputs.values())
    bare = {n for n, i in inputs.items() if is_scalar(model.inputs[i])}
    bare.update(n for n, i in outputs.items() if is_scalar(model.outputs[i]))
    return TensorPlan(
        inputs=inputs,
        outputs=outputs,
        shapes={name: shape_text(model.inputs[i]) for name, i in inputs.items()},
        strings=_named(tensors, "BYTES"),
        bfloat16=_named(tensors, "BF16"),
        scalars=frozenset(t.name for t in tensors if t.name in bare and t.dims == (1,)),
        rows=fitted.rows,
        ragged=ragged,
        pads=pads,
    )


def _places(configured: Mapping[str, TensorSpec], ports: Sequence[Any]) -> dict[str, int]:
    return {name: i for i, port in enumerate(ports) for name in [port_name(port, configured)] if name in configured}


def _named(tensors: Iterable[TensorSpec], wire: str) -> frozenset[str]:
    return frozenset(t.name for t in tensors if t.dtype.wire == wire)


def _check_kinds(spec: ModelSpec) -> None:
    for group in spec.instance_groups:
        if group.kind == "KIND_GPU":
            raise ModelLoadError(
                f"model '{spec.name}': instance group '{group.name}' has kind KIND_GPU, and openvino runs on "
                f'Intel\'s GPUs only; write kind: KIND_CPU, and for such a GPU the parameter TARGET_DEVICE: "GPU"'
            )


def _refuse_accelerators(model: str, found: tuple[AcceleratorSpec, ...]) -> None:
    if found:
        raise ModelLoadError(
            f"model '{model}': optimization.execution_accelerators names '{found[0].name}', and the backend "
            f"openvino has none; remove it, and choose a device with the parameter TARGET_DEVICE"
        )
