"""Models of TensorFlow and Paddle, written without these frameworks: their files are protobuf messages.

Each is Y = 2 X for FP32 tensors [ -1, 3 ]. Numbers of fields: ``graph.proto`` and ``saved_model.proto`` of TensorFlow,
``framework.proto`` of Paddle.
"""

from __future__ import annotations

import struct
from pathlib import Path

_TF_FLOAT = 1
_PADDLE_FLOAT, _PADDLE_TENSOR, _PADDLE_FEED, _PADDLE_FETCH = 5, 7, 9, 10
_PADDLE_INT_ATTRIBUTE, _PADDLE_FLOAT_ATTRIBUTE, _PADDLE_BOOL_ATTRIBUTE = 0, 1, 6


def graph_def(path: Path) -> Path:
    """A frozen graph of TensorFlow."""
    path.write_bytes(_graph())
    return path


def saved_model(folder: Path) -> Path:
    """A SavedModel of TensorFlow, whose signature calls the tensors INPUT and OUTPUT."""
    folder.mkdir(parents=True)
    (folder / "variables").mkdir()
    signature = (
        _entry(1, "INPUT", _tensor_info("X:0")) + _entry(2, "OUTPUT", _tensor_info("Y:0")) + _bytes(3, "predict")
    )
    meta = _bytes(1, _bytes(4, "serve")) + _bytes(2, _graph()) + _entry(5, "serving_default", signature)
    (folder / "saved_model.pb").write_bytes(_number(1, 1) + _bytes(2, meta))
    return folder


def paddle(path: Path) -> Path:
    """An inference program of Paddle without weights."""
    tensor = _number(1, _PADDLE_TENSOR) + _bytes(3, _bytes(1, _number(1, _PADDLE_FLOAT) + _shape_of_paddle()))
    variables = [
        _variable("feed", _number(1, _PADDLE_FEED)),
        _variable("fetch", _number(1, _PADDLE_FETCH)),
        _variable("X", tensor),
        _variable("Y", tensor),
    ]
    column = _attribute("col", _PADDLE_INT_ATTRIBUTE, _number(3, 0))
    scale = [
        _attribute("scale", _PADDLE_FLOAT_ATTRIBUTE, _float(4, 2.0)),
        _attribute("bias", _PADDLE_FLOAT_ATTRIBUTE, _float(4, 0.0)),
        _attribute("bias_after_scale", _PADDLE_BOOL_ATTRIBUTE, _number(10, 1)),
    ]
    operators = [
        _operator("feed", "feed", "X", [column]),
        _operator("scale", "X", "Y", scale),
        _operator("fetch", "Y", "fetch", [column]),
    ]
    block = _number(1, 0) + _number(2, (1 << 64) - 1) + b"".join(variables) + b"".join(operators)
    path.write_bytes(_bytes(1, block) + _bytes(4, _number(1, 2006000)))
    return path


def _graph() -> bytes:
    floats = _entry(5, "dtype", _number(6, _TF_FLOAT))
    x = _bytes(1, "X") + _bytes(2, "Placeholder") + floats + _entry(5, "shape", _bytes(7, _shape_of_tensorflow()))
    y = _bytes(1, "Y") + _bytes(2, "AddV2") + _bytes(3, "X") + _bytes(3, "X") + _entry(5, "T", _number(6, _TF_FLOAT))
    return _bytes(1, x) + _bytes(1, y) + _bytes(4, _number(1, 1087))


def _tensor_info(name: str) -> bytes:
    return _bytes(1, name) + _number(2, _TF_FLOAT) + _bytes(3, _shape_of_tensorflow())


def _shape_of_tensorflow() -> bytes:
    return _bytes(2, _number(1, (1 << 64) - 1)) + _bytes(2, _number(1, 3))


def _shape_of_paddle() -> bytes:
    return _number(2, (1 << 64) - 1) + _number(2, 3)


def _variable(name: str, kind: bytes) -> bytes:
    return _bytes(3, _bytes(1, name) + _bytes(2, kind) + _number(3, 0))


def _operator(kind: str, source: str, target: str, attributes: list[bytes]) -> bytes:
    given = _bytes(1, _bytes(1, "X") + _bytes(2, source))
    made = _bytes(2, _bytes(1, "Out") + _bytes(2, target))
    return _bytes(4, given + made + _bytes(3, kind) + b"".join(attributes))


def _attribute(name: str, kind: int, value: bytes) -> bytes:
    return _bytes(4, _bytes(1, name) + _number(2, kind) + value)


def _entry(field: int, key: str, value: bytes) -> bytes:
    return _bytes(field, _bytes(1, key) + _bytes(2, value))


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
