"""The response cache in a real Redis: hits over both protocols and by several servers, and every way for it to fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import request_bytes, run_to_end, wait_until
from server.test_response_cache import CACHED, COUNTS, ask, counts
from support.certificates import new_authority
from support.python_models import Client, client_of, write_python_model
from support.redis_server import RedisServer, free_port, needs_redis, running_redis

pytestmark = needs_redis

# Each answer says how often the model ran; 50 makes it slow.
SLOW = COUNTS.replace("self.runs += 1", "self.runs += 1; time.sleep(0.2 if x.flat[0] == 50 else 0)")
INPUTS = b'{"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}'
BOUND_S = 5.0
"""Far above the 0.1 s that a request waits for Redis, and far below what it takes when it waits without a bound."""


def options(redis: RedisServer, *more: str) -> list[str]:
    settings = ("host=127.0.0.1", f"port={redis.port}", *more)
    return [word for setting in settings for word in ("--cache-config", f"redis,{setting}")]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as found:
        yield found


def write(folder: Path) -> Path:
    repository = folder / "repository"
    write_python_model(repository, "cached", SLOW, CACHED)
    write_python_model(repository, "batched", COUNTS, CACHED + " dynamic_batching { preserve_ordering: true }")
    write_python_model(repository, "plain", COUNTS)
    return repository


@contextmanager
def serving(folder: Path, redis: RedisServer, *more: str, log: str = "log") -> Iterator[Client]:
    if not (folder / "repository").exists():
        write(folder)
    # The others are loaded by the tests that ask them: each has a process.
    explicit = ("--model-control-mode", "explicit", "--load-model", "cached")
    with client_of(folder / "repository", folder / log, *options(redis, *more), *explicit) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path, redis: RedisServer) -> Iterator[Client]:
    with serving(tmp_path, redis) as found:
        found.server.wait_for("answers")
        yield found


def metric(client: Client, name: str) -> float:
    page = client.server.metrics_page()
    return float(next(line for line in page.splitlines() if line.startswith(name)).split()[-1])


def kept(redis: RedisServer, count: int) -> None:
    with redis.client() as found:
        wait_until(lambda: found.dbsize() == count, 10, f"{count} answers are kept")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cached", "batched"])
def test_an_equal_request_is_answered_without_the_model_over_both_protocols(
    client: Client, redis: RedisServer, model: str
) -> None:
    client.load(model)
    assert ask(client, model, 1) == 2
    kept(redis, 1)
    assert ask(client, model, 1) == 2
    assert client.infer(model, 1).tolist() == [[2]]
    assert ask(client, model, 2) == 4
    kept(redis, 2)
    found = counts(client, model)
    assert (found["success"], found["queue"], found["cache_hit"], found["cache_miss"]) == (4, 4, 2, 2)
    assert (found["inferences"], found["executions"], found["compute_infer"]) == (2, 2, 2)
    assert metric(client, f'nv_cache_num_hits_per_model{{model="{model}",version="1"}}') == 2
    assert metric(client, f'nv_cache_num_misses_per_model{{model="{model}",version="1"}}') == 2
    assert [metric(client, f"nv_cache_num_{what} ") for what in ("hits", "misses", "lookups")] == [2, 2, 4]
    assert metric(client, "naiad_cache_failures ") == 0
    assert metric(client, f'nv_inference_pending_request_count{{model="{model}"') == 0
    assert metric(client, "naiad_requests_in_flight ") == 0
    assert metric(client, "naiad_request_bytes_in_flight ") == 0


@pytest.mark.slow
def test_servers_share_it_and_find_it_again_after_a_start(tmp_path: Path, redis: RedisServer) -> None:
    with serving(tmp_path, redis) as first:
        first.server.wait_for("answers")
        assert ask(first, "cached", 1) == 2
        kept(redis, 1)
        with serving(tmp_path, redis, log="other") as second:
            second.server.wait_for("answers")
            assert ask(second, "cached", 1) == 2
            assert counts(second, "cached")["executions"] == 0
    with serving(tmp_path, redis, log="again") as third:
        third.server.wait_for("answers")
        assert ask(third, "cached", 1) == 2
        assert counts(third, "cached")["executions"] == 0


@pytest.mark.slow
def test_a_model_with_other_files_does_not_answer_with_what_it_was(
    client: Client, redis: RedisServer, tmp_path: Path
) -> None:
    assert ask(client, "cached", 1) == 2
    kept(redis, 1)
    source = tmp_path / "repository" / "cached" / "1" / "model.py"
    before = source.read_text()
    source.write_text(before.replace("x + self.runs", "x * 10"))
    assert client.server.post("/v2/repository/models/cached/load", {}).status == 200
    assert ask(client, "cached", 1) == 10
    kept(redis, 2)
    source.write_text(before)
    assert client.server.post("/v2/repository/models/cached/load", {}).status == 200
    assert ask(client, "cached", 1) == 2
    assert counts(client, "cached")["cache_hit"] == 1


@pytest.mark.slow
def test_a_redis_that_is_killed_costs_hits_and_nothing_else(client: Client, redis: RedisServer) -> None:
    assert ask(client, "cached", 1) == 2
    kept(redis, 1)
    redis.kill()
    runs = counts(client, "cached")["executions"]
    for n in range(20):
        assert ask(client, "cached", 1) == 2 + runs + n
    client.server.wait_for("does not answer, so requests go without it")
    redis.start()
    wait_until(lambda: client.server.log.count(" answers") >= 2, 20, "Redis is there again")
    last = ask(client, "cached", 1)
    kept(redis, 1)
    assert ask(client, "cached", 1) == last


@pytest.mark.slow
def test_a_redis_that_hangs_holds_nobody_up(client: Client, redis: RedisServer) -> None:
    assert ask(client, "cached", 1) == 2
    kept(redis, 1)
    redis.hold()
    try:
        begun = time.monotonic()
        with ThreadPoolExecutor(8) as callers:
            answers = list(callers.map(lambda n: client.infer("cached", n).tolist(), range(100, 140)))
        assert len(answers) == 40
        # One by one after that: nobody waits again for what is known to hang.
        for n in range(140, 180):
            client.infer("cached", n)
        assert time.monotonic() - begun < BOUND_S
        client.server.wait_for("does not answer, so requests go without it")
    finally:
        redis.go_on()
    wait_until(lambda: client.server.log.count(" answers") >= 2, 20, "Redis is there again")
    assert ask(client, "cached", 1) == 2


@pytest.mark.slow
def test_a_server_starts_and_serves_without_its_redis(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path, port=free_port())
    with serving(tmp_path, redis) as client:
        client.server.wait_for("does not answer, so requests go without it")
        assert [ask(client, "cached", 1) for _ in range(2)] == [2, 3]
        redis.start()
        try:
            client.server.wait_for("answers")
            wait_until(lambda: ask(client, "cached", 7) == ask(client, "cached", 7), 10, "answers are kept")
        finally:
            redis.kill()


@pytest.mark.slow
def test_passwords_and_users(tmp_path: Path) -> None:
    users = ("--user", "naiad", "on", ">secret", "~naiad:*", "+@all", "--requirepass", "other")
    with running_redis(tmp_path, *users) as redis:
        with serving(tmp_path, redis, "user=naiad", "password=secret") as client:
            client.server.wait_for(" answers")
            assert ask(client, "cached", 1) == 2
            wait_until(lambda: ask(client, "cached", 1) == ask(client, "cached", 1), 10, "answers are kept")
        with serving(tmp_path, redis, "user=naiad", "password=wrong", log="wrong") as client:
            client.server.wait_for("does not answer, so requests go without it")
            assert "password" in client.server.log
            assert [ask(client, "cached", 5) for _ in range(2)] == [6, 7]


@pytest.mark.slow
def test_the_environment_may_have_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONCACHE_REDIS_USERNAME", "default")
    monkeypatch.setenv("TRITONCACHE_REDIS_PASSWORD", "hidden-word")
    with (
        running_redis(tmp_path, "--requirepass", "hidden-word") as redis,
        serving(tmp_path, redis, "db=3") as client,
    ):
        client.server.wait_for(" answers")
        wait_until(lambda: ask(client, "cached", 1) == ask(client, "cached", 1), 10, "answers are kept")
        with redis.client(password="hidden-word", db=3) as found:
            assert found.dbsize() > 0
        assert "hidden-word" not in client.server.log


@pytest.mark.slow
def test_passwords_are_not_shown(tmp_path: Path, redis: RedisServer) -> None:
    write(tmp_path)
    with client_of(
        tmp_path / "repository", tmp_path / "log", *options(redis, "password=hidden-word"), "--log-verbose", "1"
    ) as client:
        client.server.wait_for("does not answer")
        assert "redis,password=***" in client.server.log
        assert "hidden-word" not in client.server.log


@pytest.mark.slow
def test_over_tls(tmp_path: Path) -> None:
    authority = new_authority(tmp_path, "authority")
    root, own = authority.root, authority.issue("redis")
    arguments = ("--tls-cert-file", str(own.cert), "--tls-key-file", str(own.key), "--tls-ca-cert-file", str(root))
    tls = ("tls_enabled=true", f"cacert={root}", f"cert={own.cert}", f"key={own.key}")
    with running_redis(tmp_path, *arguments, tls=True) as redis, serving(tmp_path, redis, *tls) as client:
        client.server.wait_for(" answers")
        wait_until(lambda: ask(client, "cached", 1) == ask(client, "cached", 1), 10, "answers are kept")


@pytest.mark.slow
def test_a_redis_without_room_keeps_nothing_and_nobody_minds(tmp_path: Path) -> None:
    full = ("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    with running_redis(tmp_path, *full) as redis, serving(tmp_path, redis) as client:
        client.server.wait_for(" answers")
        assert [ask(client, "cached", 1) for _ in range(3)] == [2, 3, 4]
        client.server.wait_for("an answer could not be kept in the response cache")
        assert client.server.log.count("could not be kept") == 1
        wait_until(lambda: metric(client, "naiad_cache_failures ") >= 3, 10, "each is counted")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["garbage", "list", "other answer", "huge"])
def test_what_others_put_under_our_keys_is_a_miss(client: Client, redis: RedisServer, what: str) -> None:
    assert ask(client, "cached", 1) == 2
    kept(redis, 1)
    with redis.client() as found:
        (key,) = found.keys()
        assert key.startswith(b"naiad:")
        if what == "garbage":
            found.set(key, b"\xff" * 1000)
        elif what == "list":
            found.delete(key)
            found.rpush(key, b"a", b"b")
        elif what == "huge":
            found.setrange(key, 60 << 20, b"end")
        else:
            client.infer_array("cached", np.ones((2, 3), np.float32))
            wait_until(lambda: found.dbsize() == 2, 10, "another answer is kept")
            other = next(k for k in found.keys() if k != key)  # noqa: SIM118
            found.rename(other, key)
    runs = counts(client, "cached")["executions"]
    assert ask(client, "cached", 1) == 2 + runs
    wait_until(lambda: "could not be read" in client.server.log, 10, "it is said")
    client.load("plain")
    assert ask(client, "plain", 1) == 2


@pytest.mark.slow
def test_requests_keep_their_order_and_each_gets_its_own_answer(client: Client) -> None:
    client.load("batched")
    with ThreadPoolExecutor(16) as callers:
        values = [n % 50 for n in range(800)]
        answers = list(callers.map(lambda n: (n, client.infer("batched", n)[0][0]), values))
    # An answer is its number and how often the model had run.
    assert all(1 <= found - n <= 800 for n, found in answers)
    assert metric(client, "naiad_requests_in_flight ") == 0


@pytest.mark.slow
def test_the_end_of_a_model_waits_for_its_look_ups(client: Client, redis: RedisServer) -> None:
    redis.hold()
    with ThreadPoolExecutor(4) as callers:
        asked = [callers.submit(client.infer, "cached", n) for n in range(4)]
        client.server.wait_pending("cached", 4)
        unloaded = callers.submit(client.server.post, "/v2/repository/models/cached/unload", {})
        assert [one.result(20).shape for one in asked] == [(1, 1)] * 4
        assert unloaded.result(20).status == 200
    redis.go_on()
    assert metric(client, "naiad_requests_in_flight ") == 0


@pytest.mark.slow
def test_requests_that_are_given_up_while_they_are_looked_up_are_gone(tmp_path: Path, redis: RedisServer) -> None:
    with serving(tmp_path, redis, "socket_timeout=20000") as client:
        client.server.wait_for(" answers")
        redis.hold()
        # One leaves by HTTP, one is cancelled by gRPC, one is late; the one behind them is not.
        with client.server.connect() as peer:
            peer.sendall(request_bytes("POST", "/v2/models/cached/infer", INPUTS))
            client.server.wait_pending("cached", 1)
            given = tritonclient.grpc.InferInput("X", (1, 1), "FP32")
            given.set_data_from_numpy(np.ones((1, 1), np.float32))
            cancelled = client.grpc.async_infer("cached", [given], lambda result, error: None)
            client.server.wait_pending("cached", 2)
            with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
                client.infer("cached", 3, client_timeout=1.0)
            with ThreadPoolExecutor(1) as callers:
                stays = callers.submit(client.infer, "cached", 4)
                client.server.wait_pending("cached", 3)
                cancelled.cancel()
                client.server.wait_pending("cached", 2)
                peer.close()
                client.server.wait_pending("cached", 1)
                redis.go_on()
                assert stays.result(20).tolist() == [[5]]
        assert counts(client, "cached")["executions"] == 1
        assert metric(client, 'nv_inference_request_failure{model="cached",reason="CANCELED"') == 3
        assert metric(client, "naiad_requests_in_flight ") == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["redis,host=localhost"], "Failed to initialize RedisCache, didn't specify address"),
        (["redis,port=1", "redis,host=a,b"], "redis,host: Invalid option value"),
        (["redis,port=0"], "redis,port: Provided option value is out of bound"),
        (["redis,ttl=1"], "the cache 'redis' has no setting 'ttl', only host, port"),
        (["redis,host=a", "redis,port=1", "local,size=5000"], "found multiple cache configurations"),
        (["redis,host=a", "redis,port=1", "redis,cert=x"], "cert and key go together"),
        (["redis,host=a", "redis,port=1", "redis,sni=b"], "leave sni out"),
        (["memcached,host=a"], "there is no cache 'memcached', only 'local' and 'redis'"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str], text: str) -> None:
    words = [word for setting in arguments for word in ("--cache-config", setting)]
    code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path, *words)
    assert code != 0
    assert text in log
