"""The operators of an ONNX file, and whether the time of its runs depends on shapes alone."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_BYTES: Final = 64 << 20
"""Larger files are not read: what has so many weights does not run in a moment."""
_PACKAGE: Final = "naiad.onnx_operators"
_STRING: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_MESSAGE: Final = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_REPEATED: Final = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_OPTIONAL: Final = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Loops, and operators whose work or whose output depends on the values of an input (Range, Expand, Tile, Pad, Resize,
# ConstantOfShape, OneHot), are left out, and with them everything that is unknown: a caller could make one run last.
BY_SHAPE: Final = _names(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift BitwiseAnd
    BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Compress Concat Constant Conv ConvInteger
    ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu Equal
    Erf Exp Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool
    Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf
    IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul
    MatMulInteger Max MaxPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg NonZero Not Or PRelu Pow
    QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape ReverseSequence
    Round ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign
    SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu TopK Transpose Trilu Unique Unsqueeze Where Xor
    """
)
BY_SHAPE_ML: Final = _names(
    """
    ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LabelEncoder LinearClassifier LinearRegressor
    Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble TreeEnsembleClassifier
    TreeEnsembleRegressor
    """
)
_KNOWN: Final = {"": BY_SHAPE, "ai.onnx": BY_SHAPE, "ai.onnx.ml": BY_SHAPE_ML}


def runs_by_shape(file: Path) -> bool:
    """Whether every operator of a file is known to take a time that depends on the shapes of its inputs alone.

    False for a file that is large, or that is no ONNX protobuf.
    """
    try:
        if file.stat().st_size > MOST_BYTES:
            return False
        model = _model_class().FromString(file.read_bytes())
    except (OSError, DecodeError):
        return False
    # A model that calls functions of its own is left out.
    found = set(_operators(model.graph))
    return bool(found) and all(name in _KNOWN.get(domain, ()) for domain, name in found)


def _operators(graph: Any) -> Iterator[tuple[str, str]]:
    """Domain and name of each operator, those of subgraphs included."""
    for node in graph.node:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            yield from _operators(attribute.g)
            for inner in attribute.graphs:
                yield from _operators(inner)


@cache
def _model_class() -> Any:
    """The message of a file, with the fields that name operators. Numbers: onnx.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="naiad/onnx_operators.proto", package=_PACKAGE, syntax="proto2")

    def message(name: str, *fields: tuple[str, int, str, bool]) -> None:
        made = file.message_type.add(name=name)
        for field, number, of, is_repeated in fields:
            label = _REPEATED if is_repeated else _OPTIONAL
            if of:
                made.field.add(name=field, number=number, label=label, type=_MESSAGE, type_name=f".{_PACKAGE}.{of}")
            else:
                made.field.add(name=field, number=number, label=label, type=_STRING)

    message("Model", ("graph", 7, "Graph", False))
    message("Graph", ("node", 1, "Node", True))
    message("Node", ("op_type", 4, "", False), ("domain", 7, "", False), ("attribute", 5, "Attribute", True))
    message("Attribute", ("g", 6, "Graph", False), ("graphs", 11, "Graph", True))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Model"))
