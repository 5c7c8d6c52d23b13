"""``Tensor`` and what belongs to it, in this process: the same code runs in a child."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from naiad.worker.api import pb_utils
from naiad.worker.api.tensor import received
from naiad.worker.ipc.datatypes import BF16, BY_WIRE, BYTES


def test_a_tensor_shares_its_array() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = pb_utils.Tensor("x", array)
    assert tensor.as_numpy() is array
    assert (tensor.name(), tensor.shape(), tensor.triton_dtype(), tensor.is_cpu()) == ("x", [2, 3], 11, True)


def test_an_array_that_is_not_contiguous_is_copied() -> None:
    array = np.arange(6).reshape(2, 3).T
    tensor = pb_utils.Tensor("x", array)
    assert tensor.as_numpy().flags.c_contiguous
    np.testing.assert_array_equal(tensor.as_numpy(), array)


def test_lists_and_scalars_become_arrays() -> None:
    assert pb_utils.Tensor("x", [1.5, 2.5]).as_numpy().tolist() == [1.5, 2.5]
    assert pb_utils.Tensor("x", np.float32(2)).shape() == []


@pytest.mark.parametrize("array", [np.array([b"a", b"bc"]), np.array(["ä", b"b"], object), np.array([], object)])
def test_byte_arrays(array: Any) -> None:
    tensor = pb_utils.Tensor("x", array)
    assert tensor.triton_dtype() == 13
    assert tensor.as_numpy() is array


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([1j]), np.array([1], ">i4"), np.array([0], "M8[s]")])
def test_arrays_of_other_types_are_refused(array: Any) -> None:
    with pytest.raises(pb_utils.TritonModelException, match="NumPy dtype is not supported"):
        pb_utils.Tensor("x", array)


def test_names() -> None:
    for make in (
        lambda name: pb_utils.Tensor(name, np.zeros(1)),
        lambda n: pb_utils.Tensor.from_dlpack(n, np.zeros(1)),
    ):
        with pytest.raises(pb_utils.TritonModelException, match="Tensor name cannot be an empty string"):
            make("")
        with pytest.raises(TypeError, match="the name must be a str"):
            make(3)


NUMERIC = sorted(set(BY_WIRE) - {"BYTES", "BF16"})


@pytest.mark.parametrize("wire", NUMERIC)
def test_dlpack_both_ways(wire: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(BY_WIRE[wire].stored)
    tensor = pb_utils.Tensor("x", array)
    assert tensor.__dlpack_device__() == (1, 0)
    taken = torch.from_dlpack(tensor)
    assert taken.dtype == getattr(torch, "bool" if wire == "BOOL" else str(array.dtype))
    assert taken.tolist() == array.tolist()
    back = pb_utils.Tensor.from_dlpack("y", taken)
    assert back.triton_dtype() == tensor.triton_dtype()
    np.testing.assert_array_equal(back.as_numpy(), array)
    assert np.shares_memory(back.as_numpy(), array)


def test_a_capsule_both_ways() -> None:
    array = np.arange(4, dtype=np.int32)
    capsule = pb_utils.Tensor("x", array).to_dlpack()
    back = pb_utils.Tensor.from_dlpack("y", capsule)
    assert np.shares_memory(back.as_numpy(), array)
    with pytest.raises(pb_utils.TritonModelException, match="must be a DLPack capsule"):
        pb_utils.Tensor.from_dlpack("y", capsule)  # It was taken.
    torch_capsule = torch.utils.dlpack.to_dlpack(torch.ones(2, 2))
    assert pb_utils.Tensor.from_dlpack("y", torch_capsule).as_numpy().tolist() == [[1, 1], [1, 1]]


def test_read_only_arrays_are_copied_for_dlpack() -> None:
    array = np.frombuffer(b"\x01\x02", np.uint8)
    assert torch.from_dlpack(pb_utils.Tensor("x", array)).tolist() == [1, 2]


def test_bf16_goes_over_dlpack_alone() -> None:
    source = torch.tensor([[1.5, -2.25, 3.0]], dtype=torch.bfloat16)
    tensor = pb_utils.Tensor.from_dlpack("x", source)
    assert (tensor.triton_dtype(), tensor.shape()) == (14, [1, 3])
    with pytest.raises(pb_utils.TritonModelException, match="BF16 and cannot be converted to NumPy"):
        tensor.as_numpy()
    assert torch.equal(torch.from_dlpack(tensor), source)
    assert torch.equal(torch.utils.dlpack.from_dlpack(tensor.to_dlpack()), source)


def test_strings_have_no_dlpack() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="DLPack does not have support for string tensors"):
        pb_utils.Tensor("x", np.array([b"a"], object)).to_dlpack()


def test_dlpack_wants_c_order() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="DLPack tensor is not contiguous"):
        pb_utils.Tensor.from_dlpack("x", torch.arange(6).reshape(2, 3).T)


def test_dlpack_refuses_what_has_no_datatype() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="is not supported"):
        pb_utils.Tensor.from_dlpack("x", torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(pb_utils.TritonModelException, match="found type <class 'list'>"):
        pb_utils.Tensor.from_dlpack("x", [1, 2])


class Elsewhere:
    """A tensor on a graphics card, as far as DLPack can tell."""

    def __init__(self, array: torch.Tensor) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def cpu(self) -> torch.Tensor:
        return self.array


def test_a_tensor_on_a_device_is_copied_when_it_is_sent() -> None:
    tensor = pb_utils.Tensor.from_dlpack("x", Elsewhere(torch.tensor([[1.0, 2.0]])))
    assert not tensor.is_cpu()
    assert (tensor.shape(), tensor.triton_dtype(), tensor.__dlpack_device__()) == ([1, 2], 11, (2, 0))
    with pytest.raises(pb_utils.TritonModelException, match="stored in GPU and cannot be converted"):
        tensor.as_numpy()
    data, size = tensor._payload()
    assert bytes(data) == np.array([1, 2], np.float32).tobytes()
    assert size == 8


def test_a_received_tensor_lies_in_the_buffer() -> None:
    buffer = bytearray(np.arange(8, dtype=np.int16).tobytes())
    tensor = received("x", BY_WIRE["INT16"], (2, 2), (buffer, 4, 8))
    tensor.as_numpy()[0, 0] = 9
    assert np.frombuffer(buffer, np.int16).tolist() == [0, 1, 9, 3, 4, 5, 6, 7]
    raw = received("x", BF16, (2,), (buffer, 4, 4))
    assert torch.from_dlpack(raw).dtype == torch.bfloat16


def test_broken_strings() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="incomplete length field"):
        received("x", BYTES, (1,), (b"\x01\x00", 0, 2)).as_numpy()
    with pytest.raises(pb_utils.TritonModelException, match="string extends beyond buffer"):
        received("x", BYTES, (1,), (b"\x05\x00\x00\x00a", 0, 5)).as_numpy()


def test_string_functions() -> None:
    array = np.array([[b"a", "ü"], [b"", 5]], object)
    encoded = pb_utils.serialize_byte_tensor(array)
    assert encoded == b"\x01\0\0\0a\x02\0\0\0\xc3\xbc\0\0\0\0\x01\0\0\x005"
    assert pb_utils.deserialize_bytes_tensor(encoded).tolist() == [b"a", "ü".encode(), b"", b"5"]
    assert pb_utils.serialize_byte_tensor(np.array([], object)) == ()
    assert pb_utils.serialize_byte_tensor(np.zeros(1)) is None
    assert pb_utils.deserialize_bytes_tensor(b"").shape == (0,)


def test_type_conversions() -> None:
    for wire in NUMERIC:
        number = BY_WIRE[wire].number
        numpy_type = pb_utils.triton_to_numpy_type(number)
        assert np.dtype(numpy_type) == BY_WIRE[wire].stored
        assert pb_utils.numpy_to_triton_type(numpy_type) == number
        assert np.dtype(pb_utils.triton_string_to_numpy("TYPE_" + wire)) == np.dtype(numpy_type)
    assert pb_utils.triton_to_numpy_type(13) is np.object_
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert pb_utils.triton_to_numpy_type(99) is None
    with pytest.raises(KeyError):
        pb_utils.triton_string_to_numpy("TYPE_BF16")
