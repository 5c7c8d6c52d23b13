"""Default mode: what a model sees of its requests, what callers get back, and what they hear of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.tensor.dtypes import BY_WIRE
from naiad.worker.ipc import frames as p
from support.worker_peer import Request, worker_of, write_execute, write_model

IDENTITY = """
return [
    pb_utils.InferenceResponse([pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy())])
    for r in requests
]
"""
ONE = Request({"IN": np.array([1], np.int32)})
FAILED = "Failed to process the request(s) for model 'm_0_0', message: "


def test_a_batch_is_answered_request_by_request(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IDENTITY)) as child:
        inputs = [np.arange(n, dtype=np.float32) for n in (16, 3, 0, 16)]
        responses = child.run([Request({"IN": a}) for a in inputs], first=100)
        assert [r.request for r in responses] == [100, 101, 102, 103]
        assert all(r.flags == p.FLAG_FINAL for r in responses)
        for array, response in zip(inputs, responses, strict=True):
            np.testing.assert_array_equal(response.outputs["OUT"], array)


@pytest.mark.parametrize("wire", sorted(BY_WIRE))
def test_every_datatype_passes_through(tmp_path: Path, wire: str) -> None:
    datatype = BY_WIRE[wire]
    if wire == "BYTES":
        array: Any = np.array([[b"", b"one"], [bytes(range(256)), "ü".encode()]], object)
    else:
        array = np.arange(6).reshape(2, 3).astype(datatype.numpy)
    body = IDENTITY
    if wire == "BF16":
        body = (
            "return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('OUT', r.inputs()[0])]) for r in requests]"
        )
    with worker_of(write_execute(tmp_path, body)) as child:
        (response,) = child.run([Request({"IN": array})])
        assert response.types["OUT"] == wire
        np.testing.assert_array_equal(response.outputs["OUT"], array)


def test_scalars_and_empty_tensors(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IDENTITY)) as child:
        for array in (np.array(2.5), np.zeros((0, 3), np.int8), np.empty((0,), object), np.array(b"x", object)):
            (response,) = child.run([Request({"IN": array})])
            assert response.outputs["OUT"].shape == array.shape
            np.testing.assert_array_equal(response.outputs["OUT"], array)


def test_a_request_has_all_that_its_form_says(tmp_path: Path) -> None:
    body = """
    out = []
    for r in requests:
        seen = {
            "parameters": r.parameters(), "id": r.request_id(), "correlation": r.correlation_id(), "flags": r.flags(),
            "timeout": r.timeout(), "outputs": sorted(r.requested_output_names()), "trace": r.trace().get_context(),
            "inputs": [[t.name(), t.shape(), t.triton_dtype(), t.is_cpu()] for t in r.inputs()],
            "cancelled": r.is_cancelled(), "dir": sorted(x for x in dir(r) if not x.startswith("_")),
            "missing": pb_utils.get_input_tensor_by_name(r, "NO") is None,
        }
        out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen)], dtype=object))]))
    return out
    """
    options = {
        "parameters": {"temperature": 0.7, "n": 3, "s": "ü x", "b": True},
        "timeout_us": 5000000,
        "flags": 3,
        "correlation_id": "seq",
        "trace": '{"traceparent": "00"}',
    }
    full = Request({"A": np.ones((2, 3), np.float32), "B": np.array([1], np.int64)}, ["OUT", "Z"], "ïd", options)
    with worker_of(write_execute(tmp_path, body)) as child:
        first, second = (json.loads(r.outputs["OUT"][0]) for r in child.run([full, Request({"A": np.ones(1)})]))
    assert first.pop("dir") == [
        "async_exec", "correlation_id", "exec", "flags", "get_response_sender", "inputs", "is_cancelled", "parameters",
        "request_id", "requested_output_names", "set_flags", "set_release_flags", "timeout", "trace",
    ]  # fmt: skip
    assert first == {
        "parameters": '{"temperature":0.7,"n":3,"s":"ü x","b":true}',
        "id": "ïd",
        "correlation": "seq",
        "flags": 3,
        "timeout": 5000000,
        "outputs": ["OUT", "Z"],
        "trace": '{"traceparent": "00"}',
        "inputs": [["A", [2, 3], 11, True], ["B", [1], 9, True]],
        "cancelled": False,
        "missing": True,
    }
    assert (second["parameters"], second["id"], second["correlation"], second["trace"]) == ("{}", "", 0, None)


def test_inputs_can_be_written_to(tmp_path: Path) -> None:
    body = """
    for r in requests:
        a = r.inputs()[0].as_numpy()
        a *= 2
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        (response,) = child.run([Request({"IN": np.array([1, 2], np.int32)})])
        assert response.outputs["OUT"].tolist() == [2, 4]


