"""What is known of one sequence's request serves another sequence's only where both differ in their number alone."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import NaiadError
from naiad.wire.v2.header import InferHeader, parse_infer_header
from naiad.wire.v2.plan import MAX_PLAN_KEY, MAX_PLANS
from naiad.wire.v2.proto import scan
from naiad.wire.v2.proto_message import read_message
from naiad.wire.v2.sequence_plan import SequencePlans, cut_json, cut_proto
from support.infer_requests import Request, spoil

NUMBERS = (1, 7, 127, 128, 300, 2**31, 2**53, 10**18, 10**19 - 1)
TENSOR = '"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]'


def described(number: object, start: bool = False, more: str = "") -> bytes:
    """The JSON part of a request as clients write it, without its id."""
    says = "true" if start else "false"
    return f'"parameters":{{"sequence_id":{number},"sequence_start":{says}{more}}},{TENSOR}}}'.encode()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("other", NUMBERS)
def test_json_of_another_sequence_is_found(number: int, other: int) -> None:
    plans = SequencePlans[str](cut_json)
    assert plans.keep(described(number), "plan", number)
    assert plans.find(described(other)) == ("plan", other)
    assert plans.find(described(f" {other}")) is None, "another form, which has not been read"
    assert plans.find(described(other, start=True)) is None


@pytest.mark.parametrize(
    "number",
    ["0", "07", "-7", "7.0", "7e3", "+7", '"7"', "[7]", "null", "true", "", "  7", "7 ", str(10**19), "9" * 40],
)
def test_json_of_other_forms_is_left_to_the_parser(number: str) -> None:
    plans = SequencePlans[str](cut_json)
    plans.keep(described(5), "plan", 5)
    assert plans.find(described(number)) is None


@pytest.mark.parametrize(
    ("description", "sequence"),
    [
        # The number that counts stands elsewhere, or there is none.
        (b'"sequence_id":5,"parameters":{"sequence_start":true},"inputs":[]}', 0),
        (b'"sequence_id":5,"parameters":{"sequence_id":5},"inputs":[]}', 5),
        (b'"parameters":{"sequence_id":5,"sequence_id":5},"inputs":[]}', 5),
        (b'"parameters":{"other_sequence_id":5,"sequence_id":5},"inputs":[]}', 5),
        (b'"parameters":{"sequence_id":"5"},"inputs":[]}', "5"),
        (b'"inputs":[{"parameters":{"sequence_id":5}}]}', 0),
        (b"{}", 5),
    ],
)
def test_what_cannot_be_told_apart_is_not_kept(description: bytes, sequence: int | str) -> None:
    assert not SequencePlans[str](cut_json).keep(description, "plan", sequence)


def test_what_is_kept_is_bounded() -> None:
    plans = SequencePlans[str](cut_json)
    kept = [described(5, more=f',"timeout":{n}') for n in range(3 * MAX_PLANS)]
    for raw in kept:
        assert plans.keep(raw, "plan", 5)
    assert 0 < sum(plans.find(raw) is not None for raw in kept) <= MAX_PLANS
    long = described(5, more=f',"note":"{"x" * MAX_PLAN_KEY}"')
    plans.keep(long, "plan", 5)
    assert plans.find(long) is None


def message(number: int, order: int = 0, **more: Any) -> Any:
    """A request of a sequence; ``order`` turns the order of its parameters."""
    made = Request(model_name="m", id="7")
    names = ["sequence_id", "sequence_start", "sequence_end"]
    for name in names[order:] + names[:order]:
        if name == "sequence_id":
            made.parameters[name].int64_param = number
        else:
            made.parameters[name].bool_param = name == "sequence_start"
    for name, value in more.items():
        made.parameters[name].string_param = value
    made.inputs.add(name="x", datatype="FP32", shape=[1])
    made.raw_input_contents.append(b"abcd")
    return made


def key_of(raw: bytes) -> bytes:
    """All before the tensors but the id."""
    layout = scan(raw)
    assert layout is not None
    return raw[: layout.id_at] + raw[layout.key_at : layout.raw_at]


@pytest.mark.parametrize("number", [1, 127, 128, 16383, 2**31, 2**62, 2**63 - 1])
def test_fields_of_another_sequence_are_found(number: int) -> None:
    plans = SequencePlans[str](cut_proto)
    assert plans.keep(key_of(message(number).SerializeToString(deterministic=True)), "plan", number)
    other = number ^ 1 or 2
    assert plans.find(key_of(message(other).SerializeToString(deterministic=True))) == ("plan", other)


@pytest.mark.parametrize("sequence", [-1, 0])
def test_fields_with_other_numbers_are_left_to_the_parser(sequence: int) -> None:
    plans = SequencePlans[str](cut_proto)
    raw = key_of(message(sequence).SerializeToString())
    assert not plans.keep(raw, "plan", sequence % 2**64)
    assert plans.find(raw) is None


def test_a_text_that_looks_like_the_fields_is_not_taken_for_them() -> None:
    plans = SequencePlans[str](cut_proto)
    inside = '"\x11\n\x0bsequence_id\x12\x02\x10\x05'
    raw = key_of(message(5, note=inside).SerializeToString())
    assert not plans.keep(raw, "plan", 5)


_json_values = st.one_of(st.integers(0, 2**64 - 1), st.booleans(), st.text(max_size=4), st.just("sequence_id"))
_json_texts = st.dictionaries(st.sampled_from(["sequence_id", "a", "priority", '"', "b"]), _json_values, max_size=3)


@given(
    numbers=st.tuples(st.integers(0, 2**65), st.integers(0, 2**65)),
    params=_json_texts,
    of_input=_json_texts,
    at_root=_json_texts,
    cut=st.integers(0, 400),
    text=st.sampled_from(["", " ", ",", '"', '"sequence_id":', "7", "0", "\\", "}", "{"]),
)
def test_whatever_is_found_for_json_is_what_the_parser_finds(
    numbers: tuple[int, int], params: Any, of_input: Any, at_root: Any, cut: int, text: str
) -> None:
    given_input = {"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4, **of_input}}
    root = {**at_root, "parameters": {**params, "sequence_id": 1111}, "inputs": [given_input]}
    whole = orjson.dumps(root)
    first, second = (whole.replace(b"1111", b"%d" % number) for number in numbers)
    second = second[:cut] + text.encode() + second[cut:]
    plans = SequencePlans[InferHeader](cut_json)
    for raw in (first, second):
        try:
            header = parse_infer_header(raw)
        except NaiadError:
            continue
        if b"\\" not in raw:
            plans.keep(raw, header, header.sequence_id)
    for raw in (first, second, re.sub(rb"[0-9]+", b"8", second)):
        if (found := plans.find(raw)) is not None:
            assert parse_infer_header(raw) == replace(found[0], sequence_id=found[1])


@given(
    numbers=st.tuples(st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1)),
    order=st.integers(0, 2),
    note=st.sampled_from(["", "sequence_id", '"\x11\n\x0bsequence_id\x12\x02\x10\x05', "\x10\x05"]),
    seed=st.integers(0, 2**32),
    spoils=st.booleans(),
)
def test_whatever_is_found_for_fields_is_what_the_parser_finds(
    numbers: tuple[int, int], order: int, note: str, seed: int, spoils: bool
) -> None:
    random = Random(seed)
    more = {"note": note} if note else {}
    plans = SequencePlans[Any](cut_proto)
    for number in numbers:
        raw = message(number, order, **more).SerializeToString(deterministic=True)
        if spoils:
            raw = spoil(raw, random)
        layout = scan(raw)
        if layout is None:
            continue
        try:
            header, _ = read_message(Request.FromString(raw[: layout.raw_at]), [raw[b:e] for b, e in layout.raws], "m")
        except Exception:
            header = None
        key = key_of(raw)
        if (found := plans.find(key)) is not None:
            assert header is not None
            assert replace(header, id="") == replace(found[0], id="", sequence_id=found[1])
        if header is not None:
            plans.keep(key, header, header.sequence_id)
