"""The backend ``tensorflow``: SavedModels and frozen graphs (``model.savedmodel``, ``model.graphdef``).

``tensorflow`` is imported inside functions, so that a server without such models does not need it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from naiad.backend_api.backend import Backend, BackendContext, Instance
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.tensorflow.binding import bind
from naiad.backends.tensorflow.completion import complete_from, no_tensors
from naiad.backends.tensorflow.instance import FeedPlan, GraphCalls, ReshapingInstance, TensorFlowInstance
from naiad.backends.tensorflow.session import (
    CPU,
    GRAPH_DEF,
    SAVED_MODEL,
    LoadedGraph,
    load,
    prepare_framework,
    unusable,
)
from naiad.backends.tensorflow.settings import (
    GPU_IO,
    MIXED_PRECISION,
    GraphSettings,
    check_mixed_precision,
    read_settings,
)
from naiad.backends.tensorflow.settling import settle
from naiad.backends.tensorflow.signature import read_saved_model, saved_model_signature
from naiad.backends.tensorflow.tensorrt_optimizer import NAME as TENSORRT
from naiad.backends.tensorflow.tensorrt_optimizer import is_built_in, read_optimizer
from naiad.config.freeze import accelerators, graph_level, parameters
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import InstanceGroupSpec, ModelSpec
    from naiad.processes.affinity import Affinity

log = logging.getLogger("naiad")


@dataclass(frozen=True, slots=True)
class GraphPlace:
    """Where a session runs: its device as ``_device`` says it, and the cores of its threads."""

    device: str | None
    affinity: Affinity


class TensorFlowBackend(Backend):
    """One SavedModel or GraphDef version.

    All instances share a session, with its variables, or as many as MAX_SESSION_SHARE_COUNT says. A session may run
    several batches at a time.
    """

    framework = "tensorflow"

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._lock = threading.Lock()
        self._calls: dict[GraphPlace, list[GraphCalls]] = {}
        self._spec: ModelSpec | None = None
        self._settings = GraphSettings()
        self._plan: FeedPlan | None = None

    def uses_gpus(self) -> bool:
        """Whether the installed TensorFlow finds a GPU."""
        prepare_framework()
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the signature of a SavedModel. A GraphDef has none: it is refused without
        inputs and outputs, with those that it seems to have.
        """
        prepare_framework()
        names = tuple(each.name for each in accelerators(config))
        settings = read_settings(self.context, parameters(config), graph_level(config), names, instance_count=1)
        if config.platform == GRAPH_DEF:
            self._check_listed(config, settings)
            return
        meta = read_saved_model(self.context.model, self.context.model_path, settings.tags)
        signature = saved_model_signature(self.context.model, meta, settings.signature)
        reader = ParameterReader(self.context.model, self.context.backend_config, "backend config setting")
        complete_from(config, signature, reader.integer("default-max-batch-size", 4))

    def start(self, spec: ModelSpec) -> None:
        """Make the first session, and check ``spec`` against the graph."""
        prepare_framework()
        _check_platform(spec)
        place = GraphPlace(self._check_devices(spec), self.context.policies.first(spec.instance_groups))
        self._settings = self._read_settings(spec, place.affinity)
        self._spec = spec
        self._calls[place] = [self._prepared(self._load(place))]

    def regroup(self, spec: ModelSpec, config: Any) -> None:
        """Sessions that are made from now on divide the cores by the new instance count."""
        super().regroup(spec, config)
        settings = self._read_settings(spec, self.context.policies.first(spec.instance_groups))
        self._check_devices(spec)
        with self._lock:
            self._settings, self._spec = settings, spec

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """An instance on the processor, on the index-th GPU of a KIND_GPU group, or where the model says."""
        calls = self._take(GraphPlace(_device(group, index), self.context.policies.affinity(group, index)))
        plain = TensorFlowInstance(calls, self._release)
        return plain if calls.plan.is_plain else ReshapingInstance(plain, calls.plan)

    def close(self) -> None:
        """Release the sessions, those that no instance took included."""
        for found in self._calls.values():
            for calls in found:
                calls.close()
        self._calls.clear()

    # Sessions

    def _take(self, place: GraphPlace) -> GraphCalls:
        """The session for the next instance in ``place``."""
        # While it loads, too: two instances that start at once must not each load a session that they could share.
        with self._lock:
            found = self._calls.setdefault(place, [])
            limit = self._settings.share_count
            calls = next((c for c in found if not limit or c.users < limit), None)
            if calls is None:
                calls = self._prepared(self._load(place))
                found.append(calls)
            calls.users += 1
            return calls

    def _release(self, calls: GraphCalls) -> None:
        """Close a session with its last instance."""
        with self._lock:
            calls.users -= 1
            if calls.users:
                return
            for found in self._calls.values():
                if calls in found:
                    found.remove(calls)
        calls.close()

    def _load(self, place: GraphPlace) -> LoadedGraph:
        spec = self._started()
        settings = self._read_settings(spec, place.affinity)
        # Its threads stay where the thread is that makes it.
        with place.affinity.held():
            return load(self.context, spec.platform, settings, place.device, tuple(spec.outputs))

    def _prepared(self, graph: LoadedGraph) -> GraphCalls:
        """The calls of a session, after a first run that leaves nothing to the first request."""
        spec = self._started()
        try:
            self._plan = self._plan or bind(spec, graph.signature, self._settings.in_caller)
            calls = GraphCalls(graph, self._plan)
        except BaseException as error:
            graph.close()
            raise unusable(self.context, error) from error
        if not graph.writes:
            settle(calls, spec, self._plan, self._settings.compiles)
        return calls

    def _started(self) -> ModelSpec:
        if self._spec is None:
            raise ModelLoadError(f"model '{self.context.model}': start() comes before create_instance()")
        return self._spec

    # What the configuration says, and what the model has

    def _read_settings(self, spec: ModelSpec, affinity: Affinity) -> GraphSettings:
        count = self.context.policies.uniform(spec.instance_groups, affinity)
        names = tuple(each.name for each in spec.accelerators)
        found = read_settings(self.context, spec.parameters, spec.graph_level, names, count, affinity)
        optimizer = read_optimizer(spec.name, spec.accelerators)
        return replace(found, tensorrt=optimizer, max_batch_size=spec.max_batch_size)

    def _check_listed(self, config: Any, settings: GraphSettings) -> None:
        if config.input and config.output:
            return
        graph = load(self.context, GRAPH_DEF, settings, CPU, ())
        graph.close()
        raise no_tensors(self.context.model, graph.signature)

    def _check_devices(self, spec: ModelSpec) -> str | None:
        """The device of the first instance; ``ModelLoadError`` for what this machine does not have."""
        import tensorflow as tf

        gpus = [group for group in spec.instance_groups if group.kind == "KIND_GPU"]
        if gpus and not tf.config.list_physical_devices("GPU"):
            raise ModelLoadError(
                f"model '{spec.name}': instance group '{gpus[0].name}' has kind KIND_GPU, and tensorflow finds no GPU; "
                f"install a tensorflow with CUDA on a machine with a GPU, or write kind: KIND_CPU"
            )
        _check_accelerators(spec, bool(gpus))
        return _device(spec.instance_groups[0], 0) if spec.instance_groups else CPU