def test_response_parameters_and_outputs_nobody_asked_for(tmp_path: Path) -> None:
    body = """
    return [pb_utils.InferenceResponse(
        [pb_utils.Tensor("OUT", r.inputs()[0].as_numpy()), pb_utils.Tensor("NOPE", np.zeros(1))],
        parameters={"s": "text", "i": i, "b": True}) for i, r in enumerate(requests)]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        one = np.array([1], np.int32)
        named, unnamed = child.run([Request({"IN": one}, ["OUT"]), Request({"IN": one})])
        assert list(named.outputs) == ["OUT"]
        assert named.parameters == {"s": "text", "i": 0, "b": True}
        assert list(unnamed.outputs) == ["OUT", "NOPE"]
        assert unnamed.parameters["i"] == 1


def test_a_response_without_outputs(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, "return [pb_utils.InferenceResponse([]) for r in requests]")) as child:
        (response,) = child.run([ONE])
        assert (response.outputs, response.parameters, response.error) == ({}, {}, "")


def test_an_error_for_one_request_leaves_the_others(tmp_path: Path) -> None:
    body = """
    out = []
    for r in requests:
        m = int(r.inputs()[0].as_numpy()[0])
        E = pb_utils.TritonError
        codes = [E.UNKNOWN, E.INTERNAL, E.NOT_FOUND, E.INVALID_ARG]
        codes += [E.UNAVAILABLE, E.UNSUPPORTED, E.ALREADY_EXISTS, E.CANCELLED]
        if m < 0:
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([m]))]))
        elif m == 99:
            out.append(pb_utils.InferenceResponse(error=E("default")))
        else:
            out.append(pb_utils.InferenceResponse(error=E("code %d" % m, codes[m])))
    return out
    """
    modes = [-1, 99, 0, 1, 2, 3, 4, 5, 6, 7]
    with worker_of(write_execute(tmp_path, body)) as child:
        responses = child.run([Request({"IN": np.array([m], np.int32)}) for m in modes])
    assert responses[0].outputs["OUT"].tolist() == [-1]
    assert (responses[1].error, responses[1].code) == ("default", 13)
    assert [r.code for r in responses[2:]] == [2, 13, 5, 3, 14, 12, 6, 1]
    assert responses[2].error == "code 0"
    assert all(r.flags == p.FLAG_FINAL | p.FLAG_ERROR | p.FLAG_OWN for r in responses[1:])


def test_the_code_of_an_error_is_shown_by_its_name(tmp_path: Path) -> None:
    body = """
    code = pb_utils.TritonError("none", pb_utils.TritonError.NOT_FOUND).code()
    error = pb_utils.TritonError("%s %s %d" % (code, f"{code}", code))
    return [pb_utils.InferenceResponse(error=error) for r in requests]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        (response,) = child.run([ONE])
    assert response.error == "ErrorCode.NOT_FOUND ErrorCode.NOT_FOUND 2"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        ("(1, 2)", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        (
            "[]",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
        ),
        (
            "[7]",
            "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'.",
        ),
    ],
)
def test_wrong_results(tmp_path: Path, returned: str, message: str) -> None:
    with worker_of(write_execute(tmp_path, f"return {returned}")) as child:
        for batch in (1, 2):
            assert child.run_failing([ONE], batch) == FAILED + message


def test_none_instead_of_one_response(tmp_path: Path) -> None:
    body = "return [None, pb_utils.InferenceResponse([])]"
    with worker_of(write_execute(tmp_path, body)) as child:
        missing, good = child.run([ONE, ONE])
        assert missing.error == (
            FAILED + "Expected an 'InferenceResponse' object in the execute function return list, found type "
            "'<class 'NoneType'>'."
        )
        assert good.error == ""


