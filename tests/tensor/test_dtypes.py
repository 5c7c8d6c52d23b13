"""The table of datatypes against the protocol."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from naiad.tensor.dtypes import BY_CONFIG, BY_NUMPY, BY_WIRE, BYTES, DATATYPES

# Protocol section "Tensor Data Types": wire name, bytes of an element (0: varies), name in the model configuration.
PROTOCOL = {
    "BOOL": (1, "TYPE_BOOL"),
    "UINT8": (1, "TYPE_UINT8"),
    "UINT16": (2, "TYPE_UINT16"),
    "UINT32": (4, "TYPE_UINT32"),
    "UINT64": (8, "TYPE_UINT64"),
    "INT8": (1, "TYPE_INT8"),
    "INT16": (2, "TYPE_INT16"),
    "INT32": (4, "TYPE_INT32"),
    "INT64": (8, "TYPE_INT64"),
    "FP16": (2, "TYPE_FP16"),
    "FP32": (4, "TYPE_FP32"),
    "FP64": (8, "TYPE_FP64"),
    "BF16": (2, "TYPE_BF16"),
    "BYTES": (0, "TYPE_STRING"),
}


def test_the_table_is_the_protocols() -> None:
    assert {t.wire: (t.itemsize, t.config) for t in DATATYPES} == PROTOCOL


@pytest.mark.parametrize("dtype", DATATYPES, ids=lambda t: t.wire)
def test_every_way_in_leads_to_the_same_entry(dtype: object) -> None:
    assert BY_WIRE[dtype.wire] is BY_CONFIG[dtype.config] is BY_NUMPY[dtype.numpy] is dtype


def test_numpy_types() -> None:
    assert BY_NUMPY[np.dtype("float32")].wire == "FP32"
    assert BY_NUMPY[np.dtype("bool")].wire == "BOOL"
    assert BY_NUMPY[np.dtype("uint64")].wire == "UINT64"
    assert BY_NUMPY[np.dtype(ml_dtypes.bfloat16)].wire == "BF16"
    assert BY_NUMPY[np.dtype(object)] is BYTES


def test_types_that_the_protocol_lacks() -> None:
    assert BY_NUMPY.get(np.dtype("complex64")) is None
    assert BY_NUMPY.get(np.dtype(ml_dtypes.float8_e5m2), BYTES) is BYTES
    with pytest.raises(KeyError):
        BY_NUMPY[np.dtype("V8")]


@pytest.mark.parametrize("dtype", DATATYPES, ids=lambda t: t.wire)
def test_a_copy_is_equal(dtype: object) -> None:
    """Specifications travel to the processes of frameworks."""
    assert pickle.loads(pickle.dumps(dtype)) == dtype


def test_only_bytes_varies_in_size() -> None:
    assert [t.wire for t in DATATYPES if t.is_bytes] == ["BYTES"]


def test_half_size_floats_do_not_travel_in_json() -> None:
    assert {t.wire for t in DATATYPES if not t.in_json} == {"FP16", "BF16"}


@pytest.mark.parametrize("dtype", [t for t in DATATYPES if not t.is_bytes], ids=lambda t: t.wire)
def test_memory_is_the_wire_form_on_this_machine(dtype: object) -> None:
    """Little-endian, with no bytes between elements."""
    assert dtype.numpy.itemsize == dtype.itemsize
    assert np.array([1], dtype.numpy).tobytes() == np.array([1], dtype.numpy.newbyteorder("<")).tobytes()
