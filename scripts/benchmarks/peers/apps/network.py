"""What every application here serves: one ONNX network, one thread for a call, rows of FP32 in and scores out.

Settings come from the environment: ``PEER_NETWORK`` is the file, ``PEER_ROW`` the shape of a row (``3,224,224``),
``PEER_WIRE`` the form of requests (``json``, ``b64`` or ``binary``), ``PEER_WORKERS`` how many processes may compute.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime

Array = np.ndarray[Any, Any]
ROW = tuple(int(size) for size in os.environ["PEER_ROW"].split(","))
WIRE = os.environ["PEER_WIRE"]
WORKERS = int(os.environ["PEER_WORKERS"])
MAX_BATCH_SIZE = 8
MAX_WAIT_MS = 1
TIMEOUT_S = 10


class Network:
    """The network in this process."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # Workers share cores: a thread that spins would take them from one another.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            os.environ["PEER_NETWORK"], options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def run(self, rows: Array) -> Array:
        """The scores of ``rows``, [batch, *ROW]: [batch, classes]."""
        scores: Array = self._session.run(None, {self._input: rows})[0]
        return scores


def row_of_values(values: Sequence[float]) -> Array:
    """A row of a flat list of numbers."""
    return np.array(values, np.float32).reshape(ROW)


def row_of_bytes(data: bytes) -> Array:
    """A row of its bytes."""
    return np.frombuffer(data, np.float32).reshape(ROW)


def row_of_base64(text: str) -> Array:
    """A row of its bytes as base64."""
    return row_of_bytes(base64.b64decode(text))


def base64_of(scores: Array) -> str:
    """The bytes of scores as base64."""
    return base64.b64encode(scores.tobytes()).decode()