@pytest.mark.parametrize(
    ("raised", "headline"),
    [
        ("raise RuntimeError('boom from model')", "RuntimeError: boom from model"),
        ("raise pb_utils.TritonModelException('own')", "TritonModelException: own"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt()", "KeyboardInterrupt: <EMPTY MESSAGE>"),
        ("pb_utils.Tensor('', np.zeros(1))", "TritonModelException: Tensor name cannot be an empty string."),
        ("None.as_numpy()", "AttributeError: 'NoneType' object has no attribute 'as_numpy'"),
    ],
)
def test_an_exception_is_told_with_its_place(tmp_path: Path, raised: str, headline: str) -> None:
    model = write_execute(tmp_path, raised + "\n")
    with worker_of(model) as child:
        for batch in (1, 2):
            assert child.run_failing([ONE, ONE], batch) == f"{FAILED}{headline}\n\nAt:\n  {model}(7): execute\n"


def test_the_deepest_place_comes_first(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        """
        def inner():
            raise ValueError("deep")
        class TritonPythonModel:
            def execute(self, requests):
                return inner()
        """,
    )
    with worker_of(model) as child:
        assert child.run_failing([ONE]) == (
            f"{FAILED}ValueError: deep\n\nAt:\n  {model}(7): inner\n  {model}(10): execute\n"
        )


def test_an_exception_without_a_readable_text(tmp_path: Path) -> None:
    body = """
    class Odd(Exception):
        def __str__(self):
            raise ValueError("no text")
    raise Odd()
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        assert child.run_failing([ONE]).startswith(f"{FAILED}Odd: <its text cannot be shown: ValueError>\n\nAt:\n")


def test_a_model_without_execute(tmp_path: Path) -> None:
    model = write_model(tmp_path, "class TritonPythonModel:\n    pass\n")
    with worker_of(model) as child:
        assert child.run_failing([ONE]) == f"{FAILED}Python model {model} does not implement `execute` method."


def test_an_output_that_cannot_be_read_fails_its_own_request(tmp_path: Path) -> None:
    body = """
    class Odd:
        def __str__(self):
            raise ValueError("no text")
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([Odd()], dtype=object))]),
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(["ä", 7, None, np.bytes_(b"x")], dtype=object))]),
    ]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        odd, good = child.run([ONE, ONE])
        assert odd.error.startswith("Failed to read the output tensors of a response: ValueError: no text\n\nAt:\n")
        assert good.outputs["OUT"].tolist() == ["ä".encode(), b"7", b"None", b"x"]


def test_a_request_is_given_back(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        """
        class TritonPythonModel:
            def initialize(self, args):
                self.seen = 0
            def execute(self, requests):
                self.seen += 1
                out = []
                for r in requests:
                    if self.seen == 1 and r.request_id() == "later":
                        r.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                        out.append(None)
                    else:
                        out.append(pb_utils.InferenceResponse([]))
                return out if len(out) > 1 or out[0] else None
        """,
    )
    with worker_of(model) as child:
        one = np.zeros(1)
        now, later = child.run([Request({"IN": one}, id="now"), Request({"IN": one}, id="later")])
        assert now.flags == p.FLAG_FINAL
        assert later.flags == p.FLAG_FINAL | p.FLAG_EMPTY | p.FLAG_RESCHEDULE
        (again,) = child.run([Request({"IN": one}, id="later")])
        assert again.flags == p.FLAG_FINAL


def test_a_request_that_is_given_back_and_answered(tmp_path: Path) -> None:
    body = """
    requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    return [pb_utils.InferenceResponse([])]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        assert child.run_failing([ONE]) == (
            FAILED + "Expected a None object in the execute function return list for reschduled request, found type "
            "'<class 'triton_python_backend_utils.InferenceResponse'>'."
        )


@pytest.mark.slow
def test_forms_may_be_forgotten_on_both_sides(tmp_path: Path) -> None:
    body = """
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(int(r.inputs()[0].as_numpy()[0]), np.uint8))])
            for r in requests]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        for start in range(0, 5000, 1000):
            requests = [Request({"IN": np.array([n], np.int32)}) for n in range(start, start + 1000)]
            responses = child.run(requests)
            assert [len(r.outputs["OUT"]) for r in responses] == list(range(start, start + 1000))
            child.forget_forms()


def test_a_frame_larger_than_the_buffer(tmp_path: Path) -> None:
    body = """
    sums = [np.array([r.inputs()[0].as_numpy().sum()]) for r in requests]
    return [pb_utils.InferenceResponse([pb_utils.Tensor('SUM', s)]) for s in sums]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        for count in (1, 40, 200, 3):
            requests = [Request({"IN": np.full(4000, i, np.int16)}) for i in range(count)]
            responses = child.run(requests)
            assert [int(r.outputs["SUM"][0]) for r in responses] == [4000 * i for i in range(count)]
