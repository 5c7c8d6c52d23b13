"""A server whose models lie in a bucket: it starts, loads, reloads and goes on when the store is gone."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from naiad.testing import run_to_end, serving, start_server, wait_until
from support.s3_server import S3, Asked, Faked
from support.served_models import identity, numbers

MODEL = identity()

pytest_plugins = ["support.s3_fixture"]


def put_model(s3: S3, name: str, versions: tuple[int, ...] = (1,), config: str = MODEL) -> None:
    s3.put(f"repo/{name}/config.pbtxt", config)
    for version in versions:
        s3.put(f"repo/{name}/{version}/data", b"x" * 2000)


def arguments(s3: S3, mirror: Path, *more: str) -> list[str]:
    return ["--model-repository", s3.uri(), "--model-repository-mirror", str(mirror), *more]


@pytest.mark.slow
def test_a_server_starts_again_without_its_store(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "one")
    put_model(s3, "two")
    mirror = tmp_path / "mirror"
    with serving(tmp_path / "first", *arguments(s3, mirror)) as server:
        assert server.infer("one", numbers([1, 2])).json()["outputs"][0]["data"] == [1, 2]
        assert "mirrored model 'one' of s3://127.0.0.1" in server.log
    s3.forget()
    with serving(tmp_path / "second", *arguments(s3, mirror)) as server:
        assert server.infer("two", numbers([3])).status == 200
    assert s3.asked == [], "the second start fetches nothing"
    s3.fault = lambda asked: Faked(status=503)
    with serving(tmp_path / "third", *arguments(s3, mirror)) as server:
        assert server.infer("two", numbers([3])).status == 200
        assert "serving what the mirror" in server.log


@pytest.mark.slow
def test_models_are_fetched_when_they_are_loaded(s3: S3, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        put_model(s3, name)
    explicit = arguments(s3, tmp_path / "mirror", "--model-control-mode=explicit", "--load-model=one")
    with serving(tmp_path / "log", *explicit) as server:
        assert {key.split("/")[1] for key in s3.asked_keys()} == {"one"}
        names = {row["name"] for row in server.index()}
        assert names == {"one", "two", "three"}
        assert {key.split("/")[1] for key in s3.asked_keys()} == {"one"}, "the index fetches nothing"
        assert server.post("/v2/repository/models/two/load", {}).status == 200
        assert server.infer("two", numbers([1])).status == 200
        s3.forget()
        assert server.post("/v2/repository/models/two/load", {}).status == 200
        assert s3.asked == [], "an unchanged model is not fetched again"
        assert server.log.count("successfully loaded 'two'") == 1
        put_model(s3, "two", (1, 2))
        assert server.post("/v2/repository/models/two/load", {}).status == 200
        assert server.get("/v2/models/two").json()["versions"] == ["2"]
        assert server.post("/v2/repository/models/zzz/load", {}).status >= 400
        assert server.post("/v2/repository/models/%2e%2e/load", {}).status >= 400


WRITES = """
import os
class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(args["model_repository"], args["model_version"], "scratch"), "w") as file:
            file.write("x")
    def execute(self, requests):
        return [None for _ in requests]
