"""The TLS settings of a listener, out of PEM files."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from naiad.errors import OptionError

PROTOCOLS: Final = ("h2",)
"""What is negotiated (ALPN, RFC 9113 section 3.2). A client that offers none, or others only, gets no answer to that
and is refused as soon as it does not speak HTTP/2."""

_CERT, _KEY, _ROOT = "--grpc-server-cert", "--grpc-server-key", "--grpc-root-cert"


def ssl_context(cert: str, key: str, root: str = "", mutual: bool = False) -> ssl.SSLContext:
    """The settings for a gRPC server: TLS 1.2 and later, HTTP/2 only.

    ``cert`` and ``key`` are PEM files: the server's certificate, followed by the ones that lead to a root, and its
    private key. ``root`` holds the certificates of the authorities that clients' certificates must come from; it is
    used with ``mutual`` only, which demands such a certificate of every client.

    Raises:
        OptionError: a file is missing, unreadable or not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could make the server compute without end by asking for new keys (TLS 1.2).
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(PROTOCOLS)
    _load_identity(context, cert, key)
    if mutual:
        _demand_certificates(context, root)
    return context


def _load_identity(context: ssl.SSLContext, cert: str, key: str) -> None:
    if "CERTIFICATE" not in _pem(_CERT, cert, "the server's certificate"):
        raise OptionError(f"{_CERT}: {cert} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    if "PRIVATE KEY" not in _pem(_KEY, key, "the server's private key"):
        raise OptionError(f"{_KEY}: {key} holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)")
    try:
        context.load_cert_chain(cert, key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"the key in {key} is not that of the first certificate in {cert}; give the key it was made with"
            raise OptionError(f"{_KEY}: {text}") from error
        raise OptionError(f"{_CERT} and {_KEY}: {cert} and {key} cannot be used ({error.reason or error})") from error


def _no_password() -> str:
    raise OptionError(f"{_KEY}: the key is encrypted; give one without a password, readable by this server alone")


def _demand_certificates(context: ssl.SSLContext, root: str) -> None:
    if "CERTIFICATE" not in _pem(_ROOT, root, "the authorities of clients' certificates"):
        raise OptionError(f"{_ROOT}: {root} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    try:
        context.load_verify_locations(root)
    except ssl.SSLError as error:
        raise OptionError(f"{_ROOT}: {root} cannot be used ({error.reason or error})") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _pem(option: str, path: str, meaning: str) -> str:
    """The text of a PEM file."""
    if not path:
        raise OptionError(f"{option} is missing: name the PEM file of {meaning}")
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise OptionError(f"{option}: cannot read {path}: {error.strerror or error}") from error
