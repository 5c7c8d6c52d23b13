"""The options of TLS as a context of connections."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

from naiad.perf.settings import TargetSettings
from naiad.perf.target.der_files import pem_files
from naiad.perf.target.protocol import TargetError


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
