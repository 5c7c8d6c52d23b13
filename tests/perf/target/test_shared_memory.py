"""Requests whose tensors lie in shared memory, against a real server, over both protocols."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.perf.input.build import build_streams
from naiad.perf.input.region_layout import lay_out
from naiad.perf.run import run_perf
from naiad.perf.settings import InputSettings, MeasureSettings, PerfSettings, TargetSettings
from naiad.perf.steps import RegionLayout
from naiad.perf.target.open import open_target
from naiad.perf.target.protocol import PerfTarget, TargetError
from naiad.perf.target.region_calls import RegionCalls
from naiad.perf.target.shared_memory import region_name, registered
from naiad.shared_memory import cuda
from naiad.shared_memory.region import RegionRef
from naiad.testing import RunningServer, serving
from naiad.wire.v2.region_parameters import region_parameters
from support.perf_models import IDENTITIES, model, tensor, write_identities

PROTOCOLS = ["http", "grpc"]
LIBRARIES: dict[str, Any] = {"http": tritonclient.http, "grpc": tritonclient.grpc}


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


def target_of(server: RunningServer, protocol: str, name: str = IDENTITIES["INT32"]) -> PerfTarget:
    """A model as a target."""
    url = server.url if protocol == "http" else server.grpc_url
    target = open_target(PerfSettings(TargetSettings(model=name, url=url, protocol=protocol)))
    target.describe()
    return target


def calls_of(server: RunningServer, protocol: str) -> RegionCalls:
    """The calls of a target."""
    return target_of(server, protocol).place_tensors({})


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
    with registered("system", layout, calls_of(server, protocol)):
        assert {layout.input_region, layout.output_region} <= caller.regions()
        caller.infer(IDENTITIES[datatype], datatype, [2, 3], value.region, layout.outputs["OUTPUT0"])
        # What the server has written comes back in the response to another request.
        written = layout.outputs["OUTPUT0"]._replace(byte_size=len(value.data))
        found = caller.infer(IDENTITIES[datatype], datatype, [2, 3], written, None)
        plain = caller.infer(IDENTITIES[datatype], datatype, [2, 3], value.region, None)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT0"), plain.as_numpy("OUTPUT0"))
    assert {layout.input_region, layout.output_region}.isdisjoint(caller.regions())
    caller.client.close()


@pytest.mark.parametrize("input_format", ["binary", "json"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_measurement_through_regions(server: RunningServer, protocol: str, input_format: str) -> None:
    url = server.url if protocol == "http" else server.grpc_url
    settings = PerfSettings(
        TargetSettings(model=IDENTITIES["BYTES"], url=url, protocol=protocol),
        InputSettings(shared_memory="system", batch_size=2, input_format=input_format),
        measure=MeasureSettings(total_requests=20, collect_metrics=False),
    )
    report = run_perf(settings)
    [level] = report.levels
    assert (level.merged.requests >= 20, dict(level.merged.errors)) == (True, {})
    caller = RegionCaller(server, protocol)
    assert not any(name.startswith(f"naiad-perf-{os.getpid()}-") for name in caller.regions())
    caller.client.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_do_not_carry_what_lies_in_regions(server: RunningServer, protocol: str) -> None:
    described = model(tensor("INPUT0", "INT32", 100_000))
    settings = InputSettings(shared_memory="system")
    layout = lay_out(settings, described, build_streams(settings, described), region_name())
    target = target_of(server, protocol)
    assert target.encode(build_streams(settings, described)[0].steps[0], 0).plain.size > 400_000
    target.place_tensors(layout.outputs)
    assert target.encode(layout.streams[0].steps[0], 0).plain.size < 1000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_output_that_does_not_fit(server: RunningServer, protocol: str) -> None:
    url = server.url if protocol == "http" else server.grpc_url
    settings = PerfSettings(
        TargetSettings(model=IDENTITIES["BYTES"], url=url, protocol=protocol),
        InputSettings(shared_memory="system", output_shared_memory_size=5),
    )
    expected = r"'OUTPUT0' \(5 bytes\) should be at least 396 bytes .*make --output-shared-memory-size larger$"
    with pytest.raises(TargetError, match=expected):
        run_perf(settings)
    assert left_behind() == []


def left_behind() -> list[str]:
    """The objects of this process."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"naiad-perf-{os.getpid()}-")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_has_a_name_once_it_is_registered(server: RunningServer, protocol: str) -> None:
    with registered("system", layout_for("INT32"), calls_of(server, protocol)):
        assert left_behind() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_regions_are_taken_back_after_an_error(server: RunningServer, protocol: str) -> None:
    layout = layout_for("INT32")
    with pytest.raises(ZeroDivisionError), registered("system", layout, calls_of(server, protocol)):
        raise ZeroDivisionError
    caller = RegionCaller(server, protocol)
    assert {layout.input_region, layout.output_region}.isdisjoint(caller.regions())
    caller.client.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_name_that_is_taken(server: RunningServer, protocol: str) -> None:
    layout = layout_for("INT32")
    calls = calls_of(server, protocol)
    with (
        registered("system", layout, calls),
        pytest.raises(TargetError, match=f"{layout.input_region}.*needs a server that sees the /dev/shm"),
        registered("system", layout, calls),
    ):
        pass
    assert left_behind() == []


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_takes_no_regions(models: Path, tmp_path: Path, protocol: str) -> None:
    with (
        serving(tmp_path / "log", "--model-repository", models) as without,
        pytest.raises(TargetError, match=r"--allow-client-shm=true"),
        registered("system", layout_for("INT32"), calls_of(without, protocol)),
    ):
        pass
    assert left_behind() == []


@pytest.mark.slow
def test_a_server_that_is_gone_at_the_end(models: Path, tmp_path: Path) -> None:
    with (
        serving(tmp_path / "log", "--model-repository", models, "--allow-client-shm=true") as running,
        registered("system", layout_for("INT32"), calls_of(running, "http")),
    ):
        running.stop()
    assert left_behind() == []


def test_more_memory_than_there_is(server: RunningServer) -> None:
    state = os.statvfs("/dev/shm")
    size = state.f_frsize * (state.f_blocks + 1)
    layout = RegionLayout((), {}, region_name(), 0, region_name(), size)
    with (
        pytest.raises(TargetError, match=f"has no room for {size} bytes of --shared-memory=system"),
        registered("system", layout, calls_of(server, "http")),
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
        pytest.raises(TargetError, match=r"--shared-memory=cuda needs a CUDA device.*use --shared-memory=system"),
        registered("cuda", layout_for("INT32"), calls_of(server, "http")),
    ):
        pass
