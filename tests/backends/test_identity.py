from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from naiad.errors import ModelLoadError
from naiad.tensor.dtypes import BY_WIRE
from support.backend_contract import BackendContract, Case, context, group, running, spec, started, values
from support.config_texts import parameters

ECHO = """backend: "identity" max_batch_size: 8
input [ {{ name: "A" data_type: {0} dims: 3 }}, {{ name: "B" data_type: {0} dims: 3 }} ]
output [ {{ name: "X" data_type: {0} dims: 3 }}, {{ name: "Y" data_type: {0} dims: 3 }} ] """


class TestContract(BackendContract):
    name = "identity"
    wires = tuple(BY_WIRE)

    def echo(self, folder: Path, wire: str, rows: int) -> Case:
        a, b = values(wire, (rows, 3), 1), values(wire, (rows, 3), 2)
        model = spec(ECHO.format(BY_WIRE[wire].config))
        return Case(context(folder / "none"), model, {"A": a, "B": b}, {"X": a, "Y": b})


def one(text: str = "", output: str = "TYPE_FP32 dims: 2") -> str:
    tensors = f'input {{ name: "A" data_type: TYPE_FP32 dims: 2 }} output {{ name: "X" data_type: {output} }}'
    return f'backend: "identity" {tensors} {text} '


def test_outputs_are_the_inputs_themselves(tmp_path: Path) -> None:
    array = np.ones(2, np.float32)
    with running("identity", context(tmp_path / "none"), spec(one())) as instance:
        assert instance.execute({"A": array}, ("X",))["X"] is array


def test_zeros_stand_for_an_optional_input_that_is_not_given(tmp_path: Path) -> None:
    model = spec(
        """backend: "identity" max_batch_size: 8
        input [ { name: "A" data_type: TYPE_FP32 dims: 2 },
          { name: "B" data_type: TYPE_INT8 dims: [ -1, 3 ] optional: true },
          { name: "C" data_type: TYPE_STRING dims: 2 optional: true } ]
        output [ { name: "X" data_type: TYPE_FP32 dims: 2 }, { name: "Y" data_type: TYPE_INT8 dims: [ -1, 3 ] },
          { name: "Z" data_type: TYPE_STRING dims: 2 } ]"""
    )
    array, names = np.ones((4, 2), np.float32), ("X", "Y", "Z")
    with running("identity", context(tmp_path / "none"), model) as instance:
        found = instance.execute({"A": array}, names)
        assert found["X"] is array
        assert (found["Y"].dtype, found["Y"].tolist()) == (np.int8, [[[0, 0, 0]]] * 4)
        assert found["Z"].tolist() == [[b"", b""]] * 4
        given = np.full((4, 5, 3), 7, np.int8)
        assert instance.execute({"A": array, "B": given}, names)["Y"] is given


def elapsed(model_text: str, index: int, path: Path) -> float:
    model = spec(model_text)
    with started("identity", context(path), model) as backend:
        instance = backend.create_instance(group(model), index)
        begin = time.monotonic()
        instance.execute({"A": np.ones(2, np.float32)}, ("X",))
        return time.monotonic() - begin


@pytest.mark.parametrize(("index", "factor"), [(0, 1), (1, 4), (2, 8)])
def test_the_delay_grows_with_the_index_of_the_instance(tmp_path: Path, index: int, factor: int) -> None:
    text = one(parameters(execute_delay_ms="10", instance_wise_delay_multiplier="4"))
    assert elapsed(text, index, tmp_path) >= 0.01 * factor


# The time is measured.
@pytest.mark.serial
def test_every_instance_has_the_same_delay_without_a_multiplier(tmp_path: Path) -> None:
    # With one it would be half a second.
    assert 0.1 <= elapsed(one(parameters(execute_delay_ms="100")), 5, tmp_path) < 0.5


def test_creation_takes_its_delay(tmp_path: Path) -> None:
    begin = time.monotonic()
    with started("identity", context(tmp_path), spec(one(parameters(creation_delay_sec="0.05")))):
        assert time.monotonic() - begin >= 0.05


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("execute_delay_ms", "soon"),
        ("execute_delay_ms", "-1"),
        ("execute_delay_ms", "nan"),
        ("execute_delay_ms", "inf"),
        ("instance_wise_delay_multiplier", "1.5"),
        ("creation_delay_sec", ""),
    ],
)
def test_a_bad_parameter_is_named(tmp_path: Path, name: str, value: str) -> None:
    model = spec(one(parameters(**{name: value})))
    message = f"parameter '{name}' is \"{value}\", expected"
    with pytest.raises(ModelLoadError, match=message), started("identity", context(tmp_path), model):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (one('input { name: "B" data_type: TYPE_FP32 dims: 2 }'), "2 inputs and 1 outputs"),
        (one(output="TYPE_INT32 dims: 2"), "found TYPE_INT32, expected TYPE_FP32"),
        (one(output="TYPE_FP32 dims: 3"), r"found \[3\], expected \[2\]"),
    ],
)
def test_tensors_that_do_not_pair_up_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message), started("identity", context(tmp_path), spec(text)):
        pass


def test_tensors_pair_up_as_the_model_sees_them(tmp_path: Path) -> None:
    reshaped = one(output="TYPE_FP32 dims: [ 1, 2 ] reshape { shape: 2 }")
    with started("identity", context(tmp_path), spec(reshaped)):
        pass
    other = one(output="TYPE_FP32 dims: 2 reshape { shape: [ 1, 2 ] }")
    message = r"found \[1,2\], expected \[2\]"
    with pytest.raises(ModelLoadError, match=message), started("identity", context(tmp_path), spec(other)):
        pass


def test_a_variable_axis_pairs_with_a_fixed_one(tmp_path: Path) -> None:
    with started("identity", context(tmp_path), spec(one(output="TYPE_FP32 dims: -1"))):
        pass
