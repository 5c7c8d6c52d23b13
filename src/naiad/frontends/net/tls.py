"""The TLS settings of a listener, read from PEM files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOLS: Final = ("h2",)
"""The protocols that are negotiated by default (ALPN, RFC 9113 section 3.2). A client that offers none of them still
completes the handshake; its connection is refused as soon as it does not speak HTTP/2."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of the options that name the files; error texts contain them."""

    cert: str
    key: str
    root: str


def ssl_context(
    cert: str,
    key: str,
    root: str = "",
    mutual: bool = False,
    *,
    port: str = "grpc",
    protocols: Sequence[str] = PROTOCOLS,
) -> ssl.SSLContext:
    """The settings for a server: TLS 1.2 and later, and ``protocols`` (HTTP/2 only, as gRPC needs it).

    ``cert`` and ``key`` are PEM files: the server's certificate, followed by the ones that lead to a root, and its
    private key. ``root`` holds the certificates of the authorities that must have signed a client's certificate; it is
    used with ``mutual`` only, which demands such a certificate of every client. ``port`` is the prefix of the options'
    names.

    Raises:
        OptionError: a file is missing, unreadable or not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # In TLS 1.2 a client could keep the server computing by requesting new keys again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(protocols)
    names = _Names(f"--{port}-server-cert", f"--{port}-server-key", f"--{port}-root-cert")
    _load_identity(context, cert, key, names)
    if mutual:
        _demand_certificates(context, root, names.root)
    return context


def _load_identity(context: ssl.SSLContext, cert: str, key: str, names: _Names) -> None:
    # Checked before OpenSSL reads the files: its errors name neither the option nor the file.
    if "CERTIFICATE" not in _pem(names.cert, cert, "the server's certificate"):
        raise OptionError(f"{names.cert}: {cert} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    if "PRIVATE KEY" not in _pem(names.key, key, "the server's private key"):
        raise OptionError(f"{names.key}: {key} holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)")
    try:
        # With a callback OpenSSL does not ask for the password of an encrypted key on the terminal.
        context.load_cert_chain(cert, key, partial(_no_password, names.key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"the key in {key} is not that of the first certificate in {cert}; give the key it was made with"
            raise OptionError(f"{names.key}: {text}") from error
        raise OptionError(
            f"{names.cert} and {names.key}: {cert} and {key} cannot be used ({error.reason or error})"
        ) from error


def _no_password(option: str) -> str:
    raise OptionError(f"{option}: the key is encrypted; give one without a password, readable by this server alone")


def _demand_certificates(context: ssl.SSLContext, root: str, option: str) -> None:
    if "CERTIFICATE" not in _pem(option, root, "the authorities of clients' certificates"):
        raise OptionError(f"{option}: {root} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    try:
        context.load_verify_locations(root)
    except ssl.SSLError as error:
        raise OptionError(f"{option}: {root} cannot be used ({error.reason or error})") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _pem(option: str, path: str, meaning: str) -> str:
    """The text of a PEM file."""
    if not path:
        raise OptionError(f"{option} is missing: name the PEM file of {meaning}")
    try:
        # A binary file (DER) must be refused for what it lacks, so decoding it must not fail.
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise OptionError(f"{option}: cannot read {path}: {error.strerror or error}") from error
