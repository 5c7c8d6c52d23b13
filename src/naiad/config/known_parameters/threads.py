"""The parameter with the threads of an instance, where instances have threads of their own."""

from __future__ import annotations

from typing import Final

THREADS: Final = {
    "onnxruntime": "intra_op_thread_count",
    "pytorch": "INTRA_OP_THREAD_COUNT",
}
"""By backend."""
