"""A network of one format on the server: its repository, its load and its first request, and callers in a loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .. import machine
from ..closed_loop import repeat_times, run_calls
from ..figures import CaseError
from ..infer import Request, ask_well, binary_request
from ..models import add_model, one_instance, tensor_field
from ..servers import Server, naiad
from .form import Format, Speed
from .subjects import Subject

MODEL_TYPES = {"float32": "TYPE_FP32", "int64": "TYPE_INT64"}
LIMIT_SECONDS = 120.0
EXPLICIT = ("--model-control-mode=explicit",)


@dataclass(frozen=True, slots=True)
class Served:
    """A network that a server has loaded and answered one request with.

    Attributes:
        load_seconds: of the request to load it, in which the server imports the framework.
        start_seconds: the same and the start of the server.
        first_seconds: of the first request after that.
    """

    server: Server
    request: Request
    load_seconds: float
    start_seconds: float
    first_seconds: float

    def call(self, callers: int, requests: int) -> Speed:
        """Send ``requests`` equal requests by so many callers.

        Raises:
            CaseError: an answer was not 200, or came too late.
        """
        began = time.perf_counter()
        tally = run_calls(self.server.port, repeat_times(self.request.wire(), requests), callers, LIMIT_SECONDS)
        elapsed = time.perf_counter() - began
        if tally.wrong:
            raise CaseError(f"{self.request.path} with {callers} callers: {tally.summary()}")
        p50_us, p95_us = (tally.latencies.percentile(percent) / 1e3 for percent in (50, 95))
        return Speed(requests / elapsed, p50_us, p95_us)

    def resident_bytes(self) -> int:
        """Memory of the server and its processes now."""
        return machine.resident_bytes(self.server.pid)


def add_served(
    repository: Path, form: Format, subject: Subject, file: Path, threads: int, *fields: str, name: str = ""
) -> str:
    """A model of a file that was written before; returns its name, by default that of the network."""
    name = name or subject.name
    sample = subject.sample(form)
    model_type = MODEL_TYPES[sample.dtype.name]
    source, target = form.tensors
    version = add_model(
        repository,
        name,
        f'backend: "{form.backend}"',
        f'default_model_filename: "{form.file}"',
        "max_batch_size: 0",
        tensor_field("input", source, model_type, sample.shape),
        tensor_field("output", target, "TYPE_FP32", subject.output),
        one_instance(threads, form.threads),
        form.fields(subject.name),
        *fields,
    )
    version.rmdir()
    version.symlink_to(file.parent, target_is_directory=True)
    return name


def warmup_field(form: Format, subject: Subject) -> str:
    """The field that makes the model answer zeros once before it is ready."""
    sample = subject.sample(form)
    tensor = f"data_type: {MODEL_TYPES[sample.dtype.name]} dims: {list(sample.shape)} zero_data: true"
    inputs = f'inputs {{ key: "{form.tensors[0]}" value {{ {tensor} }} }}'
    return f'model_warmup [ {{ name: "zeros" batch_size: 0 {inputs} }} ]'


@contextmanager
def served(
    repository: Path, work: Path, form: Format, subject: Subject, options: Sequence[str] = ()
) -> Iterator[Served]:
    """A fresh server with ``options`` and one loaded network, which answered once.

    Raises:
        CaseError: it does not start, or refuses the network or the request.
    """
    request = binary_request(subject.name, {form.tensors[0]: subject.sample(form)}, form.tensors[1])
    load = Request(f"/v2/repository/models/{subject.name}/load", {}, b"")
    with naiad(repository, work, options=(*EXPLICIT, *options)) as server:
        load_seconds = _timed(server.port, load)
        start_seconds = server.ready_seconds + load_seconds
        yield Served(server, request, load_seconds, start_seconds, _timed(server.port, request))


def _timed(port: int, request: Request) -> float:
    began = time.perf_counter()
    ask_well(port, request, LIMIT_SECONDS)
    return time.perf_counter() - began
