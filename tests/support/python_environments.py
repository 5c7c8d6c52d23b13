"""Small environments for tests: with the numpy of the tests, without any, packed; wheels that need no network."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np

NUMPY_AT = Path(np.__file__).parent.parent


def make_venv(folder: Path, numpy: bool = True) -> Path:
    """An environment for this interpreter; ``numpy``: with the numpy that the tests use."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    if numpy:
        (packages / "tests.pth").write_text(f"{NUMPY_AT}\n")
    return folder


def pack(folder: Path, archive: Path, inside: str = ".") -> Path:
    """``folder`` as an archive, its content under the name ``inside``."""
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, inside)
    return archive


def make_wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A wheel with one module, whose ``__version__`` is ``version``."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            packed.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def write_script(path: Path, text: str, shell: str = "/bin/sh") -> Path:
    """A file that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shell}\n{text}\n")
    path.chmod(0o755)
    return path


def claiming(path: Path, version: str, numpy: bool = True) -> Path:
    """A program that answers as the Python ``version`` does when it is asked what it is."""
    numbers = version.replace(".", ", ")
    answer = f'naiad-python:[[{numbers}], "{path}", {"true" if numpy else "false"}]'
    return write_script(path, f"echo '{answer}'")
