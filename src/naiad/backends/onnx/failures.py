"""Why ONNX Runtime does not load a model, and what to do about it."""

from __future__ import annotations

import re
from typing import Final

from naiad.errors import first_line

# The file of its source, the line and the function, before the reason itself.
_PLACE: Final = re.compile(r"/\S+\.(?:cc|h):\d+ .*?\) (?=[A-Z])")
_BY_CLASS: Final = {
    "InvalidProtobuf": "the file is damaged, cut short or not an ONNX model; export or copy it again",
    "InvalidGraph": "check it with onnx.checker, and that this onnxruntime knows its operators",
    "NotImplemented": "this onnxruntime lacks an operator of it; update onnxruntime or export for an older opset",
    "Fail": "check it with onnx.checker, and that its external data files are there",
}
# What the text of a failure of any class says, most special first.
_BY_TEXT: Final = (
    ("IR version", "the model is newer than onnxruntime {version}; update onnxruntime, or export with an older onnx"),
    ("opset", "the model is newer than onnxruntime {version}; update onnxruntime, or export for an older opset"),
    (
        "is not a registered function/op",
        "onnxruntime {version} has no such operator; name the library that has it with model_operations {{ "
        "op_library_filename: ... }}, or export the model with operators of ONNX",
    ),
    ("External data path does not exist", "the weights of the model lie beside it; copy that file, too"),
    ("External initializer", "the file with the weights is cut short or of another export; copy both files again"),
    ("is not currently registered or supported", "onnxruntime {version} has no such datatype; export without it"),
)


def reason_of(error: Exception) -> str:
    """What ONNX Runtime says, without places in its source, and a remedy where there is one."""
    import onnxruntime

    said = first_line(error)
    reason = bare_reason(error)
    hint = next((hint for words, hint in _BY_TEXT if words in said), _BY_CLASS.get(type(error).__name__))
    return f"{reason.rstrip('.')}; {hint.format(version=onnxruntime.__version__)}" if hint else reason


def bare_reason(error: Exception) -> str:
    """What ONNX Runtime says, without places in its source."""
    return _PLACE.sub("", first_line(error))
