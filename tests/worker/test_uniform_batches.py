"""Batches whose requests differ in the elements of their tensors alone, and when they are answered in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from support.worker_peer import Request, worker_of, write_execute

TWICE = """
found = []
for r in requests:
    tensors = [pb_utils.Tensor(f"OUT{i}", t.as_numpy() * 2) for i, t in enumerate(r.inputs())]
    found.append(pb_utils.InferenceResponse(tensors))
return found
"""


@pytest.mark.parametrize("shape", [(16,), (3,), (), (2, 5), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16, np.int64])
def test_all_are_answered_at_once(tmp_path: Path, shape: tuple[int, ...], dtype: Any) -> None:
    with worker_of(write_execute(tmp_path, TWICE)) as child:
        for count in (1, 2, 7):
            arrays = [np.full(shape, n, dtype) for n in range(count)]
            found = child.run_uniform([Request({"IN": a}) for a in arrays])
            assert len(found) == count
            for array, outputs in zip(arrays, found, strict=True):
                assert list(outputs) == ["OUT0"]
                np.testing.assert_array_equal(outputs["OUT0"], array * 2)


def test_several_tensors_of_odd_sizes(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, TWICE)) as child:
        inputs = [{"A": np.full(3, n, np.int8), "B": np.full((2, 65), n, np.float32)} for n in range(5)]
        found = child.run_uniform([Request(i) for i in inputs])
        for given, outputs in zip(inputs, found, strict=True):
            np.testing.assert_array_equal(outputs["OUT0"], given["A"] * 2)
            np.testing.assert_array_equal(outputs["OUT1"], given["B"] * 2)


def test_ids_and_facts_reach_the_model(tmp_path: Path) -> None:
    body = """
    for n, r in enumerate(requests):
        assert r.request_id() == ("", "one", "ü")[n], r.request_id()
        assert r.correlation_id() == 7 and r.flags() == 1 and r.parameters() == '{"k":1}'
        assert r.requested_output_names() == {"OUT"}
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests
    ]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        options = {"correlation_id": 7, "flags": 1, "parameters": {"k": 1}}
        requests = [
            Request({"IN": np.array([n])}, id=i, outputs=("OUT",), options=options)
            for n, i in enumerate(("", "one", "ü"))
        ]
        assert [o["OUT"].tolist() for o in child.run_uniform(requests)] == [[0], [1], [2]]


def test_steps_say_their_sequence_and_their_flags_themselves(tmp_path: Path) -> None:
    body = """
    name = "InferenceRequest"
    return [
        pb_utils.InferenceResponse([
            pb_utils.Tensor("SAID", np.array([r.correlation_id(), r.flags()], np.uint64)),
            pb_utils.Tensor("IDS", np.array([len(r.request_id()), r.timeout(), type(r).__name__ == name])),
            pb_utils.Tensor("OUT", r.inputs()[0].as_numpy() + r.inputs()[1].as_numpy()),
        ])
        for r in requests
    ]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        options = {"correlation_id": 99, "flags": 3, "timeout_us": 4}
        steps = [(7, 1), (2**64 - 1, 0), (0, 2)]
        for ids in (("", "", ""), ("", "one", "\u00fc!")):
            requests = [
                Request({"A": np.array([n]), "B": np.full((3, 1), n * 10)}, id=i, options=options)
                for n, i in enumerate(ids)
            ]
            found = child.run_uniform(requests, steps=steps)
            assert [tuple(o["SAID"].tolist()) for o in found] == steps
            assert [o["IDS"].tolist() for o in found] == [[len(i), 4, 1] for i in ids]
            assert [o["OUT"].ravel().tolist() for o in found] == [[n * 11] * 3 for n in range(3)]


@pytest.mark.parametrize(
    "response",
    [
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(n + 1, np.int32))])",
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, (np.int32, np.int64)[n]))])",
        "pb_utils.InferenceResponse([pb_utils.Tensor(('OUT', 'OTHER')[n], np.zeros(1))])",
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1))][:n])",
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1))], parameters={'n': n})",
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([b'x'], object))])",
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(10_000))])",
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1))], (None, pb_utils.TritonError('no'))[n])",
        "pb_utils.InferenceResponse([])",
        "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1)), pb_utils.Tensor('MORE', np.zeros(1))])",
    ],
)
def test_what_differs_is_answered_one_by_one(tmp_path: Path, response: str) -> None:
    body = f"return [{response} for n in range(len(requests))]"
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute_uniform(3, [Request({"IN": np.array([n])}, outputs=("OUT", "OTHER")) for n in range(2)], first=5)
        frame = child.expect(p.RESPONSES)
        assert frame.number == 3
        responses = child.responses(frame)
        assert [r.request for r in responses] == [5, 6]
        assert all(r.flags & p.FLAG_FINAL for r in responses)
        assert all("MORE" not in r.outputs for r in responses)


def test_senders_answer_for_themselves(tmp_path: Path) -> None:
    body = """
    response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.int32))])
    requests[0].get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    return [None, response]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute_uniform(1, [Request({"IN": np.array([n])}) for n in range(2)], first=1)
        (first,) = child.responses(child.expect(p.RESPONSE))
        assert (first.request, first.flags) == (1, p.FLAG_FINAL)
        (second,) = child.responses(child.expect(p.RESPONSES))
        assert second.request == 2


def test_a_decoupled_model_takes_them_too(tmp_path: Path) -> None:
    body = """
    for r in requests:
        sender = r.get_response_sender()
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    return None
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        child.execute_uniform(1, [Request({"IN": np.array([n])}) for n in range(3)])
        responses, _ = child.collect(1, 3)
        assert [int(r.outputs["OUT"][0]) for r in responses if r.outputs] == [0, 1, 2]