def _device(group: InstanceGroupSpec, index: int) -> str | None:
    """Where the operators of an instance run; None leaves it to the model (KIND_MODEL)."""
    if group.kind == "KIND_MODEL":
        return None
    gpu = group.gpu(index)
    return CPU if gpu is None else f"/gpu:{gpu}"


def _check_platform(spec: ModelSpec) -> None:
    if spec.platform not in (SAVED_MODEL, GRAPH_DEF):
        # The reference's words.
        raise ModelLoadError(
            f"platform {spec.platform} not supported for TensorFlow model '{spec.name}'; expected {SAVED_MODEL} or "
            f"{GRAPH_DEF}"
        )


def _check_accelerators(spec: ModelSpec, on_gpu: bool) -> None:
    names = tuple(each.name for each in spec.accelerators)
    if TENSORRT in names and on_gpu and not is_built_in():
        raise ModelLoadError(
            f"model '{spec.name}': optimization.execution_accelerators names '{TENSORRT}', which the installed "
            f"TensorFlow does not have; install tensorflow[and-cuda] 2.17, the last release with it, or convert the "
            f"model for the backend tensorrt"
        )
    if GPU_IO in names and on_gpu:
        log.info(
            "model '%s': '%s' has no effect: requests are in the memory of the processor, and are copied once",
            spec.name,
            GPU_IO,
        )
    on_cpu = any(group.kind != "KIND_GPU" for group in spec.instance_groups) or not spec.instance_groups
    if MIXED_PRECISION in names and on_cpu:
        check_mixed_precision(spec.name)
    for name in names:
        if name != MIXED_PRECISION and on_cpu:
            log.warning(
                "model '%s': GPU Execution Accelerator '%s' will be ignored for model instance on CPU", spec.name, name
            )
