"""The options about who may ask: restricted features, API keys, TLS on the HTTP port, origins of pages."""

from __future__ import annotations

import pytest

from naiad.errors import OptionError
from naiad.options import ServerOptions, option_rows, parse
from naiad.options.restriction import Restriction

HASH = "sha256:" + "ab" * 32


def options(*argv: str, **environ: str) -> ServerOptions:
    return parse(["--model-repository=models", *argv], environ)


def test_restrictions_are_read() -> None:
    got = options("--http-restricted-api=health,trace:k=a=b", "--http-restricted-api", "logging:k2=v 2")
    assert got.http_restricted_api == (
        Restriction(("health", "trace"), "k", "a=b"),
        Restriction(("logging",), "k2", "v 2"),
    )
    got = options(NAIAD_GRPC_RESTRICTED_PROTOCOL="health:a=1;metadata:b=2")
    assert [r.features for r in got.grpc_restricted_protocol] == [("health",), ("metadata",)]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--http-restricted-api=health,models:k=v"], "unknown restricted api 'models'"),
        (["--http-restricted-api=:k=v"], "unknown restricted api ''"),
        (["--grpc-restricted-protocol=models:k=v"], "unknown restricted protocol 'models'"),
        (
            ["--http-restricted-api=metadata,health:k=v", "--http-restricted-api=health:k2=v"],
            "restricted api 'health' can not be specified in multiple config groups",
        ),
        (
            ["--grpc-restricted-protocol=trace,trace:k=v"],
            "restricted protocol 'trace' can not be specified in multiple",
        ),
        (["--http-restricted-api=health"], "option format is '<config name>:<setting>=<value>'. Got health"),
        (["--http-restricted-api=health:k"], "option format is"),
        (["--http-restricted-api=health:k k=v"], "option format is"),
        (["--http-restricted-api=health:k="], "the value is empty"),
        (["--http-restricted-api=health:k=a\nb"], "characters that no header can"),
        (["--api-key=a infer"], 'Bad option: "--api-key". an API key has at least'),
        ([f"--api-key=a infer {HASH}", f"--api-key=b infer {HASH}"], "the API keys a and b have the same hash"),
        (["--http-server-cert=a.pem"], "needs --http-server-cert and --http-server-key"),
        (["--http-root-cert=a.pem"], "needs --http-server-cert and --http-server-key"),
        (["--http-cors-origin=example.com"], "Invalid option value. Got example.com. Expected: an origin such as"),
        (["--http-cors-origin=https://example.com/"], "Invalid option value."),
        (["--http-cors-origin=https://a,https://b"], "Invalid option value."),
    ],
)
def test_what_is_wrong_is_said(argv: list[str], text: str) -> None:
    with pytest.raises(OptionError) as raised:
        options(*argv)
    assert text in str(raised.value)


def test_a_feature_may_be_restricted_on_both_protocols() -> None:
    got = options("--http-restricted-api=health:k=v", "--grpc-restricted-protocol=health:k=v")
    assert len(got.http_restricted_api) == len(got.grpc_restricted_protocol) == 1


def test_secrets_are_not_shown() -> None:
    got = options("--http-restricted-api=health:k=secret", f"--api-key=a infer {HASH}")
    shown = str(option_rows(got)) + repr(got)
    assert "secret" not in shown
    assert "abab" not in shown
    assert "health:k=..." in shown


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://Example.com", "https://example.com"),
        ("https://a.example:443", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("http://a.example:443", "http://a.example:443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("*", "*"),
    ],
)
def test_origins(given: str, origin: str) -> None:
    assert options(f"--http-cors-origin={given}").http_cors_origin == (origin,)
