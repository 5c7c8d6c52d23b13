"""The table of fields is complete, and ``naiad explain`` says where each value comes from."""

from __future__ import annotations

import json
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from naiad.cli.explain import explain
from naiad.config.messages import message_class
from naiad.explain.fields import FIELDS
from naiad.explain.report import field_names, markdown
from naiad.processes.affinity import server_cores
from naiad.testing import serving

ROOT = Path(__file__).resolve().parents[2]
IDENTITY = """\
backend: "identity"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
dynamic_batching {
  max_queue_delay_microseconds: 100
}
parameters { key: "execute_delay_ms" value { string_value: "0" } }
"""


def model(folder: Path, text: str) -> Path:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text)
    return folder


def onnx_model(path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 3]) for name in "XY"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["X"], ["Y"])], "relu", tensors[:1], tensors[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def fields(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, dict[str, Any]]:
    assert explain([*map(str, arguments), "--json"]) == 0
    return {row["path"]: row for row in json.loads(capsys.readouterr().out)["fields"]}


def messages() -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting = [message_class("ModelConfig").DESCRIPTOR]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name not in found:
            found[descriptor.full_name] = descriptor
            waiting += [field.message_type for field in descriptor.fields if field.message_type is not None]
    return {d.name: d for d in found.values() if d.fields and not d.GetOptions().map_entry}


def test_each_field_of_the_protocol_has_its_line_and_no_other() -> None:
    assert {name: set(table) for name, table in FIELDS.items()} == {
        name: {field.name for field in descriptor.fields} for name, descriptor in messages().items()
    }


def test_the_page_is_written_from_the_table() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page.endswith("\n\n" + markdown()), "run scripts/docs"
    assert "dynamic_batching.priority_queue_policy.max_queue_size" in field_names()


def test_origins_of_a_written_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = fields(capsys, model(tmp_path / "echo", IDENTITY))
    delay = rows["dynamic_batching.max_queue_delay_microseconds"]
    assert (delay["value"], delay["unit"], delay["origin"]) == (100, "us", "config.pbtxt:6")
    assert delay["metric"] == "nv_inference_queue_duration_us"
    assert rows["dynamic_batching.preferred_batch_size"]["value"] == [4]
    assert rows["dynamic_batching.preferred_batch_size"]["origin"] == "default"
    assert rows["name"]["origin"] == "the model's files"
    assert rows["instance_group[0].count"]["value"] == 1
    assert rows['parameters["execute_delay_ms"]']["origin"] == "config.pbtxt:8"
    assert rows["sequence_batching"]["value"] is None


def test_origins_of_what_the_model_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path / "relu", "instance_group [ { count: 3 } ]\n")
    onnx_model(folder / "1" / "model.onnx")
    rows = fields(capsys, folder)
    origins = {path: (row["value"], row["origin"]) for path, row in rows.items()}
    assert origins["max_batch_size"] == (4, "auto-completed")
    assert origins["input[0].dims"] == ([3], "auto-completed")
    assert origins["input[0].optional"] == (False, "default")
    assert origins["default_model_filename"] == ("model.onnx", "the model's files")
    assert origins["instance_group[0].count"] == (3, "config.pbtxt:1")
    assert origins["instance_group[0].kind"] == ("KIND_CPU", "default")


def test_a_host_policy_says_where_instances_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    core = min(server_cores(), default=0)
    folder = model(tmp_path / "echo", IDENTITY)
    assert explain([str(folder), "--host-policy", f"cpu,cpu-cores={core}", "--field", "instance_group"]) == 0
    said = f"note: the instances of group 'echo' run on core {core} (host policy 'cpu')\n"
    assert capsys.readouterr().err.replace("echo_0", "echo") == said
    assert explain([str(folder), "--host-policy=cpu,cores=1"]) == 1
    assert "Unsupported host policy setting 'cores' is specified" in capsys.readouterr().err


def test_one_field_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model(tmp_path / "echo", IDENTITY)
    assert explain(["--model-repository", str(tmp_path), "echo", "--field", "dynamic_batching"]) == 0
    shown = capsys.readouterr().out
    assert (
        "dynamic_batching.max_queue_delay_microseconds: 100 us (0.1 ms)  [config.pbtxt:6]\n"
        "    How long a batch waits for further requests. Metric: nv_inference_queue_duration_us.\n"
    ) in shown
    assert "instance_group" not in shown


