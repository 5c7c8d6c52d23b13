"""Parameters of responses, as JSON and as protobuf reads them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.messages import message_class
from naiad.errors import BackendError
from naiad.request import Outputs
from naiad.wire.v2.parameters import FINAL, parameter_fields, parameters_json, parameters_of

Response = message_class("ModelInferResponse")
texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)


def from_json(parameters: dict[str, Any]) -> Any:
    raw = parameters_json(parameters)
    assert raw.endswith(b",")
    return json.loads(b"{" + raw[:-1] + b"}")["parameters"]


def from_proto(parameters: dict[str, Any]) -> dict[str, Any]:
    found = Response.FromString(parameter_fields(parameters)).parameters
    return {name: getattr(p, str(p.WhichOneof("parameter_choice"))) for name, p in found.items()}


@given(st.dictionaries(texts.filter(lambda name: name != FINAL), st.booleans() | texts | numbers, min_size=1))
def test_what_is_said_is_read(parameters: dict[str, Any]) -> None:
    read = from_proto(parameters)
    assert read == parameters
    assert {name: type(value) for name, value in read.items()} == {n: type(v) for n, v in parameters.items()}
    assert from_json(parameters) == parameters


def test_each_kind_has_its_field() -> None:
    found = Response.FromString(parameter_fields({"b": False, "i": 2**63 - 1, "u": 2**63, "s": "", "d": 1.5}))
    kinds = {name: p.WhichOneof("parameter_choice") for name, p in found.parameters.items()}
    assert kinds == {
        "b": "bool_param",
        "i": "int64_param",
        "u": "uint64_param",
        "s": "string_param",
        "d": "double_param",
    }


def test_the_order_is_kept() -> None:
    assert parameters_json({"s": "text", "i": 7, "b": True}) == b'"parameters":{"s":"text","i":7,"b":true},'


def test_nothing_is_said_without_parameters() -> None:
    array = np.zeros(1)
    for outputs in ({"Y": array}, Outputs({"Y": array})):
        assert (parameters_json(parameters_of(outputs)), parameter_fields(parameters_of(outputs))) == (b"", b"")
    assert parameters_of(Outputs({"Y": array}, {"a": 1})) == {"a": 1}


def test_the_server_alone_says_what_is_final() -> None:
    assert from_proto({FINAL: True, "a": 1}) == {"a": 1}


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800", None, [1], b"raw"])
@pytest.mark.parametrize("encode", [parameters_json, parameter_fields])
def test_what_cannot_be_said_is_named(encode: Any, value: Any) -> None:
    with pytest.raises(BackendError, match="the parameter 'p' with the value"):
        encode({"p": value})


def test_a_name_that_is_no_text_is_refused() -> None:
    for encode in (parameters_json, parameter_fields):
        with pytest.raises(BackendError, match="the parameter"):
            encode({"\ud800": 1})