"""


@pytest.mark.slow
def test_a_model_that_writes_to_its_folder_is_unchanged(s3: S3, tmp_path: Path) -> None:
    s3.put("repo/py/config.pbtxt", MODEL.replace('"identity"', '"python"'))
    s3.put("repo/py/1/model.py", WRITES)
    explicit = arguments(s3, tmp_path / "mirror", "--model-control-mode=explicit", "--load-model=py")
    with serving(tmp_path / "log", *explicit) as server:
        assert server.post("/v2/repository/models/py/load", {}).status == 200
        assert server.log.count("successfully loaded 'py'") == 1
        s3.put("repo/py/1/more", b"x")
        assert server.post("/v2/repository/models/py/load", {}).status == 200
        assert server.log.count("successfully loaded 'py'") == 2


@pytest.mark.slow
def test_what_serves_goes_on_when_the_store_is_gone(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "one")
    put_model(s3, "two")
    explicit = arguments(s3, tmp_path / "mirror", "--model-control-mode=explicit", "--load-model=*")
    with serving(tmp_path / "log", *explicit) as server:
        assert server.post("/v2/repository/models/two/unload", {}).status == 200
        s3.fault = lambda asked: Faked(status=503)
        answer = server.post("/v2/repository/models/one/load", {})
        assert answer.status >= 400
        assert "503" in server.log
        assert server.infer("one", numbers([1])).status == 200
        names = {row["name"] for row in server.index()}
        assert names == {"one", "two"}
        assert server.post("/v2/repository/models/two/load", {}).status == 200, "the mirror has it"
        assert "comes from the mirror" in server.log


def test_a_server_answers_while_it_fetches_and_stops_at_once(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "one")
    held, asked_for = threading.Event(), threading.Event()

    def hold(asked: Asked) -> Faked | None:
        if asked.key:
            asked_for.set()
            held.wait(60)
        return None

    s3.fault = hold
    server = start_server(tmp_path / "log", *arguments(s3, tmp_path / "mirror"))
    try:
        server.wait_listening()
        assert asked_for.wait(30)
        assert server.get("/v2/health/live").status == 200
        assert server.get("/v2/health/ready").status == 400
        server.signal()
        server.wait_exit(10)
    finally:
        held.set()
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "words"),
    [("nosuch", "holds nothing: is the path right"), ("../x", "expected a path without them")],
)
def test_a_repository_that_is_none(s3: S3, tmp_path: Path, path: str, words: str) -> None:
    given = ["--model-repository", s3.uri(path), "--model-repository-mirror", str(tmp_path / "mirror")]
    code, log = run_to_end(tmp_path / "log", *given)
    assert code == 1
    assert words in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_bucket_may_be_empty_at_first(s3: S3, tmp_path: Path) -> None:
    given = ["--model-repository", s3.uri(""), "--model-repository-mirror", str(tmp_path / "mirror")]
    with serving(tmp_path / "explicit", *given, "--model-control-mode=explicit") as server:
        assert server.get("/v2/health/ready").status == 200
        assert server.index() == []
        s3.put("late/config.pbtxt", MODEL)
        s3.put("late/1/data", b"x")
        assert server.post("/v2/repository/models/late/load", {}).status == 200
        assert server.infer("late", numbers([1])).status == 200
    s3.delete("late/config.pbtxt")
    s3.delete("late/1/data")
    polling = ("--model-control-mode=poll", "--repository-poll-secs=1")
    with serving(tmp_path / "poll", *given, *polling) as server:
        assert server.index() == []
        s3.put("late/config.pbtxt", MODEL)
        s3.put("late/1/data", b"x")
        wait_until(lambda: server.get("/v2/models/late/ready").status == 200, 30, "the model is found")
        s3.delete("late/config.pbtxt")
        s3.delete("late/1/data")
        server.wait_for("holds nothing")
        assert server.infer("late", numbers([1])).status == 200
        assert "Traceback" not in server.log


@pytest.mark.slow
def test_one_broken_model_does_not_keep_the_others_away(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "good")
    put_model(s3, "bad")
    s3.fault = lambda asked: Faked(status=403) if asked.key.startswith("repo/bad") else None
    with serving(tmp_path / "log", *arguments(s3, tmp_path / "mirror", "--exit-on-error=false")) as server:
        assert server.infer("good", numbers([1])).status == 200
        (reason,) = (row["reason"] for row in server.index() if row["name"] == "bad")
        assert "refuses the credentials" in reason


@pytest.mark.slow
def test_agents_look_after_models_from_elsewhere_and_requests_load_them(s3: S3, tmp_path: Path) -> None:
    agent = 'model_repository_agents { agents { name: "checksum" parameters { key: "MD5:1/data" value: "%s" } } }'
    right = hashlib.md5(b"x" * 2000).hexdigest()
    put_model(s3, "right", config=MODEL + agent % right)
    put_model(s3, "wrong", config=MODEL + agent % ("0" * 32))
    put_model(s3, "later")
    explicit = ("--model-control-mode=explicit", "--load-model=right", "--load-on-demand-secs=20")
    with serving(tmp_path / "log", *arguments(s3, tmp_path / "mirror", *explicit)) as server:
        assert server.infer("right", numbers([1])).status == 200
        assert server.post("/v2/repository/models/right/load", {}).status == 200
        answer = server.post("/v2/repository/models/wrong/load", {})
        assert answer.status == 500
        assert "1/data" in answer.error
        assert server.infer("later", numbers([2])).json()["outputs"][0]["data"] == [2]
        assert server.post("/v2/repository/models/right/unload", {}).status == 200
