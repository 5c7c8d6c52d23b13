"""A server starts again with the same bucket: no byte of a model comes, and it starts when the store is gone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from naiad.testing import RunningServer, serving
from support.s3_server import S3, s3_server
from support.served_models import identity, numbers, write_model

SIZE = 20 << 20


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "TRITON_CLOUD_CREDENTIAL_PATH", "TRITON_AWS_MOUNT_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


def upload(s3: S3, repository: Path) -> None:
    for path in repository.rglob("*"):
        if path.is_file():
            s3.put(f"repo/{path.relative_to(repository)}", path.read_bytes())


def serves(server: RunningServer) -> bool:
    return server.infer("m", numbers([1, 2])).json()["outputs"][0]["data"] == [1, 2]


@pytest.mark.slow
def test_nothing_is_fetched_again_and_the_store_may_be_gone(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "upload", "m", identity())
    (folder / "1" / "weights").write_bytes(random.Random(1).randbytes(SIZE))
    with s3_server() as s3:
        upload(s3, tmp_path / "upload")
        given = ("--model-repository", s3.uri(), "--model-repository-mirror", tmp_path / "mirror")
        with serving(tmp_path / "first", *given) as server:
            assert serves(server)
        assert len(s3.asked) > 2, "it came in parts"
        s3.forget()
        for log in ("second", "third"):
            with serving(tmp_path / log, *given) as server:
                assert serves(server)
        assert s3.asked == []
    # Nobody listens there any more.
    with serving(tmp_path / "offline", *given) as server:
        assert serves(server)
        assert "serving what the mirror" in server.log
        assert server.get("/v2/health/ready").status == 200
    kept = [path for path in (tmp_path / "mirror" / "objects").rglob("*") if path.is_file()]
    assert len(kept) == 2, "what was uploaded is there once"
