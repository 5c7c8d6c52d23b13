"""Real certificates for tests, made with the ``openssl`` program."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

OPENSSL_S = 30


@dataclass(frozen=True, slots=True)
class Identity:
    """The PEM files of one certificate and its key."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A self-signed authority that vouches for others."""

    folder: Path
    own: Identity

    @property
    def root(self) -> Path:
        """The certificate that peers have to trust."""
        return self.own.cert

    def issue(self, name: str, places: str = "DNS:localhost,IP:127.0.0.1") -> Identity:
        """A certificate for ``localhost`` and 127.0.0.1, or other ``places``, good for servers and for clients."""
        key, request, cert = (self.folder / f"{name}.{suffix}" for suffix in ("key", "csr", "pem"))
        _new_key(key)
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        names = self.folder / f"{name}.ext"
        names.write_text(f"subjectAltName={places}\n")
        signer = ("-CA", self.own.cert, "-CAkey", self.own.key, "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *signer, "-days", "2", "-extfile", names, "-out", cert)
        return Identity(cert, key)


def as_der(identity: Identity, key_form: str) -> Identity:
    """The same in the form DER, the key as ``pkcs8`` or as ``sec1``."""
    found = Identity(identity.cert.with_suffix(".cert.der"), identity.key.with_suffix(f".{key_form}.der"))
    _openssl("x509", "-in", identity.cert, "-outform", "DER", "-out", found.cert)
    form = ("pkcs8", "-topk8", "-nocrypt") if key_form == "pkcs8" else ("ec",)
    _openssl(*form, "-in", identity.key, "-outform", "DER", "-out", found.key)
    return found


def new_authority(folder: Path, name: str) -> Authority:
    """A new authority with its files in ``folder``; skips the test where ``openssl`` is missing."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    own = Identity(folder / f"{name}.pem", folder / f"{name}.key")
    _new_key(own.key)
    _openssl("req", "-x509", "-new", "-key", own.key, "-subj", f"/CN={name}", "-days", "2", "-out", own.cert)
    return Authority(folder, own)


def _new_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _openssl(*arguments: object) -> None:
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=OPENSSL_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
