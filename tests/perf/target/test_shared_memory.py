"""Requests whose tensors lie in shared memory, against a real server, over both protocols."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.errors import UnavailableError, UnsupportedError
from naiad.perf.input.build import build_streams
from naiad.perf.input.region_layout import lay_out
from naiad.perf.settings import InputSettings
from naiad.perf.steps import RegionLayout
from naiad.perf.target.region_calls import GrpcRegionCalls, HttpRegionCalls, RegionCalls, region_parameters
from naiad.perf.target.shared_memory import region_name, registered
from naiad.shared_memory import cuda
from naiad.shared_memory.region import RegionRef
from naiad.testing import RunningServer, serving
from support.perf_models import IDENTITIES, model, tensor, write_identities

PROTOCOLS = ["http", "grpc"]
LIBRARIES: dict[str, Any] = {"http": tritonclient.http, "grpc": tritonclient.grpc}


class RefusedError(Exception):
    """The server refuses a call."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("identities")
    write_identities(folder)
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[RunningServer]:
    log = models.parent / "shared-memory.log"
    with serving(log, "--model-repository", models, "--allow-client-shm=true") as running:
        yield running


def http_calls(server: RunningServer) -> RegionCalls:
    """Calls over connections of their own."""

    def post(path: str, body: bytes) -> None:
        response = server.request("POST", path, body)
        if response.status != 200:
            raise RefusedError(response.error)

    return HttpRegionCalls(post)


def grpc_calls(server: RunningServer) -> RegionCalls:
    """Calls through grpcio."""

    def call(method: str, message: bytes) -> None:
        with grpc.insecure_channel(server.grpc_url) as channel:
            try:
                channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(message, timeout=20)
            except grpc.RpcError as error:
                raise RefusedError(error.details()) from None

    return GrpcRegionCalls(call)


CALLS = {"http": http_calls, "grpc": grpc_calls}


class RegionCaller:
    """A client that refers to regions as ``region_parameters`` says."""

    def __init__(self, server: RunningServer, protocol: str) -> None:
        self._library = LIBRARIES[protocol]
        self.client = self._library.InferenceServerClient(server.url if protocol == "http" else server.grpc_url)

    def infer(self, name: str, datatype: str, shape: list[int], source: RegionRef, target: RegionRef | None) -> Any:
        given = self._library.InferInput("INPUT0", shape, datatype)
        self._place(given, source)
        wanted = self._library.InferRequestedOutput("OUTPUT0")
        if target is not None:
            self._place(wanted, target)
        return self.client.infer(name, [given], outputs=[wanted])

    def _place(self, of: Any, place: RegionRef) -> None:
        words = region_parameters(place)
        of.set_shared_memory(
            words["shared_memory_region"], words["shared_memory_byte_size"], words.get("shared_memory_offset", 0)
        )

    def regions(self) -> set[str]:
        """The names that the server knows."""
        found = self.client.get_system_shared_memory_status()
        return {r["name"] for r in found} if isinstance(found, list) else set(found.regions)


def layout_for(datatype: str, name: str = "") -> RegionLayout:
    """The layout for the identity model of a datatype."""
    described = model(tensor("INPUT0", datatype, 3), max_batch_size=8)
    settings = InputSettings(batch_size=2, string_length=5, output_shared_memory_size=64, shared_memory="system")
    return lay_out(settings, described, build_streams(settings, described), name or region_name())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("datatype", list(IDENTITIES))
def test_tensors_travel_through_regions(server: RunningServer, datatype: str, protocol: str) -> None:
    layout = layout_for(datatype)
    [value] = layout.streams[0].steps[0].inputs
    caller = RegionCaller(server, protocol)
    assert value.region is not None
    with registered("system", layout, CALLS[protocol](server)):
        assert {layout.input_region, layout.output_region} <= caller.regions()
        caller.infer(IDENTITIES[datatype], datatype, [2, 3], value.region, layout.outputs["OUTPUT0"])
        # What the server has written comes back in the response to another request.
        written = layout.outputs["OUTPUT0"]._replace(byte_size=len(value.data))
        found = caller.infer(IDENTITIES[datatype], datatype, [2, 3], written, None)
        plain = caller.infer(IDENTITIES[datatype], datatype, [2, 3], value.region, None)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT0"), plain.as_numpy("OUTPUT0"))
    assert {layout.input_region, layout.output_region}.isdisjoint(caller.regions())
    caller.client.close()


def left_behind() -> list[str]:
    """The objects of this process."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"naiad-perf-{os.getpid()}-")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_has_a_name_once_it_is_registered(server: RunningServer, protocol: str) -> None:
    with registered("system", layout_for("INT32"), CALLS[protocol](server)):
        assert left_behind() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_regions_are_taken_back_after_an_error(server: RunningServer, protocol: str) -> None:
    layout = layout_for("INT32")
    with pytest.raises(ZeroDivisionError), registered("system", layout, CALLS[protocol](server)):
        raise ZeroDivisionError
    caller = RegionCaller(server, protocol)
    assert {layout.input_region, layout.output_region}.isdisjoint(caller.regions())
    caller.client.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_name_that_is_taken(server: RunningServer, protocol: str) -> None:
    layout = layout_for("INT32")
    calls = CALLS[protocol](server)
    with (
        registered("system", layout, calls),
        pytest.raises(UnavailableError, match=f"{layout.input_region}.*needs a server that sees the /dev/shm"),
        registered("system", layout, calls),
    ):
        pass
    assert left_behind() == []


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_takes_no_regions(models: Path, tmp_path: Path, protocol: str) -> None:
    with (
        serving(tmp_path / "log", "--model-repository", models) as without,
        pytest.raises(UnavailableError, match=r"--allow-client-shm=true"),
        registered("system", layout_for("INT32"), CALLS[protocol](without)),
    ):
        pass
    assert left_behind() == []


@pytest.mark.slow
def test_a_server_that_is_gone_at_the_end(models: Path, tmp_path: Path) -> None:
    with (
        serving(tmp_path / "log", "--model-repository", models, "--allow-client-shm=true") as running,
        registered("system", layout_for("INT32"), http_calls(running)),
    ):
        running.stop()
    assert left_behind() == []


def test_more_memory_than_there_is(server: RunningServer) -> None:
    state = os.statvfs("/dev/shm")
    size = state.f_frsize * (state.f_blocks + 1)
    layout = RegionLayout((), {}, region_name(), 0, region_name(), size)
    with (
        pytest.raises(UnavailableError, match=f"has no room for {size} bytes of --shared-memory=system"),
        registered("system", layout, http_calls(server)),
    ):
        pass
    assert left_behind() == []


def test_cuda_needs_a_device(server: RunningServer) -> None:
    try:
        cuda.driver()
    except OSError:
        pass
    else:
        pytest.skip("this machine has a CUDA device")
    with (
        pytest.raises(UnsupportedError, match=r"--shared-memory=cuda needs a CUDA device.*use --shared-memory=system"),
        registered("cuda", layout_for("INT32"), http_calls(server)),
    ):
        pass
