"""The tensors that a SavedModel's signature or a GraphDef declares, and their names in the graph."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.signature import ModelTensor
from naiad.backends.tensorflow.effects import VARIABLES
from naiad.config.parsing.suggest import did_you_mean
from naiad.errors import ModelLoadError, first_line
from naiad.tensor.dtypes import BY_WIRE

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

log = logging.getLogger("naiad")

_DTYPES: Final = {
    "DT_BOOL": "BOOL",
    "DT_UINT8": "UINT8",
    "DT_UINT16": "UINT16",
    "DT_UINT32": "UINT32",
    "DT_UINT64": "UINT64",
    "DT_INT8": "INT8",
    "DT_INT16": "INT16",
    "DT_INT32": "INT32",
    "DT_INT64": "INT64",
    "DT_HALF": "FP16",
    "DT_BFLOAT16": "BF16",
    "DT_FLOAT": "FP32",
    "DT_DOUBLE": "FP64",
    "DT_STRING": "BYTES",
}
_DEFAULT_SIGNATURE: Final = "serving_default"
# Signatures that a SavedModel has for its own loading.
_INTERNAL: Final = ("__saved_model_init_op", "__saved_model_train_op")
_FILE: Final = "saved_model.pb"
# How the text form of a graph may begin.
_TEXT: Final = (b"node {", b"versions {", b"library {")
_VARIABLES: Final = Path("variables", "variables.index")
_WITH_DEFAULT: Final = "PlaceholderWithDefault"
_PLACEHOLDERS: Final = ("Placeholder", "PlaceholderV2", _WITH_DEFAULT)


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """One input or output.

    Attributes:
        tensor: as the model declares it.
        place: its name in the graph, like ``x:0``.
        rank: None where the model does not say it, and 0 for a scalar.
    """

    tensor: ModelTensor
    place: str
    rank: int | None


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """What a model can be called with, and what it returns, by name."""

    inputs: Mapping[str, GraphTensor]
    outputs: Mapping[str, GraphTensor]

    @property
    def input_tensors(self) -> tuple[ModelTensor, ...]:
        """The inputs as the model declares them."""
        return tuple(found.tensor for found in self.inputs.values())

    @property
    def output_tensors(self) -> tuple[ModelTensor, ...]:
        """The outputs as the model declares them."""
        return tuple(found.tensor for found in self.outputs.values())


# SavedModel


def read_saved_model(model: str, folder: Path, tags: tuple[str, ...]) -> Any:
    """The ``MetaGraphDef`` of a SavedModel that has exactly these tags.

    Raises:
        ModelLoadError: there is no such folder or graph, the file is damaged, or its variables are missing.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    file = _saved_model_file(model, folder)
    try:
        saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': {file} is no SavedModel: {first_line(error)}; the file is damaged or cut short; export "
            f"or copy it again"
        ) from error
    found = next((g for g in saved.meta_graphs if set(g.meta_info_def.tags) == set(tags)), None)
    if found is None:
        raise _no_tags(model, folder, tags, saved)
    if _has_variables(found) and not (folder / _VARIABLES).is_file():
        raise ModelLoadError(
            f"model '{model}': the graph in {file} has variables, and there is no file {folder / _VARIABLES} with "
            f"their values; copy the folder variables as well"
        )
    return found


def saved_model_signature(model: str, meta: Any, wanted: str) -> ModelSignature:
    """The signature called ``wanted``, or the default one for "".

    Raises:
        ModelLoadError: there is none; the text lists what there is.
    """
    name = _signature_name(model, meta, wanted)
    definition = meta.signature_def[name]
    # A placeholder with a value of its own need not be fed.
    own = {f"{node.name}:0" for node in meta.graph_def.node if node.op == _WITH_DEFAULT}
    return ModelSignature(
        {key: _of_info(key, definition.inputs[key], own) for key in sorted(definition.inputs)},
        {key: _of_info(key, definition.outputs[key]) for key in sorted(definition.outputs)},
    )


def _saved_model_file(model: str, folder: Path) -> Path:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ModelLoadError(
            f"model '{model}': {folder} {what}, expected the folder of a SavedModel; put it there, or name it with "
            f"default_model_filename in the configuration"
        )
    file = folder / _FILE
    if not file.is_file():
        names = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
        raise ModelLoadError(
            f"model '{model}': {folder} is no SavedModel: it has {names}, expected {_FILE} and the folder variables; "
            f"write it with tf.saved_model.save(model, folder) or, in Keras, model.export(folder)"
        )
    if file.stat().st_size == 0:
        raise ModelLoadError(f"model '{model}': {file} is empty; export or copy it again")
    return file


def _no_tags(model: str, folder: Path, tags: tuple[str, ...], saved: Any) -> ModelLoadError:
    there = [",".join(sorted(g.meta_info_def.tags)) or "none" for g in saved.meta_graphs]
    # The first words are the reference's.
    return ModelLoadError(
        f"unable to load model '{model}', expected '{','.join(tags)}' tag: the graphs in {folder} have the tags "
        f"{_listed(there)}; write one of them as parameter TF_GRAPH_TAG"
    )


