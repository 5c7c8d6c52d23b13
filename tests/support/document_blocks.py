"""The fenced blocks of a page of documentation, and a terminal that runs them as a reader would."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY_S = 100.0
# curl tells a refusal, which ends a block.
BASH = ("bash", "-euo", "pipefail", "-c")
CURL = 'curl() { command curl --silent --show-error --fail-with-body "$@"; }\n'
SERVES = re.compile(r"^(scripts/demo|naiad serve|python (?:app/\w+\.py|-c))\b", re.MULTILINE)
PORTS = (8000, 8001, 8002, 8080, 9000)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language ("" for none), its text, and where its first line is, such as ``README.md:7``."""

    language: str
    text: str
    place: str

    @property
    def serves(self) -> bool:
        """Its last command is a server, which serves until the next such block."""
        return self.language == "bash" and SERVES.search(self.text) is not None


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    fences = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(f[1], f[2], f"{page.name}:{text.count(chr(10), 0, f.start()) + 2}") for f in fences]


class Terminal:
    """Runs blocks in one folder. The ports of the examples become free ports of this machine.

    A server of ``naiad serve`` is the process ``$SERVER``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._server: subprocess.Popen[str] | None = None
        self._log = folder.parent / "server.log"
        own = {"NAIAD_VENV": sys.prefix, "NAIAD_DEMO_MODELS": str(folder / "demo-models")}
        own |= {f"NAIAD_{name}_ADDRESS": "127.0.0.1" for name in ("HTTP", "GRPC", "SAGEMAKER", "VERTEX_AI", "OPENAI")}
        names = [f"NAIAD_{name}_PORT" for name in ("HTTP", "GRPC", "METRICS", "SAGEMAKER", "OPENAI")]
        own |= {name: str(port) for name, port in zip(names, self._ports.values(), strict=True)}
        # The examples of the platforms have one port, one at a time.
        own["NAIAD_VERTEX_AI_PORT"] = own["NAIAD_SAGEMAKER_PORT"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, **own, "PATH": path}
        (folder / "scripts").symlink_to(ROOT / "scripts")

    def run(self, block: Block) -> str:
        """The output of a block that ends; a block that serves is ready when this returns."""
        text = block.text
        for shown, port in self._ports.items():
            text = text.replace(f"localhost:{shown}", f"localhost:{port}")
        if block.serves:
            self.stop()
            self._start(text)
            return ""
        command = [sys.executable, "-c", text] if block.language == "python" else [*BASH, CURL + text]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{block.place}:\n{done.stdout}{done.stderr}\n{self.log()}"
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
            assert server.wait(timeout=90) == 0, self.log()
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            raise

    def _start(self, text: str) -> None:
        with self._log.open("w") as log:
            self._server = subprocess.Popen(
                [*BASH, re.sub(r"^(naiad serve|python (?:app/|-c))", r"exec \1", text, flags=re.MULTILINE)],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._environment["SERVER"] = str(self._server.pid)
        # The demo asks its own questions first, then says that the rest is up to the reader.
        said = "Serving until" if "scripts/demo" in text else " is ready: "
        deadline = time.monotonic() + READY_S
        while said not in self.log():
            assert self._server.poll() is None, f"the server ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"the server is not ready after {READY_S} s:\n{self.log()}"
            time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """So many ports of this machine that nobody listens at."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
