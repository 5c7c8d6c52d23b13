"""Python models that do to their process whatever a process can suffer, in a real server.

For each: what the caller hears, that another model goes on, that the model comes back, and that nothing is left.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import wait_until
from support.python_acts import ACTS, SPIN_IN_C, act
from support.python_models import DOUBLES, Client, client_of, write_python_model

READY_S = 15.0
OVERFLOW = "sys.setrecursionlimit(10**9)\nx = []\nfor _ in range(3 * 10**5): x = [x]\nrepr(x)"
CONNECTION = "next(o for o in __import__('gc').get_objects() if type(o).__name__ == 'socket')"
# Of a frame that is to have 4 GB.
BEGINNING = "b'%\\0\\0\\0' + b'\\xff' * 12"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("faults")
    write_python_model(folder / "models", "acts", ACTS)
    write_python_model(folder / "models", "doubles", DOUBLES)
    with client_of(folder / "models", folder / "log", "--backend-config=python,stub-timeout-seconds=5") as found:
        yield found


@pytest.fixture
def others_go_on(client: Client) -> Iterator[None]:
    """Around a test: another model serves, the model is back, no process and no descriptor is left."""
    wait_until(client.grpc.is_server_ready, READY_S, "all models are ready")
    assert client.infer("acts", 1)[0, 0] == 1
    server = psutil.Process(client.server.process.pid)
    before, files = {p.pid for p in client.children()}, server.num_fds()
    yield
    assert client.infer("doubles", 1)[0, 0] == 2
    wait_until(client.grpc.is_server_ready, 2 * READY_S, "all models are ready again")
    assert client.infer("acts", 3)[0, 0] == 3
    assert len(client.children()) == len(before)
    wait_until(lambda: server.num_fds() <= files, READY_S, "the descriptors of the process that died are closed")


def settled(client: Client) -> None:
    """Kill all processes of models, and wait until they are back."""
    for process in client.children():
        process.kill()
    wait_until(lambda: not client.grpc.is_server_ready(), READY_S, "the death is noticed")
    wait_until(client.grpc.is_server_ready, 3 * READY_S, "all models are ready again")


# Ends


@pytest.mark.parametrize(
    ("do", "how"),
    [
        ("os.abort()", "killed by SIGABRT"),
        (OVERFLOW, "killed by SIGSEGV"),
        # It ends soon after that, which a busy server may see first.
        ("os.closerange(3, 10_000); time.sleep(60)", "it closed its connection|exit code 1"),
        ("os.closerange(0, 10_000); time.sleep(60)", "it closed its connection|exit code 1"),
        (f"{CONNECTION}.sendall(b'hello, is there anybody?'); time.sleep(60)", "cannot be understood"),
        pytest.param(
            f"{CONNECTION}.sendall(b'\\x25\\0\\0\\0' + b'\\xff' * 12 + b'x' * 100_000); time.sleep(60)",
            "no sign of life",
            marks=pytest.mark.slow,
        ),
        (f"{CONNECTION}.sendall(bytes(10_000_000))", "cannot be understood"),
    ],
    ids=["abort", "overflow", "closes", "closes all", "talks nonsense", "endless frame", "zeros"],
)
@pytest.mark.usefixtures("others_go_on")
def test_the_end_of_a_process_is_told_and_costs_one_request(client: Client, do: str, how: str) -> None:
    text = act(client, do)
    assert "UNAVAILABLE" in text
    assert "Stub process 'acts_0_0' is not healthy." in text
    assert re.search(how, text), text


@pytest.mark.slow
@pytest.mark.usefixtures("others_go_on")
def test_a_process_that_was_stopped_is_replaced(client: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(act, client, "os.kill(os.getpid(), signal.SIGSTOP)")
        wait_until(lambda: any(p.status() == "stopped" for p in client.children()), READY_S, "it is stopped")
        assert client.infer("doubles", 2)[0, 0] == 4
        text = asked.result(READY_S)
    assert "UNAVAILABLE" in text
    assert "it gave no sign of life for 5 s (--backend-config=python,stub-timeout-seconds=N)" in text


# What is not the end


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("f = lambda: f2(); f2 = f; globals().update(f2=f); f()", "RecursionError: maximum recursion depth exceeded"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("signal.raise_signal(signal.SIGTERM)", ""),
        ("signal.raise_signal(signal.SIGINT)", ""),
        ("if not os.fork(): os._exit(0)", ""),
        ("import subprocess; subprocess.run(['true'], check=True)", ""),
        # It leads its process group, and such a process cannot begin a session; what it starts can.
        ("os.setsid()", "PermissionError"),
        ("os.setpgrp(); assert os.getpgrp() == os.getpid()", ""),
        ("import subprocess; subprocess.run(['true'], check=True, start_new_session=True)", ""),
        ("if not os.fork(): os.setsid(); os._exit(0)", ""),
    ],
    ids=[
        *("recursion", "interrupt", "generator exit", "SIGTERM", "SIGINT", "fork", "program"),
        *("session", "group", "session of a program", "session of a fork"),
    ],
)
@pytest.mark.usefixtures("others_go_on")
def test_what_a_process_survives(client: Client, do: str, text: str) -> None:
    before = {p.pid for p in client.children()}
    found = act(client, do)
    assert text in found
    assert bool(text) == ("INTERNAL" in found)
    assert {p.pid for p in client.children()} == before


@pytest.mark.usefixtures("others_go_on")
def test_a_fork_that_returns_twice_answers_once(client: Client) -> None:
    assert act(client, "os.fork()") == ""
    assert client.infer("acts", 5)[0, 0] == 5


# The slowest of many requests is measured.
@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.usefixtures("others_go_on")
def test_a_flood_of_output_costs_others_little(client: Client) -> None:
    flood = "sys.stdout.write('n\\n' * 20_000 + ('word ' * 20 + '\\n') * 40_000)"
    longest = 0.0
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(act, client, flood)
        while not asked.done():
            begun = time.monotonic()
            assert client.infer("doubles", 2)[0, 0] == 4
            longest = max(longest, time.monotonic() - begun)
        assert asked.result() == ""
    # The flood takes seconds.
    assert longest < 1
    wait_until(lambda: client.server.log.count("word word") >= 40_000, READY_S, "no line is lost")


# Endless work


@pytest.mark.slow
@pytest.mark.usefixtures("others_go_on")
def test_endless_work_is_no_matter_for_a_caller_with_a_deadline(client: Client) -> None:
    server = psutil.Process(client.server.process.pid)
    worked = sum(server.cpu_times()[:2])
    assert "DEADLINE_EXCEEDED" in act(client, "while True: pass", client_timeout=0.5)
    assert sum(server.cpu_times()[:2]) - worked < 0.25
    # It runs on. Who waits in its queue has a deadline too, and other models are other processes.
    assert "DEADLINE_EXCEEDED" in act(client, "", client_timeout=0.3)
    assert client.infer("doubles", 2)[0, 0] == 4
    assert client.grpc.is_server_ready()
    settled(client)


@pytest.mark.slow
@pytest.mark.usefixtures("others_go_on")
def test_a_process_that_does_nothing_but_one_call_of_native_code_is_replaced(client: Client) -> None:
    """No thread of it gets to run: not even a sign of life comes."""
    text = act(client, SPIN_IN_C)
    assert "UNAVAILABLE" in text
    assert "it gave no sign of life for 5 s" in text


# Deaths in a row


@pytest.mark.slow
def test_every_request_is_answered_whenever_processes_die(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "doubles", DOUBLES, "max_batch_size: 8 dynamic_batching { }", count=3)
    with client_of(tmp_path / "models", tmp_path / "log") as client, ThreadPoolExecutor(16) as pool:
        stop = time.monotonic() + 6

        def ask(n: int) -> tuple[int, set[str]]:
            answered, problems = 0, set()
            while time.monotonic() < stop:
                try:
                    size = 1 if n % 2 else 60_000
                    assert client.infer("doubles", *[n] * size, client_timeout=20)[0, -1] == 2 * n
                    answered += 1
                except InferenceServerException as error:
                    problems.add(f"{error.status()} {str(error.message())[:30]}")
            return answered, problems

        asked = [pool.submit(ask, n) for n in range(16)]
        for at in range(9):
            wait_until(lambda: len(client.children()) == 3, 15, "three processes")
            for process in client.children()[at % 3 :][:1]:
                process.kill()
        results = [one.result(60) for one in asked]
        assert all(answered for answered, _ in results)
        problems = set().union(*(found for _, found in results))
        assert all(p.startswith("StatusCode.UNAVAILABLE Stub process 'doubles_0_") for p in problems), problems
        wait_until(client.grpc.is_server_ready, 15, "all processes are back")
        page = client.server.metrics_page()
        (pending,) = [line for line in page.splitlines() if line.startswith("nv_inference_pending_request_count{")]
        assert pending.endswith(" 0")


# The end of the server: a model may take as long to finish as the server may take to end


@pytest.mark.slow
@pytest.mark.parametrize(
    "at_the_end",
    [
        "import threading; threading.Thread(target=time.sleep, args=(60,)).start()",
        "while True: pass",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        "raise RuntimeError('no end')",
        "os._exit(5)",
    ],
    ids=["thread", "spins", "stops", "sleeps", "raises", "exits"],
)
def test_no_model_keeps_the_server_from_ending(tmp_path: Path, at_the_end: str) -> None:
    write_python_model(tmp_path / "models", "acts", ACTS)
    with client_of(tmp_path / "models", tmp_path / "log", "--exit-timeout-secs=2") as client:
        assert act(client, f"model.at_the_end = {at_the_end!r}") == ""
        children = client.children()
        begun = time.monotonic()
        assert client.server.stop() == 0
        assert time.monotonic() - begun < 10
        assert not any(p.is_running() for p in children)


@pytest.mark.slow
def test_a_stopped_process_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "acts", ACTS)
    with client_of(tmp_path / "models", tmp_path / "log", "--exit-timeout-secs=2") as client:
        (child,) = client.children()
        child.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        assert client.server.stop() == 0
        assert time.monotonic() - begun < 10
        assert not child.is_running()
