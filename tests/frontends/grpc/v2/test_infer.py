"""``ModelInfer``: what is answered, every error with its code and text, and what is remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.config.messages import message_class
from naiad.frontends.grpc.v2.infer_reader import MAX_FIELDS
from naiad.shared_memory.registry import DISABLED
from naiad.tensor.dtypes import BY_WIRE
from naiad.wire.v2.header import MAX_ENTRIES, MAX_RANK
from naiad.wire.v2.plan import MAX_PLAN_KEY
from support.grpc_infer import MODELS, Request, Services, floats, pair, play, request, tensors
from support.infer_requests import Parameter
from support.kept_objects import kept

INTERNAL, INVALID, NOT_FOUND, UNIMPLEMENTED, UNAVAILABLE = 13, 3, 5, 12, 14
UNKNOWN = "[request id: <id_unknown>] "
InferTensorContents = message_class("InferTensorContents")


def example(model: str, rows: int = 2) -> list[np.ndarray]:
    """Arrays for the inputs of a model."""
    found = []
    for wire, dims in MODELS[model]:
        shape = (rows, *(3 if d == "-1" else int(d) for d in dims.strip("[ ]").split(", ")))
        count = int(np.prod(shape))
        values: Any = np.arange(count) % 100
        if wire == "BYTES":
            values = np.array([b"%d" % i * i for i in range(count)], object)
        found.append(np.array(values, BY_WIRE[wire].numpy).reshape(shape))
    return found


@pytest.mark.parametrize("model", MODELS)
def test_answers_have_the_tensors_the_id_and_the_names(tmp_path: Path, model: str) -> None:
    async def scenario(services: Services) -> None:
        arrays = example(model)
        for request_id in ("", "a", "é" * 20, "", "x" * 200, "b"):
            answer = await services.answer(request(model, *arrays, id=request_id))
            assert (answer.model_name, answer.model_version, answer.id) == (model, "1", request_id)
            assert len(answer.parameters) == 0
            found = tensors(answer)
            assert list(found) == [f"OUTPUT{i}" for i in range(len(arrays))]
            for expected, array in zip(arrays, found.values(), strict=True):
                np.testing.assert_array_equal(array, expected)

    play(tmp_path, scenario)


def test_any_kind_of_buffer_is_read(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for model in MODELS:
            raw = request(model, *example(model), id="1").SerializeToString()
            wanted = await services.answer(raw)
            for kind in (bytes, bytearray, memoryview):
                for _ in range(2):
                    assert await services.answer(kind(raw)) == wanted

    play(tmp_path, scenario)


def test_tensors_are_views_into_the_message(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        raw = bytearray(floats(*range(1000)).SerializeToString())
        for _ in range(3):
            call = services.ask(raw)
            await call.finished()
        decoder = services.decoder
        for found in (decoder.read(raw), decoder.recall(raw)):
            assert found is not None
            assert np.shares_memory(found[2]["INPUT0"], np.frombuffer(raw, np.uint8))

    play(tmp_path, scenario)


def test_one_output_is_enough_and_the_order_is_the_models(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        message = pair()
        message.outputs.add(name="OUTPUT1")
        assert list(tensors(await services.answer(message))) == ["OUTPUT1"]
        message.outputs.add(name="OUTPUT0")
        assert list(tensors(await services.answer(message))) == ["OUTPUT0", "OUTPUT1"]

    play(tmp_path, scenario)


def test_inputs_in_another_order_keep_their_own_data(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for model in ("pair", "mixed"):
            message = request(model, *example(model))
            wanted = await services.answer(message)
            turned = Request(model_name=model)
            turned.inputs.extend(reversed(message.inputs))
            turned.raw_input_contents.extend(reversed(message.raw_input_contents))
            for _ in range(2):
                assert await services.answer(turned) == wanted

    play(tmp_path, scenario)


def test_versions_are_found(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for version in ("1", "", "1", "01"):
            assert (await services.answer(floats(1, model_version=version))).model_version == "1"

    play(tmp_path, scenario)


def test_fields_in_any_order_and_unknown_ones_are_read_as_protobuf_reads_them(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        message = floats(1, 2, id="7")
        wanted = await services.answer(message)
        tensor = Request(raw_input_contents=message.raw_input_contents).SerializeToString()
        message.ClearField("raw_input_contents")
        rest = message.SerializeToString()
        wrong = Request(model_name="wrong", model_version="9", id="wrong").SerializeToString()
        for raw in (
            tensor + rest,
            rest + b"\x42\x03abc" + tensor,
            b"\x7b\x08\x01\x7c" + rest + tensor,
            wrong + rest + b"\x12\x00" + tensor,
            rest + tensor + b"\xc0\x3e\x05",
        ):
            for _ in range(2):
                assert await services.answer(raw) == wanted

    play(tmp_path, scenario)


def test_extra_raw_tensors_are_ignored(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        message = floats(1, 2)
        wanted = await services.answer(message)
        message.raw_input_contents.append(b"more")
        for _ in range(2):
            assert await services.answer(message) == wanted

    play(tmp_path, scenario)


def test_tensors_without_elements(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for _ in range(2):
            found = tensors(await services.answer(request("floats", np.zeros((2, 0), np.float32))))
            assert found["OUTPUT0"].shape == (2, 0)

    play(tmp_path, scenario)


def test_ids_that_look_like_something_else_are_echoed(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for _ in range(2):
            for request_id in ("*", "\x2a\x05", '"\\', "\x00", "x" * 127, "x" * 128, "x" * 20000):
                assert (await services.answer(floats(1, id=request_id))).id == request_id

    play(tmp_path, scenario)


# Typed contents

CONTENTS = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-32768, 32767]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [0.1, float("inf")]),
    "FP64": ("fp64_contents", [0.1, -1e300]),
    "BYTES": ("bytes_contents", [b"\xff\x00", b""]),
}


def typed(wire: str, field: str, values: list[Any], shape: tuple[int, ...] = (2,)) -> Any:
    message = Request(model_name="types")
    message.inputs.add(name=f"IN_{wire}", datatype=wire, shape=shape, contents=InferTensorContents(**{field: values}))
    message.outputs.add(name=f"OUT_{wire}")
    return message


def test_typed_contents_of_every_datatype(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for wire, (field, values) in CONTENTS.items():
            for _ in range(2):
                found = tensors(await services.answer(typed(wire, field, values)))[f"OUT_{wire}"]
                np.testing.assert_array_equal(found, np.array(values, BY_WIRE[wire].numpy), wire)
            many = values * 500
            found = tensors(await services.answer(typed(wire, field, many, (1000,))))[f"OUT_{wire}"]
            np.testing.assert_array_equal(found, np.array(many, BY_WIRE[wire].numpy), wire)

    play(tmp_path, scenario)


@pytest.mark.parametrize("count", [2, 100_000], ids=["short", "read_by_a_thread"])
def test_contents_of_several_kinds_are_refused(tmp_path: Path, count: int) -> None:
    async def scenario(services: Services) -> None:
        for wire, field, value in (("INT64", "int64_contents", 7), ("BYTES", "bytes_contents", b"a")):
            message = typed(wire, field, [value] * count, (count,))
            message.inputs[0].contents.fp32_contents.append(1.0)
            code, text = await services.error(message)
            beginning = f"unexpected explicit tensor data for input tensor 'IN_{wire}' for model 'types'"
            # The list with the lowest number is read first.
            if wire == "BYTES":
                assert (code, text) == (INVALID, beginning + " of type 'FP32', expected datatype 'BYTES'")
            else:
                assert (code, text) == (INVALID, beginning + ", binary data was already supplied.")
        message = typed("FP32", "fp32_contents", [1.0] * count, (count,))
        message.inputs[0].contents.bytes_contents.append(b"x")
        assert (await services.error(message))[1].endswith("binary data was already supplied.")

    play(tmp_path, scenario)


def test_an_input_that_is_there_twice_is_named_before_its_missing_data(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        message = pair()
        message.id = "r"
        message.inputs.append(message.inputs[0])
        name = message.inputs[0].name
        assert await services.error(message) == (INVALID, f"[request id: r] input '{name}' already exists in request")

    play(tmp_path, scenario)


def test_empty_contents_are_a_tensor_without_elements(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for wire, (field, _) in CONTENTS.items():
            found = tensors(await services.answer(typed(wire, field, [], (0,))))
            assert found[f"OUT_{wire}"].shape == (0,)

    play(tmp_path, scenario)


TYPED_ERRORS = {
    "too few numbers": (
        typed("INT32", "int_contents", [1]),
        UNKNOWN + "input byte size mismatch for input 'IN_INT32' for model 'types'. Expected 8, got 4",
    ),
    "too few strings": (
        typed("BYTES", "bytes_contents", [b"a"]),
        UNKNOWN + "expected 2 string elements for inference input 'IN_BYTES' for model 'types', got 1",
    ),
    "too many strings": (
        typed("BYTES", "bytes_contents", [b"a"] * 3),
        UNKNOWN
        + "unexpected number of string elements 3 for inference input 'IN_BYTES' for model 'types', expecting 2",
    ),
    "no contents": (
        typed("INT32", "int_contents", []),
        UNKNOWN + "input byte size mismatch for input 'IN_INT32' for model 'types'. Expected 8, got 0",
    ),
    "another kind": (
        typed("INT32", "fp32_contents", [1, 2]),
        "unexpected explicit tensor data for input tensor 'IN_INT32' for model 'types' of type 'FP32', expected "
        "datatype 'INT32'",
    ),
    "FP16": (
        typed("FP16", "fp32_contents", [1, 2]),
        "unexpected explicit tensor data for input tensor 'IN_FP16' for model 'types' of type 'FP32', expected "
        "datatype 'FP16'",
    ),
    "out of range": (
        typed("INT8", "int_contents", [1, 300]),
        "invalid contents for input 'IN_INT8': INT8 holds -128 to 127, found 300 at element 1",
    ),
    "out of range, unsigned": (
        typed("UINT16", "uint_contents", [70000, 1]),
        "invalid contents for input 'IN_UINT16': UINT16 holds 0 to 65535, found 70000 at element 0",
    ),
}


def test_wrong_contents(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for what, (message, text) in TYPED_ERRORS.items():
            for _ in range(2):
                assert await services.error(message) == (INVALID, text), what

    play(tmp_path, scenario)


# Errors


def changed(change: str, message: Any = None) -> Any:
    """``pair()`` after a statement about ``m``."""
    message = pair() if message is None else message
    exec(change, {"m": message, "I": InferTensorContents})
    return message


ERRORS: dict[str, tuple[Any, int, str]] = {
    "no message": (b"\xff\xff\xff\xff", INTERNAL, "Unable to parse request"),
    "an id that is no text": (b"\x0a\x04pair\x1a\x01\xff", INTERNAL, "Unable to parse request"),
    "unknown model": (floats(1, model="nope"), NOT_FOUND, "Request for unknown model: 'nope' is not found"),
    "no model": (b"", NOT_FOUND, "Request for unknown model: '' is not found"),
    "unknown version": (
        pair(model_version="7"),
        NOT_FOUND,
        "Request for unknown model: 'pair' version 7 is not found",
    ),
    "no version": (
        pair(model_version="abc"),
        INVALID,
        "failed to get model version from specified version string 'abc' (details: stol), version should be an "
        "integral value > 0",
    ),
    "unknown output": (
        changed("m.outputs.add(name='NOPE')"),
        INVALID,
        "unexpected inference output 'NOPE' for model 'pair'",
    ),
    "unknown input": (
        changed("m.inputs[1].name = 'NOPE'"),
        INVALID,
        "unexpected inference input 'NOPE' for model 'pair'",
    ),
    "an input twice": (
        changed("m.inputs[1].name = 'INPUT0'"),
        INVALID,
        UNKNOWN + "input 'INPUT0' already exists in request",
    ),
    "missing input": (
        changed("del m.inputs[1]"),
        INVALID,
        UNKNOWN + "expected 2 inputs but got 1 inputs for model 'pair'. Got input(s) ['INPUT0'], but missing required "
        "input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    "extra input": (
        changed("m.inputs.add(name='INPUT2', datatype='INT32', shape=[1]); m.raw_input_contents.append(b'1234')"),
        INVALID,
        UNKNOWN + "expected 2 inputs but got 3 inputs for model 'pair'. Got input(s) ['INPUT2','INPUT1','INPUT0'], but "
        "missing required input(s) []. Please provide all required input(s).",
    ),
    "wrong shape": (
        changed("m.inputs[0].shape[:] = [2, 8]; m.inputs[1].shape[:] = [2, 8]"),
        INVALID,
        UNKNOWN + "unexpected shape for input 'INPUT1' for model 'pair'. Expected [-1,16], got [2,8]. NOTE: ",
    ),
    "wrong rank": (
        changed("m.inputs[0].shape[:] = [16]; m.inputs[1].shape[:] = [16]"),
        INVALID,
        UNKNOWN + "inference request batch-size must be <= 8 for 'pair'",
    ),
    "no shape": (
        changed("del m.inputs[1].shape[:]"),
        INVALID,
        UNKNOWN + "input 'INPUT1' has no shape but model requires batch dimension for 'pair'",
    ),
    "negative batch": (
        changed("m.inputs[0].shape[0] = -1; m.inputs[1].shape[0] = -1"),
        INVALID,
        UNKNOWN + "input 'INPUT0' batch size does not match other inputs for 'pair'",
    ),
    "negative batch of one input": (
        changed("m.inputs[0].shape[0] = -1", floats(1)),
        INVALID,
        UNKNOWN + "inference request batch-size must be <= 8 for 'floats'",
    ),
    "negative dimension": (
        changed("m.inputs[0].shape[1] = -1", floats(1)),
        INVALID,
        UNKNOWN + "unexpected shape for input 'INPUT0' for model 'floats'. Expected [-1,-1], got [1,-1]. NOTE: ",
    ),
    "no rows": (
        changed("m.inputs[0].shape[0] = 0", floats()),
        INVALID,
        UNKNOWN + "inference request batch-size must be at least 1 for 'floats', got 0",
    ),
    "too large": (
        changed("m.inputs[0].shape[:] = [9223372036854775807, 16]"),
        INVALID,
        "invalid shape for input 'INPUT0': shape [9223372036854775807,16] causes total element count to exceed maximum "
        "size of 9223372036854775807",
    ),
    "many dimensions": (
        changed(f"m.inputs[0].shape[:] = [1] * {MAX_RANK + 1}"),
        INVALID,
        "invalid shape for input 'INPUT0': 65 dimensions, expected at most 64",
    ),
    "wrong datatype": (
        changed("m.inputs[0].datatype = 'FP32'; m.inputs[1].datatype = 'FP32'"),
        INVALID,
        UNKNOWN + "inference input 'INPUT1' data-type is 'FP32', but model 'pair' expects 'INT32'",
    ),
    "no datatype": (
        changed("m.inputs[0].datatype = 'FOO'"),
        INVALID,
        UNKNOWN + "inference input 'INPUT0' data-type is '<invalid>', but model 'pair' expects 'INT32'",
    ),
    "a short tensor": (
        changed("m.raw_input_contents[0] = m.raw_input_contents[0][:-4]"),
        INVALID,
        UNKNOWN + "input byte size mismatch for input 'INPUT0' for model 'pair'. Expected 64, got 60",
    ),
    "with an id": (
        changed("m.raw_input_contents[1] += b'1'; m.id = 'é'"),
        INVALID,
        "[request id: é] input byte size mismatch for input 'INPUT1' for model 'pair'. Expected 64, got 65",
    ),
    "a tensor too few": (
        changed("del m.raw_input_contents[1]"),
        INVALID,
        "unable to find data for input tensor 'INPUT1' for model 'pair' in request.",
    ),
    "no data": (
        changed("del m.raw_input_contents[:]"),
        INVALID,
        "unable to find data for input tensor 'INPUT0' for model 'pair' in request.",
    ),
    "raw and contents": (
        changed("m.inputs[0].contents.int_contents.append(1)"),
        INVALID,
        "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'pair'",
    ),
    "too large a batch": (
        request("pair", np.zeros((9, 16), np.int32), np.zeros((9, 16), np.int32)),
        INVALID,
        UNKNOWN + "inference request batch-size must be <= 8 for 'pair'",
    ),
    "broken strings": (
        changed("m.raw_input_contents[1] = b'\\x1e\\0\\0\\0xyz'", request("mixed", *example("mixed"))),
        INVALID,
        UNKNOWN
        + "incomplete string data for inference input 'INPUT1' for model 'mixed', expecting string of length 30 "
        "but only 3 bytes available",
    ),
    "input from a region": (
        changed(
            "p = m.inputs[0].parameters; p['shared_memory_region'].string_param = 'r'; "
            "p['shared_memory_byte_size'].int64_param = 64"
        ),
        UNIMPLEMENTED,
        DISABLED,
    ),
    "output to a region": (
        changed(
            "p = m.outputs.add(name='OUTPUT0').parameters; p['shared_memory_region'].string_param = 'r'; "
            "p['shared_memory_byte_size'].int64_param = 64"
        ),
        UNIMPLEMENTED,
        DISABLED,
    ),
    "a region of the wrong type": (
        changed("m.inputs[0].parameters['shared_memory_region'].int64_param = 1"),
        INVALID,
        "invalid value type for 'shared_memory_region' parameter for tensor 'INPUT0', expected string_param.",
    ),
    "a region without a size": (
        changed("m.inputs[0].parameters['shared_memory_region'].string_param = 'r'"),
        INVALID,
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'INPUT0'",
    ),
    "a size without a region": (
        changed("m.inputs[0].parameters['shared_memory_byte_size'].int64_param = 64"),
        INVALID,
        "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter for tensor 'INPUT0'",
    ),
    "an offset without a region": (
        changed("m.outputs.add(name='OUTPUT0').parameters['shared_memory_offset'].int64_param = 0"),
        INVALID,
        "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'OUTPUT0'",
    ),
    "contents beside a region": (
        changed(
            "p = m.inputs[0].parameters; p['shared_memory_region'].string_param = 'r'; "
            "p['shared_memory_byte_size'].int64_param = 64; m.inputs[0].contents.int_contents.append(1)"
        ),
        INVALID,
        "unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model 'pair'",
    ),
    "classes in a region": (
        changed(
            "p = m.outputs.add(name='OUTPUT0').parameters; p['shared_memory_region'].string_param = 'r'; "
            "p['shared_memory_byte_size'].int64_param = 64; p['classification'].int64_param = 1"
        ),
        INVALID,
        "output can't set both 'shared_memory_region' and 'classification'",
    ),
    "classes of the wrong type": (
        changed("m.outputs.add(name='OUTPUT0').parameters['classification'].string_param = '2'"),
        INVALID,
        "invalid value type for 'classification' parameter, expected int64_param",
    ),
    "a negative number of classes": (
        changed("m.outputs.add(name='OUTPUT0').parameters['classification'].int64_param = -2"),
        INVALID,
        "invalid value for 'classification' parameter, expected >= 0",
    ),
    "no class": (
        changed("m.outputs.add(name='OUTPUT0').parameters['classification'].int64_param = 0"),
        INVALID,
        "invalid value for 'classification' parameter, expected >= 0",
    ),
    "very many inputs": (
        changed(f"m.inputs.extend(list(m.inputs[:1]) * {MAX_ENTRIES})"),
        INVALID,
        f"the request has {MAX_ENTRIES + 2} entries in 'inputs', expected at most {MAX_ENTRIES}",
    ),
    "very many fields": (
        b"\x2a\x00" * 600_000,
        INVALID,
        f"the request has more than {MAX_FIELDS} fields, counting each input, output, parameter and tensor: send fewer",
    ),
}


@pytest.mark.slow
def test_every_error_has_its_code_and_text_also_the_second_time(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        good = await services.answer(pair())
        for what, (message, code, text) in ERRORS.items():
            for _ in range(2):
                found = await services.error(message)
                assert found[0] == code, (what, found)
                assert found[1] == text or (text.endswith("NOTE: ") and found[1].startswith(text)), (what, found)
            assert await services.answer(pair()) == good, what

    play(tmp_path, scenario)


# Parameters

TYPE = "invalid value type for '{}' parameter, expected {}."
CUSTOM = "int64_param, bool_param, or string_param"
RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
    "'triton_' are allowed: triton_enable_empty_final_response"
)
PARAMETERS: list[tuple[str, dict[str, Any], str]] = [
    ("sequence_id", {"int64_param": -5}, ""),
    ("sequence_id", {"string_param": "s"}, ""),
    ("sequence_id", {"bool_param": True}, TYPE.format("sequence_id", "int64_param or string_param")),
    ("sequence_start", {"bool_param": True}, ""),
    ("sequence_start", {"int64_param": 1}, TYPE.format("sequence_start", "bool_param")),
    ("sequence_end", {"string_param": "x"}, TYPE.format("sequence_end", "bool_param")),
    ("priority", {"int64_param": 3}, ""),
    ("priority", {"uint64_param": 3}, ""),
    ("priority", {"string_param": "x"}, TYPE.format("priority", "int64_param or uint64_param")),
    ("priority", {"int64_param": -1}, "invalid value for 'priority', expected value >= 0."),
    ("sequence_id", {"string_param": "x" * 128}, ""),
    ("timeout", {"int64_param": 10**6}, ""),
    ("timeout", {"uint64_param": 1}, TYPE.format("timeout", "int64_param")),
    ("timeout", {"int64_param": -1}, "invalid value for 'timeout', expected value >= 0."),
    ("triton_enable_empty_final_response", {"bool_param": True}, ""),
    (
        "triton_enable_empty_final_response",
        {"int64_param": 1},
        TYPE.format("triton_enable_empty_final_response", "bool_param"),
    ),
    ("triton_x", {"int64_param": 1}, RESERVED),
    ("own", {"int64_param": -5}, ""),
    ("own", {"bool_param": False}, ""),
    ("own", {"string_param": ""}, ""),
    ("own", {"double_param": 1.5}, ""),
    ("own", {"uint64_param": 2**63}, TYPE.format("own", CUSTOM)),
    ("own", {}, TYPE.format("own", CUSTOM)),
    ("binary_data_output", {"bool_param": False}, ""),
]


def test_parameters_have_their_types(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for key, value, text in PARAMETERS:
            message = pair()
            message.parameters[key].CopyFrom(Parameter(**value))
            for _ in range(2):
                if text:
                    assert await services.error(message) == (INVALID, text)
                else:
                    assert len((await services.answer(message)).outputs) == 2

    play(tmp_path, scenario)


def test_what_parameters_say_reaches_the_model(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        message = pair()
        message.parameters["priority"].uint64_param = 2**64 - 1
        message.parameters["timeout"].int64_param = 7
        message.parameters["own"].double_param = 0.5
        raw = message.SerializeToString()
        decoder = services.decoder
        for found in (decoder.read(raw), decoder.recall(raw), decoder.recall(raw)):
            assert found is not None
            plan = found[1]
            assert (plan.priority, plan.timeout_us, plan.parameters) == (2**64 - 1, 7, {"own": 0.5})

    play(tmp_path, scenario)


# What is remembered


def test_nothing_is_mistaken_for_another_request(tmp_path: Path) -> None:
    """Requests that differ in one thing only, in turn: each gets its own answer."""

    async def scenario(services: Services) -> None:
        messages = [
            floats(1),
            floats(1, 2),
            floats(1, id="1"),
            floats(1, model_version="1"),
            floats(1, model="slow"),
            changed("m.inputs[0].shape[:] = [2, 1]", floats(1, 2)),
            changed("m.outputs.add(name='OUTPUT0')", floats(3)),
            changed("m.outputs.add(name='OUTPUT1')", pair()),
            pair(),
            changed("m.raw_input_contents.append(b'')", floats(9)),
            request("mixed", *example("mixed", 1)),
            request("mixed", *example("mixed", 3)),
        ]
        alone = [await Services(services.house).answer(message) for message in messages]
        for _ in range(3):
            for message, wanted in zip(messages, alone, strict=True):
                assert await services.answer(message) == wanted
                assert await services.answer(message) == wanted

    play(tmp_path, scenario)


def test_wrong_requests_among_right_ones_are_refused(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        raw = pair(id="12").SerializeToString()
        for _ in range(3):
            await services.answer(raw)
        assert (await services.error(raw[:-1]))[0] == INTERNAL
        assert (await services.error(raw + b"\x00"))[0] == INTERNAL
        assert (await services.error(raw.replace(b"\x1a\x0212", b"\x1a\x02\xff\xfe")))[0] == INTERNAL
        # As long as before, but the second tensor has another size.
        short = raw[: -64 - 2] + b"\x3a\x3f" + raw[-64:-1] + b"\x42"
        assert (await services.error(short))[0] == INTERNAL
        other = raw[: -64 - 2] + b"\x3a\x3e" + raw[-64:-2] + b"\x42\x00"
        assert (await services.error(other))[0] == INVALID
        await services.answer(raw)

    play(tmp_path, scenario)


def test_a_model_that_was_unloaded_is_no_longer_found(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        raw, strings = pair().SerializeToString(), request("mixed", *example("mixed")).SerializeToString()
        for _ in range(2):
            await services.answer(raw)
            await services.answer(strings)
        assert await services.house.manager.unload_all(20)
        assert (await services.error(raw))[0] in (NOT_FOUND, UNAVAILABLE)
        assert (await services.error(strings))[0] in (NOT_FOUND, UNAVAILABLE)

    play(tmp_path, scenario)


def test_a_long_description_is_served_without_being_kept(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        message = pair(id="1")
        message.parameters["own"].string_param = "x" * (MAX_PLAN_KEY + 1)
        for _ in range(2):
            assert (await services.answer(message)).id == "1"
        assert max(len(one) for one in kept(services.decoder) if isinstance(one, (str, bytes))) < MAX_PLAN_KEY

    play(tmp_path, scenario)


# The life of a call


def test_a_decoupled_model_is_refused(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        model = services.house.engine.find("pair", "")
        model.spec = replace(model.spec, decoupled=True)
        text = "ModelInfer RPC doesn't support models with decoupled transaction policy"
        for _ in range(2):
            assert await services.error(pair()) == (UNIMPLEMENTED, text)

    play(tmp_path, scenario)


def test_a_run_that_fails_is_an_error(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for index, code in ((1, 0), (9, INTERNAL), (1, 0)):
            message = Request(model_name="look_up", raw_input_contents=[np.int64(index).tobytes()])
            message.inputs.add(name="index", datatype="INT64", shape=[1, 1])
            call = services.ask(message)
            assert (await call.finished())[0] == code
            assert len(call.messages) == (code == 0)

    play(tmp_path, scenario)


def test_a_caller_who_gives_up_leaves_the_queue(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        running, queued, last = (services.ask(floats(n, model="slow")) for n in (1, 2, 3))
        model = services.house.engine.find("slow", "")
        assert model.in_flight == 3
        assert queued.owner is not None
        queued.give_up()
        assert model.in_flight == 2
        running.give_up()
        assert await last.finished() == (0, "")
        assert queued.messages == running.messages == []
        assert last.owner is None

    play(tmp_path, scenario)


def test_a_model_that_stops_refuses(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        services.house.engine.find("pair", "").stop_accepting()
        code, text = await services.error(pair())
        assert code == UNAVAILABLE
        assert text.startswith("Server is stopping")

    play(tmp_path, scenario)
