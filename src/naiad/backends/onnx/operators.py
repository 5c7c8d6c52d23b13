"""The operators of an ONNX file, and whether the time of its runs depends on shapes alone.

The file is walked through where it lies, since a parser would copy its weights into memory.
Source of the numbers of fields: onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

MOST_NODES: Final = 10_000
"""A graph with more operators does not run in a moment."""
# ModelProto, GraphProto, NodeProto.
_GRAPH: Final = 7
_NODE: Final = 1
_OPERATOR, _DOMAIN = 4, 7
# Wire types of protobuf.
_VARINT, _EIGHT_BYTES, _MESSAGE, _FOUR_BYTES = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no protobuf message."""


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

    False for a file that is no ONNX protobuf.
    """
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _is_known(data)
    except (OSError, ValueError):
        return False


def _is_known(data: mmap.mmap) -> bool:
    count = 0
    for begin, end in _messages(data, 0, len(data), _GRAPH):
        for node in _messages(data, begin, end, _NODE):
            count += 1
            if count > MOST_NODES or not _is_known_node(data, *node):
                return False
    return count > 0


def _is_known_node(data: mmap.mmap, begin: int, end: int) -> bool:
    domain = name = ""
    for number, at, after in _fields(data, begin, end):
        if number == _OPERATOR:
            name = _text(data, at, after)
        elif number == _DOMAIN:
            domain = _text(data, at, after)
    # None of those that are known runs a graph of its attributes.
    return name in _KNOWN.get(domain, ())


def _text(data: mmap.mmap, begin: int, end: int) -> str:
    return data[begin:end].decode("utf-8", "replace")


def _messages(data: mmap.mmap, begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the messages in a field of a message."""
    for number, at, after in _fields(data, begin, end):
        if number == wanted:
            yield at, after


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The number of each field of a message, and where its value begins and ends.

    Raises:
        WireError: a field is none, or ends behind the message.
    """
    at = begin
    while at < end:
        key, at = _varint(data, at, end)
        kind = key & 7
        after = at
        if kind == _VARINT:
            _, after = _varint(data, at, end)
        elif kind == _MESSAGE:
            size, at = _varint(data, at, end)
            after = at + size
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            after = at + (8 if kind == _EIGHT_BYTES else 4)
        else:
            raise WireError(f"wire type {kind}")
        if after > end:
            raise WireError("a field ends behind its message")
        yield key >> 3, at, after
        at = after


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("a number does not end")
