"""Classification over both protocols, from the bytes of a request to those of its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from frontends.grpc.v2.test_stream import Caller
from naiad.request import InferRequest
from naiad.tensor.dtypes import BY_WIRE
from naiad.testing import write_model
from support.grpc_infer import Services, floats, request, tensors
from support.grpc_infer import play as play_grpc
from support.http_application import House, Peer, identity_config, play

LARGE = 20_000


def classified(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "OUTPUT0", "parameters": {"classification": count, **more}}]


def row(*values: float, outputs: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    given = {"name": "INPUT0", "shape": [1, len(values)], "datatype": "FP32", "data": values}
    return {**more, "inputs": [given], "outputs": outputs}


def write_models(repository: Path) -> None:
    batched = "max_batch_size: 8 dynamic_batching { }"
    folder = write_model(repository, "labelled", identity_config(("0", "TYPE_FP32", "[ -1 ]"), more=batched))
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "labels.txt"'))
    (folder / "labels.txt").write_text("cat\ndog\n")
    write_model(repository, "strings", identity_config(("0", "TYPE_STRING", "[ -1 ]")))


def test_classes_as_json_and_as_binary_data(tmp_path: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        request = row(1, 3, 2, outputs=classified(2), id="7")
        for _ in range(3):
            answer = await peer.infer("labelled", request)
            assert answer.json["id"] == "7"
            assert answer.json["outputs"][0]["data"] == ["3.000000:1:dog", "2.000000:2"]
        answer = await peer.infer("labelled", row(1, 3, outputs=classified(9, binary_data=True)))
        assert answer.outputs()["OUTPUT0"].tolist() == [[b"3.000000:1:dog", b"1.000000:0:cat"]]
        answer = await peer.infer("labelled", row(1, 3, outputs=classified(0)))
        assert answer.outputs()["OUTPUT0"].dtype == np.float32

    write_models(tmp_path)
    play(tmp_path, scenario)


def test_binary_requests_that_are_recognised_are_classified_too(tmp_path: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        given = {"name": "INPUT0", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
        for values in ([1, 2, 4, 3], [2, 1, 3, 4]):
            raw = np.array(values, np.float32).tobytes()
            answer = await peer.infer("labelled", {"inputs": [given], "outputs": classified(1)}, raw)
            best = [[f"{max(pair)}.000000:{np.argmax(pair)}:".encode()] for pair in (values[:2], values[2:])]
            found = answer.outputs()["OUTPUT0"].tolist()
            assert [[text[: len(b[0])] for text in f] for f, b in zip(found, best, strict=True)] == best

    write_models(tmp_path)
    play(tmp_path, scenario)


def test_what_cannot_be_classified_is_refused_before_it_runs(tmp_path: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        given = {"name": "INPUT0", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}
        answer = await peer.infer("strings", {"inputs": [given], "outputs": classified(1)})
        assert answer.status == 400
        assert answer.error == "class result not available for output due to unsupported type 'BYTES'"
        assert house.engine.find("strings", None).statistics.success.count == 0

    write_models(tmp_path)
    play(tmp_path, scenario)


def test_large_outputs_are_classified_in_a_thread(tmp_path: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.infer("labelled", row(*range(LARGE), outputs=classified(LARGE), id='"'))
        found = answer.json["outputs"][0]["data"]
        assert (answer.json["id"], len(found), found[-1]) == ('"', LARGE, "0.000000:0:cat")

    write_models(tmp_path)
    play(tmp_path, scenario)


def test_a_model_that_answers_otherwise_than_configured_gets_an_error(tmp_path: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        model = house.engine.find("labelled", None)

        def submit(request: InferRequest) -> None:
            request.respond({"OUTPUT0": np.array([[b"a"] * LARGE], object)}, None)

        model.submit = submit  # type: ignore[method-assign]
        answer = await peer.infer("labelled", row(1, outputs=classified(1)))
        assert (answer.status, "'BYTES'" in answer.error) == (400, True)
        answer = await peer.infer("labelled", row(1, outputs=[{"name": "OUTPUT0"}]))
        assert answer.status == 200

    write_models(tmp_path)
    play(tmp_path, scenario)


def test_classes_over_grpc(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        def message(*values: float, count: int, id: str = "") -> Any:
            made = floats(*values, model="labelled", id=id)
            made.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = count
            return made

        for request_id in ("", "a", "b"):
            answer = await services.answer(message(1, 3, 2, count=2, id=request_id))
            assert answer.outputs[0].datatype == "BYTES"
            assert tensors(answer)["OUTPUT0"].tolist() == [[b"3.000000:1:dog", b"2.000000:2"]]
        answer = await services.answer(message(*range(LARGE), count=LARGE))
        assert tensors(answer)["OUTPUT0"][0, -1] == b"0.000000:0:cat"
        # On a stream the answers keep their order, whichever takes longer.
        caller = Caller(services)
        caller.send(message(*range(LARGE), count=LARGE, id="1"), message(5, count=1, id="2"), floats(1, id="3"))
        answers = await caller.rest()
        assert [a.infer_response.id for a in answers] == ["1", "2", "3"]
        assert tensors(answers[1].infer_response)["OUTPUT0"].tolist() == [[b"5.000000:0:cat"]]

    write_models(tmp_path)
    play_grpc(tmp_path, scenario)


def test_every_number_is_classified_over_grpc_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for dtype in BY_WIRE.values():
            if dtype.is_bytes or dtype.wire == "BOOL":
                continue
            array = np.array([1, 3, 2], dtype.numpy)
            message = request("types", array, wires=[dtype.wire])
            message.inputs[0].name = f"IN_{dtype.wire}"
            message.outputs.add(name=f"OUT_{dtype.wire}").parameters["classification"].int64_param = 1
            found = tensors(await services.answer(message))[f"OUT_{dtype.wire}"].tolist()
            assert found == ([b"3:1"] if dtype.numpy.kind in "iu" else [b"3.000000:1"])
        message.outputs[0].name = "OUT_BOOL"
        assert await services.error(message) == (
            3,
            "class result not available for output due to unsupported type 'BOOL'",
        )

    play_grpc(tmp_path, scenario)
