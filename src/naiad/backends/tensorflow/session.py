"""TensorFlow sessions: a graph with its variables, made from a SavedModel or a GraphDef and the model's settings."""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.tensorflow.effects import unset_variables, writes_state
from naiad.backends.tensorflow.framework_import import import_tensorflow
from naiad.backends.tensorflow.signature import (
    ModelSignature,
    graph_signature,
    read_graph_def,
    read_saved_model,
    saved_model_signature,
)
from naiad.backends.tensorflow.tensorrt_optimizer import add_optimizer
from naiad.errors import ModelLoadError, first_line
from naiad.processes.affinity import everywhere

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from naiad.backend_api.backend import BackendContext
    from naiad.backends.tensorflow.settings import GraphSettings

SAVED_MODEL: Final = "tensorflow_savedmodel"
GRAPH_DEF: Final = "tensorflow_graphdef"
CPU: Final = "/cpu:0"

# Read by TensorFlow when it makes its first session: each session has threads of its own for its operators. Without it
# the first model that loads would decide for all others.
_OWN_POOLS: Final = ("TF_OVERRIDE_GLOBAL_THREADPOOL", "1")
_LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
_IN_CALLER: Final = -1
_ORIGINAL: Final = re.compile(r"Original error:\s*(.+)", re.DOTALL)
_HEADING: Final = "Graph execution error:"
_NODE: Final = re.compile(r"\{\{node ([^}]+)\}\}")
_UNKNOWN_OPERATOR: Final = re.compile(r"Op type not registered '(\w+)'")
_INIT_OPS: Final = "init_ops"


@dataclass(frozen=True, slots=True)
class LoadedGraph:
    """A session whose graph is complete and whose variables have their values.

    Attributes:
        writes: computing the outputs may change variables, tables or other state.
    """

    session: Any
    signature: ModelSignature
    writes: bool

    def callable(self, feeds: Sequence[str], fetches: Sequence[str], in_caller: bool) -> Callable[..., list[Any]]:
        """A function of the arrays at ``feeds`` that returns those at ``fetches``.

        The graph is optimised for it now, not in its first call.
        """
        from tensorflow.core.protobuf import config_pb2

        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
        if in_caller:
            options.run_options.inter_op_thread_pool = _IN_CALLER
        # ``make_callable`` itself looks every name up again in each call, which takes longer than a small model.
        made: Callable[..., list[Any]] = self.session._make_callable_from_options(options)
        return made

    def close(self) -> None:
        """Release the session, its variables and its graph."""
        from tensorflow.python.framework import ops

        self.session.close()
        _call_nothing()()
        # Its operators and the graph refer to each other, and should not wait for the garbage collector.
        ops.dismantle_graph(self.session.graph)


@cache
def _call_nothing() -> Callable[[], object]:
    """A call without inputs and outputs.

    TensorFlow lets go of the arrays that a call was given in its next call, in whichever session.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    graph = tf.Graph()
    with graph.as_default():
        tf.no_op("nothing")
    config = config_pb2.ConfigProto(device_count={"GPU": 0}, intra_op_parallelism_threads=1)
    # Its threads stay when the instance has ended whose thread calls this.
    with everywhere().held():
        session = tf.compat.v1.Session(graph=graph, config=config)
    made: Callable[[], object] = session._make_callable_from_options(config_pb2.CallableOptions(target=["nothing"]))
    return made


def prepare_framework() -> None:
    """Set what TensorFlow reads once; called before any session is made."""
    os.environ.setdefault(*_OWN_POOLS)
    import_tensorflow()
    import tensorflow

    if os.environ.get(_LOG_LEVEL, "3") not in ("0", "1"):
        # Its Python part reports that its own functions are deprecated, on which an operator cannot act.
        tensorflow.get_logger().setLevel(logging.ERROR)


def load(
    context: BackendContext, platform: str, settings: GraphSettings, device: str | None, outputs: Collection[str]
) -> LoadedGraph:
    """A session for a SavedModel or a GraphDef, restored and initialised.

    Args:
        device: where its operators run, like ``/gpu:0``; None where the model says it.
        outputs: names of those that are wanted.

    Raises:
        ModelLoadError: it cannot be loaded; the text has the path, the framework's reason and a remedy.
    """
    import tensorflow as tf

    graph = tf.Graph()
    session = tf.compat.v1.Session(graph=graph, config=_config(settings, device))
    try:
        with graph.as_default(), _placed(graph, device):
            fill = _fill_from_graph_def if platform == GRAPH_DEF else _fill_from_saved_model
            signature, definition = fill(context, settings, session, outputs)
        if settings.init_ops_file:
            names = read_init_ops(context, settings.init_ops_file)
            session.run([_operator(context.model, graph, name) for name in names])
    except BaseException as error:
        session.close()
        raise unusable(context, error) from error
    wanted = [signature.outputs[name].place for name in outputs if name in signature.outputs]
    if platform == GRAPH_DEF and not settings.init_ops_file and (names := unset_variables(definition, wanted)):
        session.close()
        raise ModelLoadError(
            f"model '{context.model}': the graph in {context.model_path} is not frozen: its outputs need the variable "
            f"'{names[0]}', whose value is not in it; freeze it with convert_variables_to_constants, serve it as a "
            f"SavedModel, or name operators that set its variables in TF_INIT_OPS_FILE"
        )
    return LoadedGraph(session, signature, writes_state(definition, wanted))


def _fill_from_saved_model(
    context: BackendContext, settings: GraphSettings, session: Any, outputs: Collection[str]
) -> tuple[ModelSignature, Any]:
    import tensorflow as tf

    meta = read_saved_model(context.model, context.model_path, settings.tags)
    signature = saved_model_signature(context.model, meta, settings.signature)
    tf.compat.v1.saved_model.load(session, list(settings.tags), str(context.model_path))
    return signature, meta.graph_def


def _fill_from_graph_def(
    context: BackendContext, settings: GraphSettings, session: Any, outputs: Collection[str]
) -> tuple[ModelSignature, Any]:
    import tensorflow as tf

    definition = read_graph_def(context.model, context.model_path)
    tf.graph_util.import_graph_def(definition, name="")
    return graph_signature(session.graph, outputs), definition


def failure_text(error: BaseException) -> str:
    """The framework's own words about a failure, with the operator that failed, without its traceback."""
    text = str(getattr(error, "message", "") or error)
    original = _ORIGINAL.search(text)
    lines = [line.strip() for line in (original[1] if original else text).splitlines() if line.strip()]
    # A heading, which some errors have before the reason.
    if len(lines) > 1 and lines[0] == _HEADING:
        del lines[0]
    line = lines[0] if lines else type(error).__name__
    nodes = _NODE.findall(text)
    return f"{line} (at: {nodes[-1]})" if nodes and nodes[-1] not in line else line


