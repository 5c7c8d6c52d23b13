"""Limits of time and memory for Python models, in a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from naiad.testing import wait_until
from support.config_texts import parameter
from support.python_acts import ACTS, SPIN_IN_C, act
from support.python_models import DOUBLES, Client, client_of, write_python_model


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Models with limits of their own: ``quick`` and ``small``; ``free`` has none, against what all others have."""
    folder = tmp_path_factory.mktemp("limits")
    models = folder / "models"
    write_python_model(models, "quick", ACTS, f"max_batch_size: 8 {parameter('execute-timeout-seconds', '1')}")
    write_python_model(models, "small", ACTS, f"max_batch_size: 8 {parameter('memory-limit-mb', '700')}")
    write_python_model(models, "free", ACTS, f"max_batch_size: 8 {parameter('execute-timeout-seconds', '0')}")
    write_python_model(models, "doubles", DOUBLES)
    arguments = ("--backend-config=python,execute-timeout-seconds=1.5", "--backend-config=python,memory-limit-mb=4000")
    with client_of(models, folder / "log", *arguments) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("do", ["while True: pass", SPIN_IN_C, "time.sleep(60)"], ids=["loop", "native", "sleep"])
def test_a_batch_that_takes_too_long_ends_its_process(limited: Client, do: str) -> None:
    begun = time.monotonic()
    text = act(limited, do, "quick")
    assert 0.95 < time.monotonic() - begun < 10
    assert "DEADLINE_EXCEEDED" in text
    assert "Stub process 'quick_0_0' was ended: a batch ran for longer than 1 s (execute-timeout-seconds)" in text
    assert limited.infer("doubles", 1)[0, 0] == 2
    assert act(limited, "time.sleep(0.2)", "quick") == ""
    wait_until(limited.grpc.is_server_ready, 10, "it is ready again")


def test_the_limit_holds_for_each_batch(limited: Client) -> None:
    for _ in range(4):
        assert act(limited, "time.sleep(0.4)", "quick") == ""


@pytest.mark.slow
def test_a_limit_of_all_models_and_one_that_is_lifted(limited: Client) -> None:
    assert act(limited, "time.sleep(1.8)", "free") == ""
    text = act(limited, "time.sleep(60)", "small")
    assert "a batch ran for longer than 1.5 s (execute-timeout-seconds)" in text
    wait_until(limited.grpc.is_server_ready, 10, "it is ready again")


@pytest.mark.slow
def test_time_out_over_http(limited: Client) -> None:
    given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    body = json.dumps({"inputs": [given], "parameters": {"do": "time.sleep(60)"}}).encode()
    answer = limited.server.request("POST", "/v2/models/quick/infer", body)
    assert answer.status == 504
    assert "execute-timeout-seconds" in answer.error
    wait_until(limited.grpc.is_server_ready, 10, "it is ready again")


@pytest.mark.slow
def test_memory_beyond_the_limit_is_an_error_of_its_request(limited: Client) -> None:
    before = {p.pid for p in limited.children()}
    text = act(limited, "np.ones(150_000_000)", "small")
    assert "INTERNAL" in text
    assert "MemoryError" in text
    assert "(memory-limit-mb is 700)" in text
    assert act(limited, "model.kept = []\nwhile True: model.kept.append(bytearray(1 << 20))", "small") != ""
    assert act(limited, "model.kept = None", "small") == ""
    # Others have their own limit, and large tensors lie in memory that does not count.
    assert act(limited, "np.ones(150_000_000)", "free") == ""
    assert limited.infer("small", *[1.0] * 5_000_000)[0, -1] == 1
    assert {p.pid for p in limited.children()} == before


@pytest.mark.slow
def test_the_end_of_a_process_with_little_memory_says_so(limited: Client) -> None:
    text = act(limited, "os.abort()", "small")
    assert "killed by SIGABRT (memory-limit-mb is 700)" in text
    wait_until(limited.grpc.is_server_ready, 10, "it is ready again")
