"""Requests with their data in JSON: those that take the fast way are answered as those that are read in full."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.errors import NaiadError
from naiad.frontends.http.v2.infer_reader import RequestReader
from naiad.request import Outputs
from naiad.tensor.dtypes import BY_WIRE, DATATYPES, DataType
from naiad.testing import write_model
from naiad.wire.v2.binary import BinaryPlan
from naiad.wire.v2.json_template import MAX_SAME_OPENING
from naiad.wire.v2.plan import MAX_PLANS
from support.http_application import JSON, House, Peer, identity_config, play
from support.kept_objects import kept
from support.played_model import PlayedModel

IN_JSON = [t for t in DATATYPES if t.in_json]
INTEGERS = [t for t in IN_JSON if t.numpy.kind in "iu"]
LAYOUTS: list[dict[str, Any]] = [{"separators": (",", ":")}, {}, {"indent": 1}, {"sort_keys": True}]


def reader(*dtypes: DataType, dims: tuple[int, ...] = (-1,)) -> RequestReader:
    """For a model with inputs ``I0``, ``I1``, ... and an output ``O``."""
    tensors = {f"I{i}": TensorSpec(f"I{i}", dtype, dims, dims) for i, dtype in enumerate(dtypes)}
    outputs = {"O": TensorSpec("O", BY_WIRE["FP32"], (-1,), (-1,))}
    model: Any = SimpleNamespace(spec=ModelSpec("m", "", "identity", 0, tensors, outputs, ()), version=3)
    return RequestReader(model)


def entry(index: int, dtype: DataType, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": f"I{index}", "datatype": dtype.wire, "shape": shape, "data": data}


def text(root: Any, layout: dict[str, Any] | None = None) -> bytes:
    return json.dumps(root, **(LAYOUTS[0] if layout is None else layout)).encode()


def shown(request_id: str, plan: BinaryPlan, inputs: dict[str, np.ndarray]) -> Any:
    """All of a request that its answer depends on."""
    said = (plan.outputs, plan.parameters, plan.rows, plan.shape_key, plan.priority, plan.timeout_us, plan.flags)
    more = (plan.correlation_id, plan.binary, plan.in_json, plan.is_special, plan.regions, plan.model, plan.version)
    arrays = {
        name: (a.dtype, a.shape, a.flags.writeable, a.tolist() if a.dtype.hasobject else a.tobytes())
        for name, a in inputs.items()
    }
    return request_id, said, more, arrays


def in_full(like: RequestReader, body: bytes) -> Any:
    """What a reader without templates makes of a request: the request, or the error."""
    try:
        return shown(*RequestReader(like.model).read(body, None))
    except NaiadError as error:
        return type(error), str(error)


def is_recalled(known: RequestReader, body: bytes) -> bool:
    """Whether a request takes the fast way; if so it has to lead to the same."""
    found = known.recall(bytearray(body))
    if found is None:
        return False
    assert shown(found.id, found.plan, found.inputs) == in_full(known, body)
    assert found.held_bytes >= len(body)
    return True


def learned(known: RequestReader, body: bytes) -> RequestReader:
    known.read(body, None)
    return known


# What is recalled


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("request_id", ["", "first"])
@pytest.mark.parametrize("dtype", IN_JSON, ids=lambda t: t.wire)
def test_new_data_in_the_same_text(dtype: DataType, request_id: str, layout: dict[str, Any]) -> None:
    def body(data: Any, request_id: str) -> bytes:
        root: dict[str, Any] = {"id": request_id} if request_id else {}
        return text({**root, "inputs": [entry(0, dtype, [4], data)], "outputs": [{"name": "O"}]}, layout)

    values = {"b": [True, False], "O": ["a]b", 'q"\\'], "f": [1, -2.5], "i": [-3, 7], "u": [0, 255]}[dtype.numpy.kind]
    known = learned(reader(dtype), body(values[:1] * 4, request_id))
    assert is_recalled(known, body(values * 2, request_id))
    assert is_recalled(known, body(values * 2, request_id and "another"))
    assert is_recalled(known, body([values, values], request_id))
    assert not is_recalled(known, body(values, request_id))
    assert not is_recalled(known, body([*values, *values, None], request_id))


def test_two_inputs_of_several_shapes() -> None:
    known = reader(BY_WIRE["FP32"], BY_WIRE["INT64"])

    def body(first: list[Any], second: list[Any]) -> bytes:
        inputs = [entry(0, BY_WIRE["FP32"], [len(first)], first), entry(1, BY_WIRE["INT64"], [len(second)], second)]
        return text({"inputs": inputs})

    for first, second in (([1.5], [2]), ([1.5], [2, 3]), ([1, 2], [3])):
        assert not is_recalled(known, body(first, second))
        learned(known, body(first, second))
    assert is_recalled(known, body([7], [8]))
    assert is_recalled(known, body([7], [8, 9]))
    assert is_recalled(known, body([7, 2], [8]))
    assert not is_recalled(known, body([7], [2**63]))


def test_shapes_behind_the_data() -> None:
    known = reader(BY_WIRE["FP32"])

    def body(size: int) -> bytes:
        return text({"inputs": [entry(0, BY_WIRE["FP32"], [size], [1] * size)]}, {"sort_keys": True})

    for size in range(1, MAX_SAME_OPENING + 1):
        learned(known, body(size))
    assert all(is_recalled(known, body(size)) for size in range(1, MAX_SAME_OPENING + 1))
    learned(known, body(MAX_SAME_OPENING + 1))
    assert is_recalled(known, body(MAX_SAME_OPENING + 1))


def test_templates_are_bounded() -> None:
    known = reader(BY_WIRE["FP32"])
    sizes = []
    for number in range(MAX_PLANS + 5):
        learned(known, text({"inputs": [entry(0, BY_WIRE["FP32"], [number + 1], [0.5] * (number + 1))]}))
        if number in (4, MAX_PLANS - 1, MAX_PLANS + 4):
            sizes.append(len(kept(known)))
    assert sizes[1] > 5 * sizes[0]
    assert sizes[2] < 2 * sizes[0], "as after the first five"


def test_the_same_request_leaves_one_template() -> None:
    known = reader(BY_WIRE["FP32"])
    sizes = set()
    for _ in range(3):
        # Uneven lists are read in full each time.
        learned(known, text({"inputs": [entry(0, BY_WIRE["FP32"], [3], [[1, 2], 3])]}))
        sizes.add(len(kept(known)))
    assert len(sizes) == 1


# Base64 text

ENCODED = {"parameters": {"binary_data_encoding": "base64"}}


def base64_of(dtype: DataType, *values: int) -> str:
    return base64.b64encode(np.array(values).astype(dtype.numpy).tobytes()).decode()


@pytest.mark.parametrize("is_object", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [t for t in DATATYPES if not t.is_bytes], ids=lambda t: t.wire)
def test_new_base64_text_in_the_same_text(dtype: DataType, layout: dict[str, Any], is_object: bool) -> None:
    def body(request_id: str, data: str) -> bytes:
        given = entry(0, dtype, [3], {"b64": data} if is_object else data)
        return text({"id": request_id, "inputs": [given if is_object else given | ENCODED], **ENCODED}, layout)

    right = base64_of(dtype, 0, 1, 1)
    known = learned(reader(dtype), body("a", base64_of(dtype, 1, 0, 1)))
    assert is_recalled(known, body("a", right))
    assert is_recalled(known, body("another", right))
    wrong = ("", base64_of(dtype, 1, 0), "*" + right[1:], right[:-1] + "\u00e9", right[:-1] + '"', right[:-1] + "\\")
    assert not any(is_recalled(known, body("a", data)) for data in wrong)


def test_base64_text_beside_numbers() -> None:
    dtype = BY_WIRE["FP32"]

    def body(first: Any, second: Any) -> bytes:
        return text({"inputs": [entry(0, dtype, [2], first), entry(1, dtype, [2], second)]})

    known = learned(reader(dtype, dtype), body({"b64": base64_of(dtype, 1, 2)}, [3, 4]))
    assert is_recalled(known, body({"b64": base64_of(dtype, 5, 6)}, [7, 8]))
    assert not is_recalled(known, body([3, 4], {"b64": base64_of(dtype, 1, 2)}))
    learned(known, body([3, 4], {"b64": base64_of(dtype, 1, 2)}))
    assert is_recalled(known, body([7, 8], {"b64": base64_of(dtype, 5, 6)}))


@pytest.mark.parametrize(
    "data",
    [
        b'{"b64":"@","b64":"@"}',
        b'{"b64":"@", "b64":"@"}',
        b'{"\\u0062\\u0036\\u0034":"@"}',
        b'{"b64":"\\u0041AAAAAAAAAA="}',
    ],
)
def test_no_template_is_made_of_unusual_base64(data: bytes) -> None:
    dtype = BY_WIRE["FP32"]

    def body(first: str, second: str) -> bytes:
        given = data.replace(b"@", first.encode(), 1).replace(b"@", second.encode(), 1)
        return b'{"inputs":[{"name":"I0","datatype":"FP32","shape":[2],"data":%s}]}' % given

    same = base64_of(dtype, 1, 2)
    known = learned(reader(dtype), body(same, same))
    assert not is_recalled(known, body(same, same))
    assert not is_recalled(known, body(base64_of(dtype, 3, 4), same))


# What must not be


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"inputs":[@]}', b'{"id":"7",{"inputs":[@]}'),
        (b'{"id":"1","inputs":[@]}', b'"inputs":[@]}'),
        (b'{"id":"1","inputs":[@]}', b',"inputs":[@]}'),
        (b'{"id":"1","inputs":[@]}', b'{\x0b"id":"1","inputs":[@]}'),
        (b'{"id":"1","inputs":[@]}', b'{"id":"\x01","inputs":[@]}'),
        (b'{"inputs":[@]}', b'{"inputs":[@]'),
        (b'{"inputs":[@]}', b'{"inputs":[@]}}'),
    ],
)
def test_other_text(before: bytes, after: bytes) -> None:
    def filled(body: bytes) -> bytes:
        return body.replace(b"@", text(entry(0, BY_WIRE["FP32"], [2], [1, 2])))

    assert not is_recalled(learned(reader(BY_WIRE["FP32"]), filled(before)), filled(after))


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[{"name":"I0","datatype":"FP32","shape":[2],"data":[3,4],"data":[1,2]}]}',
        b'{"inputs":[{"name":"I0","datatype":"FP32","shape":[2],"data":[1,2],"\\u0064ata":[1,2]}]}',
        b'{"inputs":[{"name":"I0","datatype":"FP32","shape":[2],"\\u0064ata":[1,2]}],"more":{"data":[1,2]}}',
        b'{"inputs":[],"inputs":[{"name":"I0","datatype":"FP32","shape":[2],"data":[1,2]}],"data":[1]}',
        b'{"inputs":[{"name":"I0","datatype":"FP32","shape":[2],"data":[1,2]}],"id":"behind"}',
        b'{"id":"a","inputs":[{"name":"I0","datatype":"FP32","shape":[2],"data":[1,2]}],"id":"b"}',
    ],
)
def test_no_template_is_made_of_unusual_text(body: bytes) -> None:
    known = learned(reader(BY_WIRE["FP32"]), body)
    assert not is_recalled(known, body)
    assert not is_recalled(known, body.replace(b"[1,2]", b"[5,6]"))


WORDS = b'{"inputs":[{"name":"I0","datatype":"FP32","shape":[3],"data":[@]}]}'


@pytest.mark.parametrize("first", [b"1,2,3", b"NaN,1,2", b"1,-Infinity,NaN"])
@pytest.mark.parametrize(
    "data",
    [b"NaN,2,3", b"1, NaN ,NaN", b"NaN,NaN,NaN", b"Infinity,-Infinity,NaN", b"[Infinity],[1],[ NaN]", b"1,2,-Infinity"],
)
def test_numbers_that_are_not_finite(first: bytes, data: bytes) -> None:
    known = learned(reader(BY_WIRE["FP32"]), WORDS.replace(b"@", first))
    assert is_recalled(known, WORDS.replace(b"@", data))


@pytest.mark.parametrize("wire", ["FP32", "INT32"])
@pytest.mark.parametrize(
    "data",
    [
        *(
            b"-NaN,1,2",
            b"1NaN,2,3",
            b"NaNNaN,1,2",
            b"NaN1,2,3",
            b"N,1,2",
            b"Na,1,2",
            b"aNaN,1,2",
            b"NaN,1",
            b"NAN,1,2",
            b"nan,1,2",
        ),
        *(
            b"Inf,1,2",
            b"+Infinity,1,2",
            b"--Infinity,1,2",
            b"InfinityNaN,1,2",
            b"null,NaN,1",
            b"NaN,true,1",
            b'NaN,"NaN",1',
        ),
        *(b"-null,1,NaN", b"NaN,,1", b"NaN,1,1e39", b"[NaN,1,2", b"NaN,{},1"),
    ],
)
def test_what_is_no_number(wire: str, data: bytes) -> None:
    text = WORDS.replace(b"FP32", wire.encode())
    known = learned(reader(BY_WIRE[wire]), text.replace(b"@", b"1,2,3"))
    body = text.replace(b"@", data)
    assert not is_recalled(known, body)
    with pytest.raises(NaiadError):
        known.read(body, None)


# Any JSON

_scalars = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=3), st.integers(-(2**65), 2**65), st.integers(-2, 300)
)
_numbers = st.one_of(st.floats(), st.floats(width=32), st.integers(-(2**64), 2**64), st.integers(-130, 260))
_anything = st.recursive(
    _scalars, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=2)
)


def values_of(dtype: DataType, size: int) -> st.SearchStrategy[list[Any]]:
    """Lists that fit."""
    if dtype.is_bytes:
        return st.lists(st.text(max_size=5), min_size=size, max_size=size)
    if dtype.numpy.kind == "f":
        floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
        return st.lists(floats | st.integers(-(2**63), 2**64 - 1), min_size=size, max_size=size)
    if dtype.numpy.kind == "b":
        return st.lists(st.booleans(), min_size=size, max_size=size)
    info = np.iinfo(dtype.numpy.name)
    return st.lists(st.integers(int(info.min), int(info.max)), min_size=size, max_size=size)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[RequestReader, bytes, bytes]:
    """A model, a request that fits it, and one with the same text, or nearly, around whatever data."""
    dtypes = draw(st.lists(st.sampled_from(IN_JSON), min_size=1, max_size=2))
    layout = draw(st.sampled_from(LAYOUTS))
    root: dict[str, Any] = draw(
        st.sampled_from(
            [{}, {"id": "a"}, {"id": "\n"}, {"parameters": {"data": 1}}, {"parameters": {"sequence_id": 2}}]
        )
    )
    sizes = [draw(st.integers(0, 4)) for _ in dtypes]
    good = [
        entry(i, dtype, [n], draw(values_of(dtype, n))) for i, (dtype, n) in enumerate(zip(dtypes, sizes, strict=True))
    ]
    some = [
        {**given, "data": draw(values_of(d, n) | st.lists(_numbers, min_size=n, max_size=n) | _anything)}
        for given, d, n in zip(good, dtypes, sizes, strict=True)
    ]
    for first, second, dtype, size in zip(good, some, dtypes, sizes, strict=True):
        if not dtype.is_bytes and draw(st.booleans()):
            first["data"] = {"b64": base64_of(dtype, *range(size))}
            second["data"] = draw(
                st.just({"b64": base64_of(dtype, *[1] * size)}) | st.just({"b64": "AAA="}) | _anything
            )
    return reader(*dtypes), text({**root, "inputs": good}, layout), text({**root, "inputs": some}, layout)


@pytest.mark.slow
@given(pairs())
def test_any_data_in_the_same_text(pair: tuple[RequestReader, bytes, bytes]) -> None:
    known, first, second = pair
    learned(known, first)
    is_recalled(known, second)
    is_recalled(known, first)


@pytest.mark.slow
@given(pairs(), st.data())
def test_any_change_of_the_bytes(pair: tuple[RequestReader, bytes, bytes], data: st.DataObject) -> None:
    known, first, body = pair
    learned(known, first)
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(body)))
        end = data.draw(st.integers(begin, min(len(body), begin + 8)))
        piece = data.draw(st.sampled_from([b"", b'"', b"[", b"]", b",", b"{", b"}", b"\\", b" ", b'"data":', b"1"]))
        body = body[:begin] + piece + body[end:]
        is_recalled(known, body)


# The whole way


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    more = "max_batch_size: 8 dynamic_batching { }"
    write_model(tmp_path, "floats", identity_config(("0", "TYPE_FP32", "[ -1 ]"), more=more))
    write_model(tmp_path, "pair", identity_config(("0", "TYPE_BOOL", "[ 2 ]"), ("1", "TYPE_UINT64", "[ -1 ]")))
    write_model(tmp_path, "strings", identity_config(("0", "TYPE_STRING", "[ 2 ]")))
    return tmp_path


def floats(data: str, request_id: str = "") -> bytes:
    said = f'"id":"{request_id}",' if request_id else ""
    return f'{{{said}"inputs":[{{"name":"INPUT0","shape":[1,2],"datatype":"FP32","data":{data}}}]}}'.encode()


def answer_to(data: str, request_id: str = "") -> bytes:
    said = f'"id":"{request_id}",' if request_id else ""
    return (
        f'{{{said}"model_name":"floats","model_version":"1","outputs":[{{"name":"OUTPUT0","datatype":"FP32",'
        f'"shape":[1,2],"data":{data}}}]}}'
    ).encode()


def test_answers(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for given_data, wanted in (
            ("[1,2.5]", "[1.0,2.5]"),
            ("[[-0.0],[1e3]]", "[-0.0,1000.0]"),
            ("[7,8]", "[7.0,8.0]"),
        ):
            for request_id in ("", "a", "b c", "é", "\\n"):
                answer = await peer.infer("floats", floats(given_data, request_id))
                assert (answer.status, answer.type) == (200, JSON)
                assert answer.body == answer_to(wanted, request_id)
                assert list(answer.headers) == ["Content-Type", "Content-Length"]

    play(repository, scenario)


def test_what_is_not_finite(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for data in ("[1.0,2.0]", "[NaN,2.0]", "[Infinity,-Infinity]", "[3.0,4.0]"):
            answer = await peer.infer("floats", floats(data))
            assert (answer.status, answer.body) == (200, answer_to(data))

    play(repository, scenario)


@pytest.mark.parametrize(
    "data",
    [
        *("[1,1e39]", "[1]", "[1,2,3]", "[1,true]", '[1,"2"]', "[1,null]", "[1,{}]", "[1", "5", "{}"),
        *('"12"', '["","1"]', "[[1,2],{}]", '[[1,2],""]', '[[1],{"2":2}]', '[[1],"2"]', "[[1,2],[true]]"),
    ],
)
def test_errors_are_the_same(repository: Path, data: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        first = await peer.infer("floats", floats(data))
        assert (await peer.infer("floats", floats("[1,2]"))).status == 200
        again = await peer.infer("floats", floats(data))
        assert first.status == 400
        assert (again.status, again.headers, again.body) == (first.status, first.headers, first.body)
        assert (await peer.infer("floats", floats("[3,4]"))).body == answer_to("[3.0,4.0]")

    play(repository, scenario)


def test_the_length_of_the_json_part_is_checked_still(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        body = floats("[1,2]")
        target = "/v2/models/floats/infer"
        for _ in range(2):
            assert (await peer.ask("POST", target, body)).body == answer_to("[1.0,2.0]")
            answer = await peer.ask("POST", target, body, {"Inference-Header-Content-Length": len(body)})
            assert answer.body == answer_to("[1.0,2.0]")
            for wrong in (len(body) + 1, -1):
                answer = await peer.ask("POST", target, body, {"Inference-Header-Content-Length": wrong})
                assert (answer.status, b"header size should be in range" in answer.body) == (400, True)
            answer = await peer.ask("POST", target, body, {"Inference-Header-Content-Length": 0})
            assert answer.status == 400

    play(repository, scenario)


def test_other_datatypes_and_several_outputs(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for numbers in ([2**64 - 1], [1, 2**63], [3]):
            flags = {"name": "INPUT0", "shape": [2], "datatype": "BOOL", "data": [True, False]}
            large = {"name": "INPUT1", "shape": [len(numbers)], "datatype": "UINT64", "data": numbers}
            for _ in range(2):
                outputs = (await peer.infer("pair", {"inputs": [flags, large]})).outputs()
                assert outputs["OUTPUT0"].tolist() == [True, False]
                assert outputs["OUTPUT1"].tolist() == numbers
            # One output in the JSON and one behind it.
            wanted = [{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameters": {"binary_data": True}}]
            answer = await peer.infer("pair", {"inputs": [flags, large], "outputs": wanted})
            assert answer.outputs()["OUTPUT1"].tolist() == numbers
        for words in (["a", "b"], ["\u00e9", '"]']):
            given_words = {"name": "INPUT0", "shape": [2], "datatype": "BYTES", "data": words}
            answer = await peer.infer("strings", {"inputs": [given_words]})
            assert answer.json["outputs"][0]["data"] == words

    play(repository, scenario)


def test_outputs_that_are_not_of_the_ordinary(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        played = PlayedModel(house, "floats")
        large = np.zeros((1, 100_000), np.float32)
        for outputs, wanted in (
            ({"OUTPUT0": np.array([[1, 2]], np.float32)}, [1.0, 2.0]),
            ({"OUTPUT0": np.array([[1, 2]], np.int32)}, [1, 2]),
            (Outputs({"OUTPUT0": np.array([[1, 2]], np.float32)}, {"a": 1}), [1.0, 2.0]),
            ({"OUTPUT0": np.array([[1, 9, 2]], np.float32)[:, ::2]}, [1.0, 2.0]),
            ({"OUTPUT0": large}, [0.0] * 100_000),
            ({}, None),
        ):
            played.model.submit = lambda request, outputs=outputs: request.respond(outputs, None)
            found = (await peer.infer("floats", floats("[1,2]"))).json
            assert [output["data"] for output in found["outputs"]] == ([] if wanted is None else [wanted])
            assert found.get("parameters") == getattr(outputs, "parameters", None) or None

    play(repository, scenario)