def _config(settings: GraphSettings, device: str | None) -> Any:
    """The ``ConfigProto`` of a session."""
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

    config = config_pb2.ConfigProto(
        intra_op_parallelism_threads=settings.intra_threads,
        inter_op_parallelism_threads=settings.inter_threads,
        use_per_session_threads=settings.own_threads,
        allow_soft_placement=settings.soft_placement,
    )
    # The whole graph comes at once, so the session needs no copies of it for what is added later.
    config.experimental.optimize_for_static_graph = True
    config.experimental.disable_output_partition_graphs = True
    optimizer = config.graph_options.optimizer_options
    optimizer.global_jit_level = config_pb2.OptimizerOptions.GlobalJitLevel.Value(settings.jit_level)
    if device == CPU:
        # Its memory would be taken for nothing.
        config.device_count["GPU"] = 0
    config.gpu_options.allow_growth = not settings.gpu_fraction
    config.gpu_options.per_process_gpu_memory_fraction = settings.gpu_fraction
    if settings.mixed_precision:
        rewrite = config.graph_options.rewrite_options
        on = rewriter_config_pb2.RewriterConfig.ON
        if device is not None and device != CPU:
            rewrite.auto_mixed_precision = on
        else:
            rewrite.auto_mixed_precision_onednn_bfloat16 = on
    if settings.tensorrt is not None and device is not None and device != CPU:
        add_optimizer(config.graph_options.rewrite_options, settings.tensorrt, settings.max_batch_size)
    return config


def _placed(graph: Any, device: str | None) -> Any:
    return nullcontext() if device is None else graph.device(device)


def read_init_ops(context: BackendContext, name: str) -> Sequence[str]:
    """The operators that the file ``TF_INIT_OPS_FILE`` lists: one in the version's folder, or else in the model's.

    Raises:
        ModelLoadError: the file is not there or has something else.
    """
    file = _init_ops_file(context, name)
    expected = f'expected {{"{_INIT_OPS}": ["name of an operator", ...]}}'
    try:
        content: Mapping[str, Any] = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"model '{context.model}': {file} cannot be read: {first_line(error)}; {expected}"
        ) from error
    names = content.get(_INIT_OPS) if isinstance(content, dict) and len(content) == 1 else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelLoadError(f"model '{context.model}': {file} has something else, {expected}")
    return names


def _init_ops_file(context: BackendContext, name: str) -> Path:
    # The name may come from a load request, and must not lead out of the model's folder.
    if Path(name).name != name:
        raise ModelLoadError(
            f"model '{context.model}': parameter 'TF_INIT_OPS_FILE' is \"{name}\", expected the name of a file in the "
            f"folder of the version or of the model"
        )
    version = context.version_directory or context.model_path.parent
    places = [version / name, version.parent / name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ModelLoadError(
            f"model '{context.model}': parameter 'TF_INIT_OPS_FILE' is \"{name}\", and there is neither {places[0]} "
            f"nor {places[1]}"
        )
    return found


def _operator(model: str, graph: Any, name: str) -> Any:
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        raise ModelLoadError(
            f"model '{model}': TF_INIT_OPS_FILE names the operator '{name}', which the graph does not have"
        ) from None


def unusable(context: BackendContext, error: BaseException) -> BaseException:
    """What to raise for a failed load: the error itself where it is no failure of the framework."""
    if isinstance(error, ModelLoadError) or not isinstance(error, Exception):
        return error
    return ModelLoadError(
        f"model '{context.model}': tensorflow cannot load {context.model_path}: {failure_text(error)}; {_remedy(error)}"
    )


def _remedy(error: Exception) -> str:
    operator = _UNKNOWN_OPERATOR.search(str(error))
    if operator:
        return (
            f"the installed TensorFlow has no operator {operator[1]}: install the version or the package that the "
            f"model was made with, or export it without"
        )
    if "min consumer version" in str(error):
        return "the model is of a newer TensorFlow; install that version, or export the model with this one"
    return "the files are damaged, incomplete or of another model; export or copy the whole folder again"
