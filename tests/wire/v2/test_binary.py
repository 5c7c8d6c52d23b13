"""The fast way: plans, their memo, the answer heads and the id that is cut out."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from naiad.request import RequestOptions
from naiad.tensor.dtypes import BY_WIRE, DATATYPES
from naiad.wire.v2.binary import MAX_CACHED_ID, BinaryPlan, split_id
from naiad.wire.v2.plan import MAX_HEADS, MAX_PLAN_KEY, MAX_PLANS, BinaryInput, OutputFormats, PlanMemo
from naiad.wire.v2.response import OutputPart, encode_response

PLAIN = [t for t in DATATYPES if not t.is_bytes and t.wire != "BF16"]


def plan(outputs: dict[str, str], inputs: list[BinaryInput] | None = None, binary: bool = True) -> BinaryPlan:
    dtypes = {n: BY_WIRE[w] for n, w in outputs.items()}
    inputs = inputs or []
    formats = OutputFormats(dtypes, dict.fromkeys(outputs, binary))
    return BinaryPlan("m", 3, RequestOptions(tuple(outputs)), formats, inputs)


def joined(answer: bytes | list) -> bytes:
    return answer if isinstance(answer, bytes) else b"".join([bytes(memoryview(p)) for p in answer])


def in_full(plan: BinaryPlan, request_id: str, outputs: dict[str, np.ndarray]) -> bytes:
    """What the general encoder makes of the same outputs, with the head that goes before it."""
    parts = [OutputPart(n, plan.dtypes[n], outputs[n], True) for n in plan.outputs]
    text, tensors, _ = encode_response(plan.model, plan.version, request_id, parts)
    size = len(text) + sum(map(len, tensors))
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
        f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {size}\r\n\r\n"
    )
    return b"".join([head.encode(), text, *tensors])


# Inputs


@given(st.integers(0, 9), st.lists(st.sampled_from([t for t in DATATYPES if not t.is_bytes]), max_size=4), st.data())
def test_views_are_the_bytes_behind_the_header(start: int, dtypes: list, data: st.DataObject) -> None:
    body = bytearray(start)
    inputs, expected = [], {}
    for i, dtype in enumerate(dtypes):
        shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
        raw = bytes(range(256))[: int(np.prod(shape)) * dtype.itemsize]
        inputs.append(BinaryInput(f"i{i}", dtype.numpy, len(body) - start, shape))
        expected[f"i{i}"] = (raw, shape, dtype.numpy)
        body += raw
    views = plan({}, inputs).views(body, start)
    assert {n: (v.tobytes(), v.shape, v.dtype) for n, v in views.items()} == expected


def test_views_are_not_copies() -> None:
    body = bytearray(b"xx" + np.arange(4, dtype=np.int32).tobytes())
    views = plan({}, [BinaryInput("A", np.dtype(np.int32), 0, (2, 2))]).views(body, 2)
    body[2:6] = np.int32(77).tobytes()
    assert views["A"].tolist() == [[77, 1], [2, 3]]


# Answers


@given(
    st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3),
    st.data(),
    st.sampled_from(["", "7", "a b", "é", "x" * 300]),
)
def test_answers_are_those_of_the_general_encoder(dtypes: list, data: st.DataObject, request_id: str) -> None:
    made = plan({f"o{i}": t.wire for i, t in enumerate(dtypes)})
    assert made.plain
    for _ in range(2):
        outputs = {
            f"o{i}": np.zeros(data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4)), t.numpy)
            + t.numpy.type(1)
            for i, t in enumerate(dtypes)
        }
        assert joined(made.encode_response(request_id, outputs)) == in_full(made, request_id, outputs)
        assert joined(made.encode_response("", outputs)) == in_full(made, "", outputs)


@pytest.mark.parametrize("rows", [1, 100_000])
def test_a_large_answer_goes_out_as_it_lies(rows: int) -> None:
    made = plan({"Y": "FP32"})
    array = np.arange(rows, dtype=np.float32)
    answer = made.encode_response("7", {"Y": array})
    assert joined(answer) == in_full(made, "7", {"Y": array})
    if rows > 1:
        assert isinstance(answer, list)
        assert np.shares_memory(np.frombuffer(answer[1], np.float32), array)
        assert all(memoryview(p).itemsize == 1 for p in answer)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 6), np.float32).T,
        np.zeros((400, 600), np.float32).T,
        np.zeros((4, 6), np.float32)[:, ::2],
        np.asfortranarray(np.zeros((300, 300), np.float32)),
    ],
)
def test_memory_in_another_order_is_noticed(array: np.ndarray) -> None:
    """The caller then takes the general encoder: never are bytes sent in the wrong order."""
    with pytest.raises((BufferError, TypeError, ValueError)):
        plan({"Y": "FP32"}).encode_response("", {"Y": array})


@pytest.mark.parametrize(
    ("outputs", "binary", "plain"),
    [
        ({"Y": "FP32"}, True, True),
        ({"Y": "FP32"}, False, False),
        ({"Y": "BYTES"}, True, False),
        ({"Y": "BF16"}, True, False),
        ({"X": "FP16", "Y": "BF16"}, True, False),
        ({"X": "FP16", "Y": "BOOL"}, True, True),
    ],
)
def test_which_answers_take_the_fast_way(outputs: dict[str, str], binary: bool, plain: bool) -> None:
    assert plan(outputs, binary=binary).plain is plain


def test_bfloat16_has_no_buffer_of_its_own() -> None:
    """Why BF16 does not take the fast way; when this passes, it can."""
    with pytest.raises((TypeError, ValueError, BufferError)):
        memoryview(np.ones(2, ml_dtypes.bfloat16)).cast("B")


def test_heads_are_bounded() -> None:
    made = plan({"Y": "INT8"})
    for n in range(5 * MAX_HEADS):
        array = np.zeros(n, np.int8)
        assert joined(made.encode_response("", {"Y": array})) == in_full(made, "", {"Y": array})
        assert len(made._heads) <= MAX_HEADS


def test_lengths_of_ids_are_bounded() -> None:
    made = plan({"Y": "INT8"})
    array = np.zeros(1, np.int8)
    for n in range(1, 3 * MAX_CACHED_ID):
        assert joined(made.encode_response("x" * n, {"Y": array})) == in_full(made, "x" * n, {"Y": array})
    (head,) = made._heads.values()
    assert len(head._before_id) <= MAX_CACHED_ID


# The memo


def test_the_memo_is_bounded() -> None:
    memo, made = PlanMemo[BinaryPlan](), plan({})
    for n in range(2 * MAX_PLANS + 5):
        memo.keep(b"%d" % n, made)
        assert len(memo) <= MAX_PLANS
    assert memo.get(b"%d" % (2 * MAX_PLANS + 4)) is made
    assert memo.get(b"0") is None


def test_long_keys_are_not_kept() -> None:
    memo, made = PlanMemo[BinaryPlan](), plan({})
    memo.keep(b"x" * (MAX_PLAN_KEY + 1), made)
    assert len(memo) == 0
    memo.keep(b"x" * MAX_PLAN_KEY, made)
    assert len(memo) == 1


# The id


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b'{"id":"7","inputs":[]}', ("7", b',"inputs":[]}')),
        (b'{"id":"a b~","inputs":[]}', ("a b~", b',"inputs":[]}')),
        (b'{"id":"","inputs":[]}', ("", b',"inputs":[]}')),
        (b'{"id": "7","inputs":[]}', None),
        (b'{"id":"7" ,"inputs":[]}', None),
        (b'{"id":"7"}', None),
        (b'{"id":"a\\"b","inputs":[]}', None),
        (b'{"id":"a\\u0041","inputs":[]}', None),
        ('{"id":"é","inputs":[]}'.encode(), None),
        (b'{"id":"a\nb","inputs":[]}', None),
        (b'{"id":"a\x7fb","inputs":[]}', None),
        (b'{"id":"\xff","inputs":[]}', None),
        (b'{"id":"7', None),
        (b'{"id":"', None),
        (b'{"inputs":[]}', None),
        (b"", None),
    ],
)
def test_an_id_is_cut_out_when_it_is_simple(header: bytes, found: tuple[str, bytes] | None) -> None:
    assert split_id(header) == (found or ("", header))


@given(st.binary(max_size=12))
@example(b'"inputs":[]}')
def test_what_is_left_of_a_json_part_is_not_taken_for_one(rest: bytes) -> None:
    _, left = split_id(b'{"id":"7",' + rest)
    assert split_id(left)[1] != left


@given(st.binary(max_size=12), st.binary(max_size=6))
@example(b"\\", b'",')
@example(b"a\\", b'",')
def test_what_is_cut_out_is_what_json_says(inner: bytes, rest: bytes) -> None:
    """Whenever the document is JSON, the id and the rest mean the same as the whole."""
    header = b'{"id":"' + inner + b'"' + rest + b',"x":1}'
    request_id, left = split_id(header)
    if left == header:
        assert not request_id
        return
    try:
        whole = json.loads(header, object_pairs_hook=list)
    except ValueError:
        with pytest.raises(ValueError):
            json.loads(b'{"id":"7"' + left)
        return
    assert whole[0] == ("id", request_id)
    assert json.loads(b'{"id":"7"' + left, object_pairs_hook=list)[1:] == whole[1:]
