"""The options of TLS as a context of connections. Files in the form DER, which Python does not read, become PEM."""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from naiad.perf.settings import TargetSettings
from naiad.perf.target.protocol import TargetError

_CERTIFICATE: Final = "https_client_certificate"
_KEY: Final = "https_private_key"
_SEQUENCE: Final = 0x30
_LABELS: Final = {_SEQUENCE: "PRIVATE KEY", 0x02: "RSA PRIVATE KEY", 0x04: "EC PRIVATE KEY"}
"""What follows the version in a key: an algorithm (PKCS #8), a number (PKCS #1) or bytes (SEC 1)."""


def tls_context(settings: TargetSettings, *, is_wanted: bool) -> ssl.SSLContext | None:
    """The context for connections to the target; None where TLS is not asked for.

    Args:
        is_wanted: whether the url asks for it.

    Raises:
        TargetError: a file cannot be read.
    """
    if not (settings.use_tls or is_wanted):
        return None
    if settings.protocol == "grpc":
        context = _context(_first(settings.tls, "grpc_root_certifications_file"))
        _add_identity(context, settings.tls, "grpc_certificate_chain_file", "grpc_private_key_file")
        context.set_alpn_protocols(["h2"])
        return context
    context = _context(_first(settings.tls, "https_ca_certificates_file"))
    if settings.tls.get("https_verify_host", "2") == "0":
        context.check_hostname = False
    if settings.tls.get("https_verify_peer", "1") == "0":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with pem_files(settings.tls) as files:
        _add_identity(context, files, "https_client_certificate_file", "https_private_key_file")
    return context


def _first(options: Mapping[str, str], *names: str) -> str | None:
    return next((options[name] for name in names if options.get(name)), None)


def _context(roots: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=roots)
    except (OSError, ssl.SSLError) as error:
        raise TargetError(f"cannot read the certificates in '{roots}': {error}") from None


def _add_identity(context: ssl.SSLContext, options: Mapping[str, str], *names: str) -> None:
    chain, key = _files(options, names)
    if not chain:
        return
    try:
        context.load_cert_chain(chain, key or None)
    except (OSError, ssl.SSLError) as error:
        raise TargetError(f"cannot use the certificate '{chain}' with the key '{key}': {error}") from None


def _files(options: Mapping[str, str], names: Sequence[str]) -> tuple[str, str]:
    chain, key = (options.get(name, "") for name in names)
    return chain, key


@contextmanager
def pem_files(options: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The options of TLS, whose files in the form DER are replaced by files in the form PEM while the block runs.

    Raises:
        TargetError: a file is not in the form DER.
    """
    wanted = [
        name for name in (_CERTIFICATE, _KEY) if options.get(f"{name}_type") == "DER" and f"{name}_file" in options
    ]
    if not wanted:
        yield options
        return
    # Nobody else can read the folder.
    with tempfile.TemporaryDirectory() as folder:
        found = dict(options)
        for name in wanted:
            file = Path(folder) / name
            file.write_text(_pem(Path(options[f"{name}_file"]), is_key=name == _KEY))
            found[f"{name}_file"] = str(file)
        yield found


def _pem(file: Path, *, is_key: bool) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise TargetError(f"cannot read '{file}': {error.strerror}") from None
    if not data or data[0] != _SEQUENCE:
        raise TargetError(
            f"'{file}' is not in the form DER: it begins with {data[:11]!r}; leave the option for its type out"
        )
    if not is_key:
        return ssl.DER_cert_to_PEM_cert(data)
    label = _LABELS.get(_tag_behind_version(data))
    if label is None:
        raise TargetError(f"'{file}' is no private key of PKCS #8, PKCS #1 or SEC 1 in the form DER")
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"


def _tag_behind_version(data: bytes) -> int:
    """The tag of the second element of the outer sequence; -1 if there is none."""
    # A length below 128 is one byte; otherwise the byte says how many follow.
    begin = 2 + (data[1] & 0x7F if data[1] & 0x80 else 0) if len(data) > 1 else 0
    version = data[begin : begin + 3]
    return data[begin + 3] if version[:2] == b"\x02\x01" and len(data) > begin + 3 else -1
