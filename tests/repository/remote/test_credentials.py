"""Who a server is towards a store, and what an address means. Nothing is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from naiad.errors import OptionError
from naiad.options.remote_uri import RemoteUri, is_remote, redacted
from naiad.repository.remote.stores.cloud import BucketLocation, place_of
from naiad.repository.remote.stores.credentials import (
    AzureCredentials,
    S3Credentials,
    azure_credentials,
    google_credentials,
    s3_credentials,
)

FILE = {
    "s3": {
        "": {"key_id": "default", "secret_key": "s"},
        "s3://bucket": {"key_id": "bucket", "secret_key": "s", "region": "eu-west-1", "session_token": "t"},
        "s3://bucket/deep": {"profile": "work"},
        "s3://half": {"key_id": "half"},
        "s3://wrong": {"key": "x"},
        "s3://list": [],
    },
    "as": {
        "": {"account_str": "acc", "account_key": "k"},
        "as://acc/managed": {"auth_type": "managed_identity", "client_id": "c"},
        "as://acc/odd": {"auth_type": "odd"},
    },
    "gs": {"": "{home}/key.json", "gs://other": "/nosuch.json", "gs://odd": {}},
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a credential file and profiles."""
    (tmp_path / "key.json").write_text("{}")
    (tmp_path / "file.json").write_text(json.dumps(FILE).replace("{home}", str(tmp_path)))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = s\n"
        "[work]\naws_access_key_id = w\naws_secret_access_key = s\naws_session_token = t\n"
    )
    (tmp_path / ".aws" / "config").write_text("[profile work]\nregion = eu-central-1\n[profile sso]\nsso_session = x\n")
    return {"HOME": str(tmp_path), "TRITON_CLOUD_CREDENTIAL_PATH": str(tmp_path / "file.json")}


def without_file(environ: dict[str, str], **more: str) -> dict[str, str]:
    return {"HOME": environ["HOME"], **more}


@pytest.mark.parametrize(
    ("uri", "key_id", "region"),
    [
        ("s3://elsewhere/x", "default", ""),
        ("s3://bucket/x", "bucket", "eu-west-1"),
        ("s3://bucket/deep/x", "w", "eu-central-1"),
    ],
)
def test_the_longest_beginning_counts(environ: dict[str, str], uri: str, key_id: str, region: str) -> None:
    # What the file says is not mixed with the environment.
    found = s3_credentials(uri, {**environ, "AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "e"})
    assert (found.key_id, found.region) == (key_id, region)


def test_the_environment_comes_before_the_profiles(environ: dict[str, str]) -> None:
    given = {"AWS_ACCESS_KEY_ID": "env", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "t", "AWS_REGION": "r"}
    found = s3_credentials("s3://b", without_file(environ, **given))
    assert found == S3Credentials("env", "e", "t", "r", "AWS_ACCESS_KEY_ID")
    assert s3_credentials("s3://b", without_file(environ)).key_id == "d"
    assert s3_credentials("s3://b", without_file(environ, AWS_PROFILE="work")).key_id == "w"
    assert s3_credentials("s3://b", without_file(environ, AWS_SKIP_SIGNATURE="true")).is_anonymous
    assert s3_credentials("s3://b", {"HOME": "/nosuch"}) == S3Credentials()


@pytest.mark.parametrize(
    ("uri", "more", "words"),
    [
        ("s3://half", {}, "have no secret key"),
        ("s3://wrong", {}, "has the key 'key', expected some of secret_key"),
        ("s3://list", {}, "is no object of texts"),
        ("s3://b", {"TRITON_CLOUD_CREDENTIAL_PATH": "", "AWS_ACCESS_KEY_ID": "a"}, "have no secret key"),
        ("s3://b", {"TRITON_CLOUD_CREDENTIAL_PATH": "", "AWS_PROFILE": "sso"}, "has no keys, but signs in"),
        ("s3://b", {"TRITON_CLOUD_CREDENTIAL_PATH": "", "AWS_PROFILE": "nobody"}, "is in neither of the files"),
        ("s3://b", {"TRITON_CLOUD_CREDENTIAL_PATH": "/nosuch"}, "which cannot be read: No such file"),
    ],
)
def test_credentials_that_are_incomplete(environ: dict[str, str], uri: str, more: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        s3_credentials(uri, {**environ, **more})


@pytest.mark.parametrize("text", ["{", "[]", '{"s3": 3}', "\x00"])
def test_a_file_that_is_no_credential_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(OptionError, match="TRITON_CLOUD_CREDENTIAL_PATH names"):
        s3_credentials("s3://b", {"TRITON_CLOUD_CREDENTIAL_PATH": str(tmp_path / "file")})


def test_azure(environ: dict[str, str]) -> None:
    assert azure_credentials("as://x/y", environ).account == "acc"
    found = azure_credentials("as://acc/managed", environ)
    assert (found.auth_type, found.client_id) == ("managed_identity", "c")
    with pytest.raises(OptionError, match="expected managed_identity or default"):
        azure_credentials("as://acc/odd", environ)
    given = {"AZURE_STORAGE_ACCOUNT": "a", "AZURE_STORAGE_KEY": "k"}
    assert azure_credentials("as://x/y", given) == AzureCredentials("a", "k", origin="AZURE_STORAGE_KEY")


def test_google(environ: dict[str, str]) -> None:
    assert google_credentials("gs://b", environ) == f"{environ['HOME']}/key.json"
    with pytest.raises(OptionError, match=r"'/nosuch.json' .* does not exist"):
        google_credentials("gs://other", environ)
    with pytest.raises(OptionError, match="is no text, expected the path"):
        google_credentials("gs://odd", environ)
    assert google_credentials("gs://b", {}) == ""


def test_secrets_are_not_shown() -> None:
    shown = repr(S3Credentials("id", "s3cret", "s3cret")) + repr(AzureCredentials("a", "s3cret"))
    assert "s3cret" not in shown
    assert redacted("GET http://u:p@h/x?sig=abc failed <?xml ?>") == "GET http://...@h/x?... failed <?xml ?>"


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://b", BucketLocation("b", "")),
        ("s3://b/p/q/", BucketLocation("b", "p/q")),
        ("s3://host:9000/b/p", BucketLocation("b", "p", "http://host:9000")),
        ("s3://https://host:9000/b/p", BucketLocation("b", "p", "https://host:9000")),
        ("s3://http://host:9000/b", BucketLocation("b", "", "http://host:9000")),
        ("s3://[::1]:9000/b", BucketLocation("b", "", "http://[::1]:9000")),
        ("gs://b//p", BucketLocation("b", "p")),
        ("as://acc/c/p", BucketLocation("c", "p", account="acc")),
    ],
)
def test_what_an_address_means(uri: str, place: BucketLocation) -> None:
    assert is_remote(uri)
    assert place_of(RemoteUri(uri)) == place


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "gs://", "as://acc", "as://", "s3://host:80/", "s3://b/../c"])
def test_addresses_without_a_bucket(uri: str) -> None:
    with pytest.raises(OptionError, match=r"names no bucket|without them"):
        place_of(RemoteUri(uri))


@pytest.mark.parametrize("text", ["/local/s3", "s3", "s3:/x", "models/x", "ftp://x", "./models:/x"])
def test_what_is_no_address(text: str) -> None:
    assert not is_remote(text)
