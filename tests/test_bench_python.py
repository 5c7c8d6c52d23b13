"""The cases of ``scripts/bench`` for Python models, on real servers; Naiad stands in for the reference server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from naiad.testing import wait_until
from support.bench_parts import SECONDS_LIMIT, bench, part

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A server with the options of the reference server."""
    script = tmp_path / "tritonserver"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m naiad serve "$@"\n')
    script.chmod(0o755)
    return script


def lines(found: Any) -> dict[str, Any]:
    return {figure.name: figure for figure in found}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("h2load"), reason="h2load is not installed")
def test_a_contest_measures_both_servers_over_both_protocols(tmp_path: Path, stand_in: Path) -> None:
    contest, repository = part("python_contest"), tmp_path / "models"
    settings = part("settings").Settings(tmp_path, rounds=1, seconds=1, reference=stand_in)
    part("python_models").add_python_identity(repository, "m")
    with contest.contenders(settings, repository) as servers:
        wanted = contest.Contest("case", "m", 16, lambda x: x, {2: 1000.0})
        found = lines(contest.measure(settings, servers, wanted))
        wrong = contest.Contest("case", "m", 16, lambda x: x + 1, {2: 1.0})
        with pytest.raises(part("figures").CaseError, match="gave a wrong OUTPUT0"):
            list(contest.measure(settings, servers, wrong))
    for protocol in ("http", "grpc"):
        for side in ("", "_reference"):
            name = f"case_{protocol}_2{side}"
            assert found[f"{name}_rate"].value > 50
            assert 0 < found[f"{name}_p50"].value <= found[f"{name}_p99"].value
            assert found[f"{name}_cpu"].value > 10
        assert found[f"case_{protocol}_2_ratio"].verdict == "missed"


@linux_only
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("h2load"), reason="h2load is not installed")
@pytest.mark.parametrize("in_regions", [False, True])
def test_pinned_pairs_put_servers_on_one_core_and_back(tmp_path: Path, stand_in: Path, in_regions: bool) -> None:
    contest, machine, repository = part("python_contest"), part("machine"), tmp_path / "models"
    if not machine.can_pin():
        pytest.skip("pinning takes two cores and taskset")
    settings = part("settings").Settings(tmp_path, rounds=1, seconds=1, reference=stand_in)
    part("python_models").add_python_identity(repository, "m")
    shared = ("--allow-client-shm=true",)
    with contest.contenders(settings, repository, shared, shared) as servers:
        pids = [child.pid for s in servers.values() for child in psutil.Process(s.pid).children(recursive=True)]
        pids += [server.pid for server in servers.values()]
        before = [os.sched_getaffinity(pid) for pid in pids]
        pinned, question = part("pinned"), part("perf_analyzer").Question("m", 16, "grpc", in_regions)
        expected = part("python_load").values(question)
        for protocol in ("http", "grpc"):
            asked = replace(question, protocol=protocol)
            for callers, samples in pinned.compare_pinned(settings, servers, asked, expected, (2,)):
                assert [os.sched_getaffinity(pid) for pid in pids] == [{machine.server_core()}] * len(pids)
                assert callers == 2
                for side in ("naiad", "reference"):
                    assert samples[side][0].rate > 50
                    assert samples[side][0].cpu_us > 10
        assert [os.sched_getaffinity(pid) for pid in pids] == before
        assert not list(part("regions").FOLDER.glob(f"naiad-bench*-{os.getpid()}"))
        with pytest.raises(part("figures").CaseError, match="wrong"):
            list(pinned.compare_pinned(settings, servers, question, expected + 1, (2,)))


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    servers = part("servers")
    (tmp_path / "models").mkdir()
    with (
        pytest.raises(part("figures").CaseError, match=r"(?s)refused.*had ended with code .*Started HTTPService"),
        servers.naiad(tmp_path / "models", tmp_path) as server,
    ):
        psutil.Process(server.pid).kill()
        psutil.wait_procs([psutil.Process(server.pid)], SECONDS_LIMIT)
        servers.ask(server.port, servers.READY)


def children() -> set[int]:
    """The processes that this one has started, other tests' included."""
    return {child.pid for child in psutil.Process().children()}


@pytest.mark.slow
def test_the_round_trip_is_that_of_a_real_child(tmp_path: Path) -> None:
    import uvloop

    before = children()
    trip = part("round_trip")
    part("python_models").add_python_identity(tmp_path)
    trips = uvloop.run(trip.measure_trips(tmp_path, 0.2))
    assert len(trips) > 10
    assert list(trips) == sorted(trips)
    assert 0 < trips[0] < 1
    assert uvloop.run(trip.measure_batches(tmp_path, 16, 0.2)) > 10
    assert children() <= before


def test_the_round_trip_fails_with_its_child(tmp_path: Path) -> None:
    import uvloop

    before = children()
    models = part("python_models")
    code = models.IDENTITY.replace("return pb_utils.InferenceResponse(", "raise ValueError(")
    fields = (
        models.tensor_field("input", "INPUT0", "TYPE_FP32", [-1]),
        models.tensor_field("output", "OUTPUT0", "TYPE_FP32", [-1]),
    )
    models.add_python_model(tmp_path, "m", code, "max_batch_size: 64", *fields)
    with pytest.raises(part("figures").CaseError, match="a request failed"):
        uvloop.run(part("round_trip").measure_trips(tmp_path, 0.2))
    assert children() <= before


