"""A real server that follows repositories in a bucket and an archive, whatever becomes of their stores."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from naiad.testing import RunningServer, serving, wait_until
from support.s3_server import S3, Asked, Faked
from support.served_models import identity, numbers, write_model
from support.traffic import Traffic
from support.web_folder import web_folder

pytest_plugins = ["support.s3_fixture"]

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")
IN_TWO = "model appears in two or more repositories"


def config(tag: str) -> str:
    return identity(extra=f'parameters {{ key: "tag" value {{ string_value: "{tag}" }} }}')


def put_model(s3: S3, name: str, tag: str = "first", repository: str = "repo") -> None:
    s3.put(f"{repository}/{name}/1/data", b"x" * 2000)
    s3.put(f"{repository}/{name}/config.pbtxt", config(tag))


def remove_model(s3: S3, name: str) -> None:
    for key in ("config.pbtxt", "1/data"):
        s3.delete(f"repo/{name}/{key}")


def arguments(s3: S3, tmp_path: Path, *more: object) -> list[object]:
    return ["--model-repository", s3.uri(), "--model-repository-mirror", tmp_path / "mirror", *POLL, *more]


def tag(server: RunningServer, name: str = "m") -> Any:
    answer = server.get(f"/v2/models/{name}/config")
    return answer.json()["parameters"]["tag"]["string_value"] if answer.status == 200 else None


def rows(server: RunningServer) -> dict[str, tuple[str, str]]:
    found = server.index()
    return {row["name"]: (row.get("state", ""), row.get("reason", "")) for row in found}


def looks(s3: S3, count: int = 3) -> None:
    """Wait until the bucket was looked at so often."""
    before = s3.listings
    # Each look lists the folders and the files.
    wait_until(lambda: s3.listings >= before + 2 * count, 30, "the bucket is looked at")


@pytest.fixture
def server(s3: S3, tmp_path: Path) -> Iterator[RunningServer]:
    put_model(s3, "m")
    put_model(s3, "other")
    with serving(tmp_path / "log", *arguments(s3, tmp_path)) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.mark.slow
def test_a_model_comes_changes_and_goes_under_traffic(server: RunningServer, s3: S3) -> None:
    with Traffic(server, "m", http=1, grpc=1) as traffic:
        put_model(s3, "new")
        wait_until(lambda: rows(server).get("new", ("",))[0] == "READY", 15, "the new model is loaded")
        s3.put("repo/m/config.pbtxt", "nonsense {")
        wait_until(lambda: "nonsense" in rows(server)["m"][1], 15, "the broken change is seen")
        assert rows(server)["m"][0] == "READY"
        assert server.get("/v2/health/ready").status == 200
        s3.put("repo/m/config.pbtxt", config("second"))
        wait_until(lambda: tag(server) == "second", 15, "the change is loaded")
        wait_until(lambda: rows(server)["m"] == ("READY", ""), 15, "the reason is gone")
        remove_model(s3, "new")
        wait_until(lambda: rows(server)["new"] == ("UNAVAILABLE", "unloaded"), 15, "the model is unloaded")
        assert traffic.answered
    assert traffic.failures == []
    assert server.log.count("successfully loaded 'other'") == 1
    assert server.log.count("successfully loaded 'm'") == 2


@pytest.mark.slow
def test_what_serves_goes_on_while_the_store_is_gone_and_follows_it_again(server: RunningServer, s3: S3) -> None:
    s3.fault = lambda asked: Faked(status=503)
    server.wait_for("cannot be read, its models stay as they are")
    put_model(s3, "m", "second")
    looks(s3, 2)
    assert (tag(server), tag(server, "other")) == ("first", "first")
    assert server.get("/v2/health/ready").status == 200
    s3.fault = lambda asked: None
    wait_until(lambda: tag(server) == "second", 60, "the change is loaded")
    assert "can be read again" in server.log
    assert server.log.count("successfully loaded 'other'") == 1


@pytest.mark.slow
def test_a_change_that_cannot_be_fetched_is_fetched_later(server: RunningServer, s3: S3) -> None:
    s3.fault = lambda asked: Faked(status=403) if asked.key == "repo/m/config.pbtxt" else None
    put_model(s3, "m", "second")
    wait_until(lambda: "refuses the credentials" in rows(server)["m"][1], 20, "the reason is seen")
    assert tag(server) == "first"
    s3.fault = lambda asked: None
    wait_until(lambda: tag(server) == "second", 20, "the change is loaded")
    assert rows(server)["m"] == ("READY", "")


@pytest.mark.slow
def test_a_model_that_could_not_be_fetched_at_the_start_is_fetched_later(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "m")
    put_model(s3, "other")
    s3.fault = lambda asked: Faked(status=403) if asked.key.startswith("repo/m/") else None
    with serving(tmp_path / "log", *arguments(s3, tmp_path, "--exit-on-error=false")) as server:
        assert rows(server)["m"][0] == "UNAVAILABLE"
        assert server.infer("other", numbers([1])).status == 200
        s3.fault = lambda asked: None
        wait_until(lambda: tag(server) == "first", 20, "the model is loaded")
        assert server.get("/v2/health/ready").status == 200


@pytest.mark.slow
def test_a_model_that_is_still_being_uploaded_is_left_alone(server: RunningServer, s3: S3) -> None:
    """While each look finds another file of it, no load begins."""
    count = 0

    def upload_one(asked: Asked) -> None:
        # Each listing comes after another file.
        nonlocal count
        if not asked.key:
            count += 1
            s3.put(f"repo/late/1/part{count}", b"x")

    s3.fault = upload_one
    looks(s3, 4)
    assert "'late'" not in server.log
    s3.fault = lambda asked: None
    s3.put("repo/late/config.pbtxt", config("whole"))
    wait_until(lambda: tag(server, "late") == "whole", 15, "the whole model is loaded")


@pytest.mark.slow
def test_a_start_without_the_store_follows_it_once_it_answers(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "m")
    put_model(s3, "other")
    with serving(tmp_path / "first", *arguments(s3, tmp_path)):
        pass
    s3.forget()
    s3.fault = lambda asked: Faked(status=503)
    with serving(tmp_path / "log", *arguments(s3, tmp_path)) as server:
        assert tag(server) == "first"
        put_model(s3, "m", "second")
        s3.fault = lambda asked: None
        wait_until(lambda: tag(server) == "second", 60, "the change is loaded")
        assert server.log.count("successfully loaded 'other'") == 1


@pytest.mark.slow
def test_a_name_that_a_folder_has_as_well(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "m")
    local = tmp_path / "local"
    write_model(local, "here", identity())
    with serving(tmp_path / "log", *arguments(s3, tmp_path, "--model-repository", local)) as server:
        write_model(local, "m", config("local"))
        wait_until(lambda: IN_TWO in rows(server)["m"][1], 15, "the second of the name is seen")
        assert tag(server) == "first"
        remove_model(s3, "m")
        put_model(s3, "n")
        wait_until(lambda: tag(server) == "local", 15, "the one that is left is loaded")


@pytest.mark.slow
def test_repositories_elsewhere_are_namespaces(s3: S3, tmp_path: Path) -> None:
    local = tmp_path / "local"
    put_model(s3, "both")
    put_model(s3, "only")
    write_model(local, "both", config("local"))
    more = ("--model-repository", local, "--model-namespacing=true")
    with serving(tmp_path / "log", *arguments(s3, tmp_path, *more)) as server:
        answer = server.infer("both", numbers([1]))
        assert (answer.status, "There are 2 identifiers of model 'both'" in answer.error) == (400, True)
        assert server.infer("only", numbers([1])).status == 200
        spaces = {(row["name"], row["namespace"]) for row in server.index()}
        assert spaces == {("both", s3.uri()), ("only", s3.uri()), ("both", str(local))}
        put_model(s3, "only", "second")
        wait_until(lambda: tag(server, "only") == "second", 15, "the change is loaded")
        remove_model(s3, "both")
        wait_until(lambda: tag(server, "both") == "local", 15, "the one that is left answers")


@pytest.mark.slow
def test_namespaces_elsewhere_are_loaded_when_asked_for(s3: S3, tmp_path: Path) -> None:
    put_model(s3, "m", "one", "one")
    put_model(s3, "m", "two", "two")
    given: list[object] = ["--model-repository", s3.uri("one"), "--model-repository", s3.uri("two")]
    given += ["--model-repository-mirror", tmp_path / "mirror", "--model-namespacing=true"]
    with serving(tmp_path / "log", *given, "--model-control-mode=explicit") as server:
        assert server.post("/v2/repository/models/m/load", {}).status == 200
        assert server.infer("m", numbers([1])).status == 400
        assert "There are 2 identifiers" in server.infer("m", numbers([1])).error
        assert server.post("/v2/repository/models/m/unload", {}).status == 200
        assert server.post("/v2/repository/models/nope/load", {}).status == 500


def packed(**models: str) -> bytes:
    """An archive of models with such configurations."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for name, text in models.items():
            for path, content in ((f"{name}/config.pbtxt", text.encode()), (f"{name}/1/data", b"x")):
                member = tarfile.TarInfo(path)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return body.getvalue()


@pytest.mark.slow
def test_an_archive_is_followed(tmp_path: Path) -> None:
    with web_folder() as web:
        web.files["models.tar"] = packed(m=config("first"))
        given = ["--model-repository", web.url("models.tar"), "--model-repository-mirror", tmp_path / "mirror"]
        with serving(tmp_path / "log", *given, *POLL) as server:
            assert tag(server) == "first"
            web.files["models.tar"] = packed(m=config("second"), n=config("new"))
            wait_until(lambda: (tag(server), tag(server, "n")) == ("second", "new"), 15, "the change is loaded")
            web.files["models.tar"] = packed(m=config("third"))[:700]
            server.wait_for("cannot be read, its models stay as they are")
            assert (tag(server), tag(server, "n")) == ("second", "new")
            web.files["models.tar"] = packed(n=config("new"))
            wait_until(lambda: rows(server)["m"] == ("UNAVAILABLE", "unloaded"), 15, "the model is unloaded")
            assert server.infer("n", numbers([1])).status == 200
            web.has_tags = False
            server.wait_for("tells neither an ETag nor a time of modification")
            assert server.infer("n", numbers([1])).status == 200
