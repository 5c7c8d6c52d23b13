"""Every block of the README is run, in order, in an empty folder, against the servers that the README itself starts.

A ``bash`` block with ``scripts/demo`` or ``naiad serve`` serves until the next such block. The blocks between are what
the reader types into a second terminal. A ``text`` or ``json`` block is the output of the block before it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
READY_S = 100.0
BASH = ("bash", "-euo", "pipefail", "-c")
SERVES = re.compile(r"^(scripts/demo|naiad serve)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text and the line of its first line, from 1."""

    language: str
    text: str
    line: int


def blocks() -> list[Block]:
    fences = re.finditer(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [Block(f[1], f[2], README.count("\n", 0, f.start()) + 2) for f in fences]


class Terminal:
    """Runs blocks in one folder. ``localhost:8000`` becomes a free port of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._server: subprocess.Popen[str] | None = None
        self._log = folder.parent / "server.log"
        places = {"NAIAD_VENV": sys.prefix, "NAIAD_DEMO_MODELS": str(folder / "demo-models")}
        ports = {"NAIAD_HTTP_PORT": str(self._port), "NAIAD_METRICS_PORT": "0", "NAIAD_GRPC_PORT": "0"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, **places, **ports, "PATH": path}
        (folder / "scripts").symlink_to(ROOT / "scripts")

    def run(self, block: Block) -> str:
        """The output of a block that ends; a block that serves is ready when this returns."""
        text = block.text.replace("localhost:8000", f"localhost:{self._port}")
        if SERVES.search(text):
            self.stop()
            self._start(text)
            return ""
        command = [sys.executable, "-c", text] if block.language == "python" else [*BASH, text]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"README line {block.line}:\n{done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout

    def log(self) -> str:
        """What the server of the moment has printed."""
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    def stop(self) -> None:
        """Press Ctrl-C and wait for the end."""
        if self._server is None:
            return
        server, self._server = self._server, None
        os.killpg(server.pid, signal.SIGINT)
        try:
            assert server.wait(timeout=45) == 0, self.log()
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            raise

    def _start(self, text: str) -> None:
        with self._log.open("w") as log:
            self._server = subprocess.Popen(
                [*BASH, text],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        # The demo asks its own questions first, then says that the rest is up to the reader.
        self._wait_until_ready("Serving until" if "scripts/demo" in text else "", time.monotonic() + READY_S)

    def _wait_until_ready(self, said: str, deadline: float) -> None:
        assert self._server is not None
        while not (said in self.log() and is_ready(self._port)):
            assert self._server.poll() is None, f"the server ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"the server is not ready after {READY_S} s:\n{self.log()}"
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/v2/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "clone"
    folder.mkdir()
    terminal = Terminal(folder)
    yield terminal
    terminal.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's commands need curl")
def test_blocks_do_what_they_say(terminal: Terminal) -> None:
    output = ""
    for block in blocks():
        if block.language == "text":
            assert output.strip() == block.text.strip(), f"README line {block.line}"
        elif block.language == "json":
            assert json.loads(output) == json.loads(block.text), f"README line {block.line}"
        elif not is_installation(block):
            output = terminal.run(block)


def is_installation(block: Block) -> bool:
    """Installing is left out here: it would change the environment that runs the tests."""
    return block.language == "bash" and block.text.startswith("pip install")


def test_installations_name_real_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {extra for names in re.findall(r"(?:naiad|\.)\[([\w,]+)\]", README) for extra in names.split(",")}
    assert named
    assert named <= set(extras)


def test_a_model_is_served_and_answers_within_the_first_lines() -> None:
    served = next(b for b in blocks() if SERVES.search(b.text))
    answer = next(b for b in blocks() if b.language in ("text", "json"))
    assert served.line <= 25
    assert answer.line <= 30
    assert len(README.splitlines()) < 120


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
