"""Stores of other machines, for the tests of remote repositories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.s3_server import S3, empty, s3_server


@pytest.fixture(scope="session")
def _s3() -> Iterator[S3]:
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    with s3_server() as found:
        yield found


@pytest.fixture
def s3(_s3: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """An S3 server with an empty bucket; the environment has the credentials for it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "TRITON_CLOUD_CREDENTIAL_PATH", "TRITON_AWS_MOUNT_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    empty(_s3)
    return _s3
