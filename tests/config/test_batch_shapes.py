"""The parameters of padding, and what a configuration of unequal batches must not say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.assembly import PADDED_BATCH_BYTES, BatchInputSpec, PadSpec, UnpadSpec
from naiad.config.backend_view import as_backend_sees
from naiad.config.freeze import freeze
from naiad.config.messages import ModelConfig
from naiad.config.normalize import normalize
from naiad.config.pad_calls import PadCallError, read_pad, read_unpad
from naiad.config.spec import ModelSpec
from naiad.config.validate import validate
from naiad.tensor.dtypes import BY_WIRE

FP32 = BY_WIRE["FP32"]

PADS: dict[str, PadSpec] = {
    "pad(0)": PadSpec((0, 2), 0.0),
    "pad(0, to=max)": PadSpec((0, 2), 0.0),
    " pad( -1.5 , to = multiple(8) ) ": PadSpec((0, 2), -1.5, 8),
    "pad(0, to=buckets(64, 16, 32, 16))": PadSpec((0, 2), 0.0, 1, (16, 32, 64)),
    "pad(-inf, dims=2)": PadSpec((2,), float("-inf")),
    "pad(0, dims=(2, 0))": PadSpec((2, 0), 0.0),
    "pad(0, mask=M)": PadSpec((0, 2), 0.0, mask="M", mask_dtype=BY_WIRE["BOOL"]),
    'pad(0, mask="a.b", mask_type=TYPE_INT64)': PadSpec((0, 2), 0.0, mask="a.b", mask_dtype=BY_WIRE["INT64"]),
}
WRONG = {
    "": "expected pad(",
    "0": "expected pad(",
    "pad": "expected pad(",
    "pad()": "expected pad(",
    "pad(0, 1)": "expected pad(",
    "pad(*x)": "expected pad(",
    "pad(0, **x)": "expected pad(",
    "unpad(x)": "expected pad(",
    "__import__('os').abort()": "expected pad(",
    "pad(0, tu=max)": "'tu' is unknown",
    "pad(0, to=min)": "to is 'min', expected max, multiple(N) or buckets(N, ...)",
    "pad(0, to=multiple)": "to is 'multiple'",
    "pad(0, to=multiple(0))": "multiple has '0', expected a whole number of at least 1",
    "pad(0, to=multiple(1.5))": "multiple has '1.5'",
    "pad(0, to=multiple(True))": "multiple has 'True'",
    "pad(0, to=multiple(99999999999))": "multiple has '99999999999'",
    "pad(0, to=buckets())": "to is 'buckets()'",
    "pad(0, to=buckets(8, -1))": "buckets has '-1'",
    "pad(0, dims=3)": "dim 3 is not in the dims [-1, 4, -1]",
    "pad(0, dims=1)": "dim 1 of the input is always 4",
    "pad(0, dims=(0, 0))": "names a dim twice",
    "pad(0, dims=-1)": "dims has '-1'",
    "pad(0, mask=1)": "mask is '1', expected a name",
    "pad(0, mask=M, mask_type=BYTES)": "mask_type is 'BYTES'",
    "pad(0, mask_type=BOOL)": "mask_type is given without a mask",
    "pad(x)": "the value is 'x', expected a number",
    "pad('0')": "expected a number",
    "pad(" + "(" * 300 + ")" * 300: "characters",
    "pad(" + "-" * 400 + "1)": "the value",
}


@pytest.mark.parametrize("text", PADS)
def test_pad(text: str) -> None:
    assert read_pad(text, (-1, 4, -1), FP32) == PADS[text]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_pad(text: str) -> None:
    with pytest.raises(PadCallError) as caught:
        read_pad(text, (-1, 4, -1), FP32)
    assert WRONG[text] in str(caught.value)


@given(st.text(alphabet="pad(0,to=mxulibcket-1.)'\"*/ \\[]{}:lambda\n", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for given_text in (text, f"pad({text})", f"pad(0, to={text})"):
        try:
            found = read_pad(given_text, (-1, 4, -1), FP32)
        except PadCallError:
            continue
        assert found.size(7) >= 7 or found.buckets


VALUES = [
    ("INT8", "-128", -128),
    ("INT8", "128", None),
    ("UINT8", "255", 255),
    ("UINT8", "-1", None),
    ("UINT64", "18446744073709551615", 2**64 - 1),
    ("INT64", "1.0", None),
    ("INT64", "true", None),
    ("BOOL", "true", True),
    ("BOOL", "0", False),
    ("BOOL", "2", None),
    ("FP16", "65504", 65504.0),
    ("FP16", "1e6", None),
    ("BF16", "1e30", 1e30),
    ("FP64", "1e300", 1e300),
    ("FP32", "1" + "0" * 400, None),
    ("BYTES", "''", b""),
    ("BYTES", "'[PAD]'", b"[PAD]"),
    ("BYTES", "0", None),
    ("BYTES", "'\\ud800'", None),
]


@pytest.mark.parametrize(("wire", "text", "value"), VALUES)
def test_the_value_fits_the_datatype_of_the_input(wire: str, text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(PadCallError, match="the value is"):
            read_pad(f"pad({text})", (-1,), BY_WIRE[wire])
    else:
        assert read_pad(f"pad({text})", (-1,), BY_WIRE[wire]).value == value


UNPADS = {
    "unpad(X)": UnpadSpec("X", (0,)),
    "unpad(X, dims=1)": UnpadSpec("X", (1,)),
    'unpad("X", scale=1/320)': UnpadSpec("X", (0,), Fraction(1, 320)),
    "unpad(X, scale=2)": UnpadSpec("X", (0,), Fraction(2)),
}
WRONG_UNPADS = {
    "unpad(Y)": "'Y' is no input with 'pad'; these are: X",
    "unpad(X, dims=(0, 1))": "dims has 2 numbers, and input 'X' has 1 padded dims",
    "unpad(X, dims=2)": "dim 2 of the output is always 5",
    "unpad(X, dims=9)": "dim 9 is not in the dims",
    "unpad(X, scale=0)": "scale has '0'",
    "unpad(X, scale=1/0)": "scale has '0'",
    "unpad(X, scale=2**99)": "scale has '2 ** 99'",
    "kep": "expected unpad(",
}


def test_unpad() -> None:
    pads = {"X": PadSpec((0,), 0)}
    for text, expected in UNPADS.items():
        assert read_unpad(text, pads, (-1, -1, 5)) == expected
    for text, problem in WRONG_UNPADS.items():
        with pytest.raises(PadCallError) as caught:
            read_unpad(text, pads, (-1, -1, 5))
        assert problem in str(caught.value)


# Configurations

BASE = """
name: "m" backend: "%s" max_batch_size: %d dynamic_batching { }
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] %s } input { name: "F" data_type: TYPE_FP32 dims: [ 4 ] %s }
output { name: "Y" data_type: TYPE_FP32 dims: [ %s ] } %s"""


def parameter(key: str, value: str) -> str:
    return f"parameters {{ key: '{key}' value {{ string_value: '{value}' }} }} "


def parsed(more: str = "", backend: str = "identity", size: int = 8, x: str = "", f: str = "", y: str = "1") -> Any:
    config = text_format.Parse(BASE % (backend, size, x, f, y, more), ModelConfig())
    normalize(config)
    return config


def problems(*arguments: Any, **named: Any) -> list[str]:
    return [str(problem) for problem in validate(parsed(*arguments, **named))]


def frozen(*arguments: Any, **named: Any) -> ModelSpec:
    config = parsed(*arguments, **named)
    assert validate(config) == []
    return freeze(config)


RAGGED = "allow_ragged_batch: true"
MADE = 'batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "I" data_type: TYPE_INT32 source_input: "X" } '
SCATTER = 'batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "Y" source_input: "X" } '
PAD = parameter("batching.X", "pad(0)")

REFUSED = [
    ({"x": RAGGED, "size": 0}, "input 'X' of m allows ragged batches, which needs a 'max_batch_size'"),
    ({"more": MADE, "size": 0}, "'batch_input' of m needs a 'max_batch_size'"),
    ({"more": SCATTER, "size": 0}, "'batch_output' of m needs a 'max_batch_size'"),
    ({"more": MADE, "x": "optional: true"}, "source input 'X' of m is optional"),
    ({"more": MADE * 2}, "batch input 'I' of m is given twice"),
    ({"more": MADE.replace('"I"', '"F"')}, "batch input 'F' of m is given twice, or is an input that callers send"),
    ({"more": MADE.replace('"I"', '""')}, "a target of a batch input of m has no name"),
    ({"more": parameter("batching.Z", "pad(0)")}, "'batching.Z' of model 'm' names no input or output of the model"),
    ({"more": PAD, "size": 0}, "pads batches, so it needs a 'max_batch_size'"),
    ({"more": parameter("batching.X", "pad(0, mask=M)"), "x": "optional: true"}, "of an input that is optional"),
    ({"more": PAD, "x": RAGGED}, "pads an input that has allow_ragged_batch"),
    ({"more": PAD, "x": "reshape { shape: [ -1 ] }"}, "pads an input that has a 'reshape'"),
    ({"more": PAD, "backend": "python"}, "a Python model gets its requests apart"),
    ({"more": parameter("batching.F", "pad(0)")}, "no variable dim (-1) in [4]"),
    ({"more": parameter("batching.X", "pad(0, mask=F)")}, "makes the mask 'F', which the model has as an input"),
    ({"more": PAD.replace("pad(0)", "pad(0, mask=I)") + MADE}, "makes the mask 'I'"),
    ({"more": PAD, "y": "-1"}, "output 'Y' of m has variable dims, and inputs are padded: say whether it is to be cut"),
    ({"more": parameter("batching.Y", "unpad(X)"), "y": "-1"}, "'X' is no input with 'pad'; these are: none"),
    (
        {"more": PAD + parameter("batching.Y", "unpad(X)") + SCATTER, "y": "-1"},
        "cuts an output that has a 'reshape' or is",
    ),
    (
        {"more": parameter("max_batch_bytes", "0")},
        "max_batch_bytes' of model 'm' is \"0\", expected a number of bytes",
    ),
    ({"more": parameter("max_batch_bytes", "1k")}, 'is "1k", expected a number of bytes'),
    ({"more": parameter("batch_error", "halve")}, 'is "halve", expected split or fail'),
    (
        {
            "more": parameter("batch_error", "split") + "model_transaction_policy { decoupled: true }",
            "backend": "python",
        },
        "cannot be split for a decoupled model",
    ),
]


@pytest.mark.parametrize(("named", "problem"), REFUSED)
def test_what_is_refused(named: dict[str, Any], problem: str) -> None:
    found = problems(**named)
    assert any(problem in text for text in found), found


def test_bounds_of_batches_need_batches() -> None:
    config = parsed(parameter("max_batch_bytes", "10"))
    config.ClearField("dynamic_batching")
    assert any("needs 'dynamic_batching'" in str(p) for p in validate(config))


def test_sequences_are_not_padded() -> None:
    config = parsed(PAD)
    config.sequence_batching.SetInParent()
    assert any("the model has 'sequence_batching'" in str(p) for p in validate(config))


def test_what_is_frozen() -> None:
    found = frozen(MADE + SCATTER, x=RAGGED, y="-1")
    assert found.assembly is not None
    assert found.assembly.ragged == {"X"}
    assert found.assembly.made == (BatchInputSpec("BATCH_ACCUMULATED_ELEMENT_COUNT", "I", BY_WIRE["INT32"], "X"),)
    assert found.assembly.scattered == {"Y": "X"}
    assert found.max_batch_bytes == 0
    view = as_backend_sees(found)
    assert {n: t.shape for n, t in view.inputs.items()} == {"X": (-1,), "F": (-1, 4), "I": (-1,)}
    assert view.outputs["Y"].shape == (-1,)
    assert as_backend_sees(view) is view


def test_what_padding_makes_of_a_model() -> None:
    more = parameter("batching.X", "pad(0, mask=M, mask_type=INT64)") + parameter("batching.Y", "unpad(X)")
    found = frozen(more, y="-1")
    assert found.assembly is not None
    assert found.assembly.unpads == {"Y": UnpadSpec("X", (0,))}
    assert found.max_batch_bytes == PADDED_BATCH_BYTES
    assert as_backend_sees(found).inputs["M"].shape == (-1, -1)
    assert frozen(more + parameter("max_batch_bytes", "77"), y="-1").max_batch_bytes == 77


def test_a_plain_model_is_left_alone() -> None:
    found = frozen()
    assert found.assembly is None
    assert as_backend_sees(found) is found
    assert found.splits_failed


def test_python_models_have_no_assembly() -> None:
    assert frozen(MADE + SCATTER, backend="python", x=RAGGED, y="-1").assembly is None


@pytest.mark.parametrize(
    ("named", "splits"),
    [
        ({}, True),
        ({"more": parameter("batch_error", "fail")}, False),
        ({"backend": "python"}, False),
        ({"backend": "python", "more": parameter("batch_error", "split")}, True),
        ({"backend": "python", "more": "model_transaction_policy { decoupled: true }"}, False),
    ],
)
def test_which_failed_batches_are_split(named: dict[str, Any], splits: bool) -> None:
    assert frozen(**named).splits_failed is splits