@pytest.mark.slow
def test_the_chain_is_what_the_case_expects(tmp_path: Path) -> None:
    models, servers = part("python_models"), part("servers")
    models.add_python_chains(tmp_path)
    question = part("perf_analyzer").Question("python_unbatched", 1, "http")
    loads = part("python_load")
    with servers.naiad(tmp_path, tmp_path, service=servers.GRPC) as server:
        loads.check(server, question, models.chain_by_hand(loads.values(question)))
        assert loads.inferences(server, "python_unbatched") == 1
        with pytest.raises(part("figures").CaseError, match="statistics of nothing"):
            loads.inferences(server, "nothing")


@pytest.mark.slow
@linux_only
def test_the_spinning_model_spins_behind_everything_else(tmp_path: Path) -> None:
    spin, servers = part("cases.python_spin"), part("servers")
    part("python_models").add_spinner(tmp_path)
    with servers.naiad(tmp_path, tmp_path) as server:
        pid = spin.spin(server, 0)
        assert pid in [child.pid for child in psutil.Process(server.pid).children(recursive=True)]
        before = psutil.Process(pid).cpu_times().user
        with spin.spinning_model(server, 2.0):
            assert os.sched_getscheduler(pid) == os.SCHED_IDLE
            deadline = time.monotonic() + SECONDS_LIMIT
            while psutil.Process(pid).cpu_times().user < before + 0.02 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert psutil.Process(pid).cpu_times().user >= before + 0.02
        threads = threading.active_count()
        with pytest.raises(part("figures").CaseError, match="stopped spinning"), spin.spinning_model(server, 0.0):
            # Behind everything else: on a busy machine even a loop that ends at once takes its time.
            wait_until(lambda: threading.active_count() == threads, SECONDS_LIMIT, "the spinning has ended")


@linux_only
def test_shared_memory_counts_once_and_while_it_is_held() -> None:
    machine = part("machine")
    before = machine.shared_bytes(os.getpid())
    descriptor = os.memfd_create("test")
    again = os.dup(descriptor)
    try:
        os.write(descriptor, bytes(machine.MIB))
        assert machine.shared_bytes(os.getpid()) - before == machine.MIB
    finally:
        os.close(descriptor)
        os.close(again)
    assert machine.shared_bytes(os.getpid()) == before


@linux_only
def test_shared_memory_counts_when_it_is_only_mapped(tmp_path: Path) -> None:
    machine = part("machine")
    code = "import mmap, os; f = os.memfd_create('t'); os.truncate(f, 2 << 20); m = mmap.mmap(f, 2 << 20)\n"
    code += "os.closerange(f, f + 9); m[: 1 << 20] = bytes(1 << 20); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert machine.shared_bytes(process.pid) == machine.MIB
        process.communicate(b"\n", timeout=SECONDS_LIMIT)


@linux_only
def test_what_is_shared_is_shared_out() -> None:
    machine = part("machine")
    assert 0 < machine.proportional_bytes(os.getpid()) <= machine.resident_bytes(os.getpid())


def test_latencies_are_read_from_the_log_of_h2load(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1000\t200\t90\n1001\t-1\t5\n1002\t200\t30\n")
    assert np.allclose(part("h2load").logged_latencies(log), [30e-6, 90e-6])


def fake_analyzer(tmp_path: Path, code: str) -> Path:
    """A program that notes each start in the file ``calls``; ``$out`` is where its table belongs."""
    tool = tmp_path / "perf_analyzer"
    tool.write_text(
        f'#!/bin/bash\necho "$@" >> {tmp_path}/calls\nwhile [ "$1" != -f ]; do shift; done\nout="$2"\n{code}\n'
    )
    tool.chmod(0o755)
    return tool


def test_steady_windows_of_perf_analyzer_are_read_and_others_taken_again(tmp_path: Path) -> None:
    perf = part("perf_analyzer")
    server = part("servers").Server("any", os.getpid(), 1, 0.0)
    question = perf.Question("m", 16, "grpc")
    table = "Concurrency,Inferences/Second,p50 latency,p95 latency,p99 latency\\n4,800.5,200,250,300\\n"
    unsteady = f'[ $(wc -l < {tmp_path}/calls) = 1 ] && echo "{perf.UNSTEADY}" && exit 2'
    tool = fake_analyzer(tmp_path, f"{unsteady}\nprintf '{table}' > \"$out\"")
    assert perf.observe([str(tool)], server, question, 4, 3, tmp_path) == perf.Window(800.5, 200.0, 250.0, 300.0)
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert "-m m -u 127.0.0.1:1 -i grpc --shape INPUT0:16 --concurrency-range 4" in first
    assert "-p 1000" in second
    with pytest.raises(part("figures").CaseError, match="no steady figures"):
        perf.observe(
            [str(fake_analyzer(tmp_path, f'echo "{perf.UNSTEADY}"; exit 2'))], server, question, 4, 1, tmp_path
        )
    with pytest.raises(part("figures").CaseError, match="ended with code 3"):
        perf.observe([str(fake_analyzer(tmp_path, "exit 3"))], server, question, 4, 1, tmp_path)


@pytest.mark.slow
def test_a_quick_run_beside_the_reference(tmp_path: Path, stand_in: Path) -> None:
    result = tmp_path / "figures.json"
    finished = bench("--quick", "--only", "python_start", "--reference", str(stand_in), "--json", str(result))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    document = json.loads(result.read_text())
    assert document["reference"] is True
    (case,) = document["cases"]
    assert [figure["name"] for figure in case["figures"]] == [
        "python_start",
        "python_start_reference",
        "python_start_ratio",
    ]


@pytest.mark.slow
def test_a_reference_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    finished = bench("--only", "python_start", "--reference", str(tmp_path / "missing"))
    assert finished.returncode == 2
    assert "is not an executable file" in finished.stderr
