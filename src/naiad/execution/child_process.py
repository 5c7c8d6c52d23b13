"""A child process from its start to its end: started without forking the server's threads, spoken to over a pair of
sockets, and ended by whoever started it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
from array import array
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

import orjson

from naiad import child
from naiad.backends.base import ChildSpec
from naiad.child.protocol import ANSWER, ASK, CONFIG, FAILED, FRAME, INIT, LOG, READY
from naiad.errors import ModelLoadError
from naiad.execution.child_codec import frame

logger = logging.getLogger("naiad")

_LEVELS: Final = {"ERROR": logging.ERROR, "WARNING": logging.WARNING, "VERBOSE": logging.DEBUG}
MAIN: Final = Path(child.__file__).with_name("main.py")
KEPT_LINES: Final = 20
_DYING_S: Final = 0.05
MAX_DESCRIPTORS: Final = 64
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)


class ChildProcess:
    """One running child. ``connection`` and ``output`` (what it prints) belong to whoever reads them.

    Raises:
        ModelLoadError: it could not be started.
    """

    def __init__(self, name: str, spec: ChildSpec) -> None:
        self.name = name
        self.spec = spec
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.connection, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        try:
            self.process = subprocess.Popen(
                [str(spec.python), "-u", str(MAIN), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                env=dict(spec.env),
            )
        except OSError as error:
            self.connection.close()
            os.close(read_end)
            raise ModelLoadError(f"instance '{name}': {spec.python} cannot be started: {error}") from error
        finally:
            theirs.close()
            os.close(write_end)
        self.output = read_end
        os.set_blocking(read_end, False)
        self._rest = b""

    def begin(self) -> tuple[int, Any]:
        """Give the child its orders and wait for its answer: the kind (``READY`` or ``CONFIG``) and its content.

        Blocks; called in a loading thread.

        Raises:
            ModelLoadError: it failed, ended or took too long; it is gone then.
        """
        deadline = monotonic() + self.spec.start_s
        try:
            self.connection.settimeout(self.spec.start_s)
            self.connection.sendall(frame(INIT, 0, orjson.dumps(self.spec.orders)))
            while True:
                kind, number, payload = self._receive(deadline)
                content = orjson.loads(payload) if payload else {}
                if kind in (READY, CONFIG):
                    return kind, content
                if kind == FAILED:
                    raise ModelLoadError(_failure(content))
                if kind == LOG:
                    log_line(self.name, content)
                elif kind == ASK:
                    self.connection.sendall(not_served(number, content))
        except TimeoutError:
            self.end()
            raise ModelLoadError(
                f"instance '{self.name}' was not ready within {self.spec.start_s:g} s "
                "(--backend-config=python,stub-timeout-seconds=N)"
            ) from None
        except OSError as error:
            raise ModelLoadError(f"instance '{self.name}' ended while it started: {self.obituary()}") from error
        except ModelLoadError:
            self.end()
            raise

    def _receive(self, deadline: float) -> tuple[int, int, bytes]:
        """One frame, read piece by piece, without anything of what comes after it."""
        kind, size, number = FRAME.unpack(self._exactly(FRAME.size, deadline))
        return kind, number, self._exactly(size, deadline)

    def _exactly(self, size: int, deadline: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            self.connection.settimeout(max(0.01, deadline - monotonic()))
            if not (data := self.connection.recv(size - len(found))):
                raise ConnectionError("the child closed its connection")
            found += data
        return bytes(found)

    def read_output(self) -> list[str]:
        """What the child has printed since, in whole lines."""
        try:
            data = os.read(self.output, 1 << 16)
        except (BlockingIOError, OSError):
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        texts = [line.decode(errors="replace") for line in lines[:1000]]
        if len(self._rest) > 1 << 16:
            texts.append(self._rest.decode(errors="replace"))
            self._rest = b""
        self.lines.extend(texts)
        return texts

    def obituary(self) -> str:
        """How the child ended, with the last lines that it printed; ends it if it has not."""
        self.end(_DYING_S)
        while self.read_output():
            pass
        code = self.process.returncode
        how = f"exit code {code}" if code is None or code >= 0 else f"killed by {_signal_name(-code)}"
        last = "\n".join(self.lines)
        return f"{how}; its last output:\n{last}" if last else how

    def end(self, grace_s: float = 0.0) -> None:
        """Make sure that the process has ended; it may take ``grace_s`` to do so by itself."""
        with contextlib.suppress(OSError):
            self.connection.close()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Give back what is left of it; the last call."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


def receive(connection: socket.socket, buffer: memoryview, descriptors: deque[int]) -> int:
    """Read what there is into ``buffer``; descriptors that came along are added. 0: the other side is gone.

    Raises:
        BlockingIOError: there is nothing.
    """
    size, ancillary, _, _ = connection.recvmsg_into([buffer], _ANCILLARY_BYTES)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.extend(array("i", data[: len(data) - len(data) % 4]))
    return size


def send(connection: socket.socket, data: memoryview, descriptor: int) -> int:
    """Send what fits, with a descriptor on the first byte unless it is -1; how many bytes that was.

    Raises:
        BlockingIOError: there is no room.
    """
    if descriptor < 0:
        return connection.send(data)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]).tobytes())]
    return connection.sendmsg([data], rights)


def log_line(instance: str, content: Mapping[str, Any]) -> None:
    """Log what a model says with its ``Logger``."""
    level = _LEVELS.get(str(content.get("level")), logging.INFO)
    logger.log(level, "%s: %s", instance, content.get("message", ""))


def not_served(number: int, content: Mapping[str, Any]) -> bytes:
    """The answer to a question that this server has no answer to."""
    text = f"'{content.get('what', '')}' is not served to models by this version of Naiad"
    return frame(ANSWER, number, orjson.dumps({"error": {"message": text, "code": 12}}))


def _failure(content: Mapping[str, Any]) -> str:
    message, traceback = str(content.get("message", "")), str(content.get("traceback", ""))
    return message if not traceback or traceback in message else f"{message}\n{traceback}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