def test_a_field_that_is_not_set_shows_what_it_would_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain([str(model(tmp_path / "echo", IDENTITY)), "--field", "sequence_batching"]) == 0
    shown = capsys.readouterr().out
    assert "sequence_batching.oldest.max_candidate_sequences: not set  [not set]\n" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "there is no file or folder 'nothing': name the folder of a model, or its repository with"),
        (("ech", "--model-repository={}"), "there is no model 'ech' in {}, did you mean 'echo'?"),
        (("{}",), "'{0}' holds several models, name one as in {0}/broken; there are 'broken', 'echo'"),
        (("{}/echo/1",), "'{}/echo/1' holds no model: name the folder of a model, or a model file"),
        (("{}/echo", "--field", "dynamic_batchin"), "has no field 'dynamic_batchin', did you mean 'dynamic_batching'?"),
        (("{}/echo", "--model-version", "7"), "model 'echo' has no version 7; it has 1"),
        (("echo", "--url", "127.0.0.1:1"), "http://127.0.0.1:1/v2/models/echo/config: expected the configuration of a"),
        (("echo", "--url", "x", "--backend-config=a,b=c"), "--backend-config=a,b=c: expected nothing beside --url"),
        (("{}/broken",), "broken/config.pbtxt:1: unknown field 'zzz' in the model configuration"),
    ],
)
def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    model(tmp_path / "echo", IDENTITY)
    model(tmp_path / "broken", "zzz: 1\n")
    assert explain([argument.format(tmp_path) for argument in arguments]) == 1
    assert words.format(tmp_path) in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_of_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the origins that its repository gives, and those of a load with another configuration."""
    model(tmp_path / "models" / "echo", IDENTITY)
    folder = model(tmp_path / "models" / "relu", "instance_group [ { count: 3 } ]\n")
    onnx_model(folder / "1" / "model.onnx")
    arguments = ("--model-control-mode=explicit", "--load-model=echo", "--load-model=relu")
    with serving(tmp_path / "log", tmp_path / "models", *arguments) as server:
        address = f"127.0.0.1:{server.http}"
        assert fields(capsys, "echo", "--url", address) == fields(capsys, tmp_path / "models" / "echo")
        rows = fields(capsys, "relu", "--url", address, "--model-version", "1")
        assert rows == fields(capsys, folder)
        assert (rows["max_batch_size"]["origin"], rows["instance_group[0].count"]["origin"]) == (
            "auto-completed",
            "config.pbtxt:1",
        )
        assert explain(["nobody", "--url", address]) == 1
        assert "Request for unknown model: 'nobody' is not found" in capsys.readouterr().err
        config = '{\n"instance_group": [{"count": 2}]\n}'
        assert server.post("/v2/repository/models/relu/load", {"parameters": {"config": config}}).status == 200
        rows = fields(capsys, "relu", "--url", address)
    assert (rows["instance_group[0].count"]["value"], rows["instance_group[0].count"]["origin"]) == (
        2,
        "the load request:2",
    )


@pytest.mark.slow
def test_a_server_with_api_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model(tmp_path / "models" / "echo", IDENTITY)
    key = f"reader infer sha256:{sha256(b'secret').hexdigest()}"
    with serving(tmp_path / "log", tmp_path / "models", f"--api-key={key}") as server:
        asked = ["echo", "--url", f"127.0.0.1:{server.http}", "--field", "max_batch_size"]
        assert explain(asked) == 1
        assert "401: " in capsys.readouterr().err
        assert explain([*asked, "--header", "Authorization: Bearer secret"]) == 0
        assert "max_batch_size: " in capsys.readouterr().out
        assert explain([*asked, "--header", "Authorization"]) == 1
        assert "expected 'name: value'" in capsys.readouterr().err


class OtherServer(BaseHTTPRequestHandler):
    """A server that has the configuration of one model, and nothing else."""

    def do_GET(self) -> None:
        found = self.path == "/v2/models/echo/config"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"name": "echo", "max_batch_size": 4} if found else {"error": "no"}).encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


def test_a_server_that_does_not_say_who_wrote_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    with HTTPServer(("127.0.0.1", 0), OtherServer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            assert explain(["echo", "--url", f"127.0.0.1:{server.server_port}", "--field", "max_batch_size"]) == 0
            shown = capsys.readouterr()
            assert "max_batch_size: 4  [the server]" in shown.out
            assert "note: the server does not say who wrote a value" in shown.err
            assert explain(["other", "--url", f"127.0.0.1:{server.server_port}"]) == 1
            assert '/v2/models/other/config: 404: {"error": "no"}' in capsys.readouterr().err
        finally:
            server.shutdown()
            thread.join()


def test_an_ensemble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """\
platform: "ensemble"
input [ { name: "I" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "O" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step {
  model_name: "echo" model_version: -1
  input_map { key: "A" value: "I" } output_map { key: "B" value: "O" }
} }
"""
    rows = fields(capsys, model(tmp_path / "pipeline", text))
    step = "ensemble_scheduling.step[0]"
    assert rows[f"{step}.model_name"]["origin"] == "config.pbtxt:5"
    assert rows[f'{step}.input_map["A"]']["value"] == "I"
