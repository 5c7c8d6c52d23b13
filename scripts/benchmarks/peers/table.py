"""The servers that are compared: their packages, their commands, and the forms of requests that they read."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import machine
from ..figures import CaseSkippedError
from ..models import add_model, instances, tensor_field
from ..servers import LISTEN
from ..settings import Settings
from .environments import environment
from .subjects import Subject
from .wires import Dialect, Wire, of_mlserver, of_model, plain, rows

APPS = Path(__file__).with_name("apps")
NUMERIC = ("onnxruntime==1.32.0", "numpy==2.4.6")
GUNICORN_WORKERS = 4
MAX_BATCH_SIZE = 8
MAX_WAIT_S = 0.001
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where one server is to run.

    Attributes:
        folder: an empty one, for its files and its log.
        ports: free ones: of HTTP, gRPC and metrics.
    """

    settings: Settings
    subject: Subject
    wire: Wire
    folder: Path
    ports: tuple[int, int, int]

    @property
    def port(self) -> int:
        """The port of the form that is measured."""
        return self.ports[1] if self.wire == "grpc" else self.ports[0]


@dataclass(frozen=True, slots=True)
class Peer:
    """One server.

    Attributes:
        command: writes its files and returns the command that starts it.
        without: the forms that it does not read, with the reason.
    """

    name: str
    command: Callable[[Place], list[str]]
    dialect: Dialect
    without: Mapping[Wire, str] = field(default_factory=dict)


def workers() -> int:
    """How many processes or instances may compute: as many as the servers have cores."""
    return len(server_cores())


def server_cores() -> list[int]:
    """All cores but the last one, which the load generator has; all where nothing can be pinned."""
    return machine.cores()[:-1] if machine.can_pin() else machine.cores()


def variables(place: Place) -> dict[str, str]:
    """What the applications read."""
    return {
        "PEER_NETWORK": str(place.subject.file),
        "PEER_ROW": ",".join(str(size) for size in place.subject.row.shape),
        "PEER_WIRE": place.wire,
        "PEER_WORKERS": str(workers()),
        "PEER_PORT": str(place.port),
        "PYTHONPATH": str(APPS),
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTOML_HOME": str(place.folder / "bentoml"),
    }


def _naiad(place: Place) -> list[str]:
    subject = place.subject
    version = add_model(
        place.folder / "models",
        "scorer",
        'backend: "onnxruntime"',
        f"max_batch_size: {MAX_BATCH_SIZE}",
        tensor_field("input", subject.source, "TYPE_FP32", subject.row.shape),
        tensor_field("output", subject.target, "TYPE_FP32", subject.scores.shape),
        instances(workers(), threads=1),
        "dynamic_batching { }",
    )
    shutil.copy(subject.file, version / "model.onnx")
    listen = [*LISTEN]
    for name, port in zip(("--http-port", "--grpc-port", "--metrics-port"), place.ports, strict=True):
        listen[listen.index(name) + 1] = str(port)
    return [sys.executable, "-m", "naiad", "serve", "--model-repository", str(place.folder / "models"), *listen]


def _reference(place: Place) -> list[str]:
    if place.settings.reference is None:
        raise CaseSkippedError("not had: name its executable with --reference")
    packages = environment("reference", NUMERIC).parent.glob("lib/python*/site-packages")
    values = variables(place) | {"path": os.pathsep.join((str(APPS), *(str(folder) for folder in packages)))}
    parameters = [
        f'parameters {{ key: "{name}" value {{ string_value: "{values[name]}" }} }}'
        for name in ("PEER_NETWORK", "PEER_ROW", "PEER_WIRE", "PEER_WORKERS", "path")
    ]
    version = add_model(
        place.folder / "models",
        "scorer",
        'backend: "python"',
        f"max_batch_size: {MAX_BATCH_SIZE}",
        tensor_field("input", "rows", "TYPE_FP32", place.subject.row.shape),
        tensor_field("output", "scores", "TYPE_FP32", place.subject.scores.shape),
        f"instance_group [ {{ kind: KIND_CPU count: {workers()} }} ]",
        "dynamic_batching { }",
        *parameters,
    )
    shutil.copy(APPS / "model.py", version)
    command = [str(place.settings.reference), "--model-repository", str(place.folder / "models")]
    for name, port in zip(("http", "grpc", "metrics"), place.ports, strict=True):
        command += [f"--{name}-address", "127.0.0.1", f"--{name}-port", str(port)]
    return command


def _fastapi(place: Place) -> list[str]:
    program = environment(
        "fastapi",
        ("fastapi==0.165.0", "gunicorn==27.0.1", "uvicorn[standard]==0.54.0", "uvicorn-worker==0.4.0", *NUMERIC),
    )
    bound = ("--bind", f"127.0.0.1:{place.port}", "--workers", str(GUNICORN_WORKERS))
    return [str(program / "gunicorn"), "fastapi_app:app", "-k", "uvicorn_worker.UvicornWorker", *bound]


def _mlserver(place: Place) -> list[str]:
    program = environment("mlserver", ("mlserver==1.7.1", "uvloop==0.21.0", *NUMERIC))
    http, grpc, metrics = place.ports
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "grpc_max_message_length": MAX_BYTES,
        "parallel_workers": workers(),
    }
    model = {
        "name": "scorer",
        "implementation": "mlserver_app.Scorer",
        "max_batch_size": MAX_BATCH_SIZE,
        "max_batch_time": MAX_WAIT_S,
    }
    (place.folder / "settings.json").write_text(json.dumps(settings))
    (place.folder / "model-settings.json").write_text(json.dumps(model))
    return [str(program / "mlserver"), "start", str(place.folder)]


def litserve_program(app: str) -> list[str]:
    """The command of one of LitServe's applications."""
    return [str(environment("litserve", ("litserve==0.2.19", *NUMERIC)) / "python"), str(APPS / app)]


def _litserve(place: Place) -> list[str]:
    return litserve_program("litserve_app.py")


def _mosec(place: Place) -> list[str]:
    program = environment("mosec", ("mosec==0.9.8", *NUMERIC))
    command = [str(program / "python"), str(APPS / "mosec_app.py"), "--address", "127.0.0.1", "--port", str(place.port)]
    return [*command, "--timeout", "10000", "--log-level", "warning"]


def _bentoml(place: Place) -> list[str]:
    program = environment("bentoml", ("bentoml==1.4.39", *NUMERIC))
    return [str(program / "bentoml"), "serve", "bentoml_app:Scorer", "--host", "127.0.0.1", "--port", str(place.port),
            "--working-dir", str(APPS)]  # fmt: skip


NO_GRPC = "it has no gRPC"
NO_BYTES = "it reads JSON and forms"
PEERS: Sequence[Peer] = (
    Peer("naiad", _naiad, lambda subject, wire: of_model("scorer", subject.source, subject.target)(subject, wire)),
    Peer("reference", _reference, of_model("scorer", "rows", "scores"), {"b64": "it has no base64 for numbers"}),
    Peer("fastapi", _fastapi, plain, {"grpc": NO_GRPC}),
    Peer("mlserver", _mlserver, of_mlserver, {"binary": "its HTTP has no binary data"}),
    Peer("litserve", _litserve, plain, {"binary": NO_BYTES, "grpc": NO_GRPC}),
    Peer("mosec", _mosec, plain, {"grpc": NO_GRPC}),
    Peer("bentoml", _bentoml, rows, {"binary": NO_BYTES, "grpc": NO_GRPC}),
)
