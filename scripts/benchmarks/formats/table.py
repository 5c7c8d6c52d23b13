"""All formats, and the rows that the case prints."""

from __future__ import annotations

from .onnx_files import ONNX, OPENVINO
from .tensorflow_files import SAVED_MODEL
from .torch_files import ARCHIVE, EAGER, PACKAGE, SCRIPT
from .tree_files import TREES_OF_XGBOOST

FORMATS = (ONNX, SCRIPT, ARCHIVE, PACKAGE, EAGER, SAVED_MODEL, OPENVINO, TREES_OF_XGBOOST)