def _has_variables(meta: Any) -> bool:
    return any(node.op in VARIABLES for node in meta.graph_def.node)


def _signature_name(model: str, meta: Any, wanted: str) -> str:
    there: list[str] = sorted(name for name in meta.signature_def if name not in _INTERNAL)
    name = wanted or _DEFAULT_SIGNATURE
    if name in there:
        return name
    if wanted or not there:
        # The first words are the reference's.
        raise ModelLoadError(
            f"unable to load model '{model}', expected '{name}' signature{did_you_mean(name, there) or ':'} the model "
            f"has {_listed(there)}" + ("; write one of them as parameter TF_SIGNATURE_DEF" if there else "")
        )
    log.warning(
        "model '%s': unable to find default serving signature '%s', using signature '%s'", model, name, there[0]
    )
    return there[0]


def _of_info(name: str, info: Any, own: Container[str] = ()) -> GraphTensor:
    """A ``TensorInfo`` of a signature; ``own`` are the places of placeholders that have values."""
    from tensorflow.core.framework import types_pb2

    encoding = info.WhichOneof("encoding")
    if encoding != "name":
        text = "a sparse tensor" if encoding == "coo_sparse" else "a composite tensor"
        return GraphTensor(ModelTensor(name, None, text, None), "", None)
    shape = None if info.tensor_shape.unknown_rank else tuple(d.size for d in info.tensor_shape.dim)
    return _graph_tensor(name, info.name, types_pb2.DataType.Name(info.dtype), shape, info.name not in own)


# GraphDef


def read_graph_def(model: str, file: Path) -> Any:
    """The ``GraphDef`` in a file.

    Raises:
        ModelLoadError: there is none; the text says what is there.
    """
    from tensorflow.core.framework import graph_pb2

    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise ModelLoadError(
            f"model '{model}': the model file {file} {what}; put the frozen graph there, or name it with "
            f"default_model_filename in the configuration"
        )
    try:
        graph = graph_pb2.GraphDef.FromString(file.read_bytes())
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': {file} is no GraphDef in its binary form: {first_line(error)}; {_other_kind(file)}"
        ) from error
    if not graph.node:
        raise ModelLoadError(f"model '{model}': {file} has an empty network; export or copy it again")
    return graph


def _other_kind(file: Path) -> str:
    """What a file is that is no binary GraphDef, and what to do."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    content = file.read_bytes()
    if content.lstrip().startswith(_TEXT):
        return "it is a GraphDef as text; write it with tf.io.write_graph(graph, folder, name, as_text=False)"
    try:
        is_saved_model = bool(saved_model_pb2.SavedModel.FromString(content).meta_graphs)
    except DecodeError:
        is_saved_model = False
    if is_saved_model:
        return (
            "it is the saved_model.pb of a SavedModel; put its whole folder there as model.savedmodel, with "
            'platform: "tensorflow_savedmodel"'
        )
    return "the file is damaged, cut short or something else; export or copy it again"


def graph_signature(graph: Any, outputs: Iterable[str]) -> ModelSignature:
    """The tensors of an imported graph: its placeholders, the outputs that are asked for where they exist, and the
    results that no other operator takes.
    """
    operators = graph.get_operations()
    inputs = [_of_tensor(op.name, op.outputs[0], op.type) for op in operators if op.type in _PLACEHOLDERS]
    asked = {name: tensor for name in outputs if (tensor := _tensor(graph, name)) is not None}
    ends = {op.name: op.outputs[0] for op in operators if _is_end(op)}
    found = [_of_tensor(name, tensor) for name, tensor in (ends | asked).items()]
    return ModelSignature({t.tensor.name: t for t in inputs}, {t.tensor.name: t for t in found})


def _tensor(graph: Any, name: str) -> Any:
    """The tensor called like an operator, or like ``operator:1``; None when there is none."""
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError):
        return None


def _is_end(operator: Any) -> bool:
    return (
        bool(operator.outputs)
        and operator.type not in _PLACEHOLDERS
        and not any(tensor.consumers() for tensor in operator.outputs)
    )


def _of_tensor(name: str, tensor: Any, kind: str = "Placeholder") -> GraphTensor:
    from tensorflow.core.framework import types_pb2

    dims = tensor.shape.rank
    shape = None if dims is None else tuple(-1 if d is None else d for d in tensor.shape.as_list())
    data_type = types_pb2.DataType.Name(tensor.dtype.as_datatype_enum)
    return _graph_tensor(name, tensor.name, data_type, shape, kind != _WITH_DEFAULT)


def _graph_tensor(name: str, place: str, data_type: str, shape: tuple[int, ...] | None, required: bool) -> GraphTensor:
    wire = _DTYPES.get(data_type)
    tensor = ModelTensor(name, BY_WIRE[wire] if wire else None, data_type, shape or None, required)
    return GraphTensor(tensor, place, None if shape is None else len(shape))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
