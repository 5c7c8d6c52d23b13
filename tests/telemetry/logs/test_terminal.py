"""The log on a terminal, for people, and beside it as ever for whoever reads a pipe."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from naiad.telemetry.logs.server_log import LogSettings, ServerLog, table_log
from naiad.telemetry.logs.settings import updated

LOGGER = logging.getLogger("naiad.test")
PLAIN = {"TERM": "dumb"}
MODEL = """\
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no weights")
"""


class Terminal:
    """A pseudo-terminal: ``stream`` is the program's side, ``shown`` what a person sees."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.stream = os.fdopen(theirs, "w")

    def shown(self) -> str:
        """All that was written; closes the terminal."""
        self.stream.close()
        found = b""
        try:
            while data := os.read(self._ours, 1 << 16):
                found += data
        except OSError:  # Linux says so at the end
            pass
        os.close(self._ours)
        return found.decode().replace("\r\n", "\n")


@contextmanager
def logging_to(terminal: Terminal, for_terminals: bool = True, **environ: str) -> Iterator[ServerLog]:
    environ = environ or PLAIN
    with ServerLog(LogSettings(), environ, io.StringIO(), terminal.stream, for_terminals=for_terminals) as log:
        yield log


def test_lines_are_lines() -> None:
    terminal = Terminal()
    with logging_to(terminal):
        LOGGER.error("m_0: %s", 'Traceback (most recent call last):\n  File "model.py", line 3\nValueError: no\n')
        try:
            raise KeyError("gone")
        except KeyError:
            LOGGER.exception("it failed")
    shown = terminal.shown()
    assert re.match(
        r"\d\d:\d\d:\d\d error   m_0: Traceback \(most recent call last\):\n"
        r'      File "model.py", line 3\n    ValueError: no\n\d\d:\d\d:\d\d error   it failed\n    Traceback ',
        shown,
    )
    assert shown.endswith("\n    KeyError: 'gone'\n")


def test_levels_have_colours() -> None:
    terminal = Terminal()
    with logging_to(terminal, TERM="xterm"):
        LOGGER.error("bad")
        LOGGER.warning("odd")
    assert "\x1b[1;31merror  \x1b[0m bad\n" in (shown := terminal.shown())
    assert "\x1b[33mwarning\x1b[0m odd\n" in shown


@pytest.mark.parametrize("environ", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(environ: dict[str, str]) -> None:
    terminal = Terminal()
    with logging_to(terminal, **environ):
        LOGGER.warning("odd")
    assert "\x1b" not in terminal.shown()


def test_what_a_client_sent_does_not_steer_the_terminal() -> None:
    terminal = Terminal()
    with logging_to(terminal):
        LOGGER.warning("model '%s' is unknown", "\x1b]0;owned\x07\r\n12:00:00 error   forged\x9b2J\u202e")
        table_log(LOGGER, logging.WARNING, "models", "| \x1b[2J |\n")
    shown = terminal.shown()
    assert r"model '\x1b]0;owned\x07\r" + "\n    12:00:00 error   forged" + r"\x9b2J\u202e' is unknown" in shown
    assert shown.endswith(" models\n| \\x1b[2J |\n")


def test_a_format_that_was_asked_for_holds_on_a_terminal() -> None:
    terminal = Terminal()
    with logging_to(terminal, for_terminals=False):
        LOGGER.warning("two\nlines")
    assert re.fullmatch(r'W\d{4} [\d:.]+ \d+ test_terminal.py:\d+\] "two\\nlines"\n', terminal.shown())


def test_a_format_that_is_asked_for_later_holds_from_then_on() -> None:
    terminal = Terminal()
    with logging_to(terminal) as log:
        log.change(updated(log.settings, {"log_format": "ISO8601"}))
        LOGGER.warning("two\nlines")
    assert re.fullmatch(r'\d{4}-\S+Z W \d+ test_terminal.py:\d+\] "two\\nlines"\n', terminal.shown())


def test_a_file_and_a_pipe_get_the_lines_of_the_reference(tmp_path: Path) -> None:
    terminal, out = Terminal(), io.StringIO()
    with ServerLog(LogSettings(), PLAIN, out, terminal.stream, for_terminals=True) as log:
        LOGGER.info("to the pipe")
        log.change(LogSettings(log_file=str(tmp_path / "log")))
        LOGGER.warning("to the file")
    assert re.fullmatch(r'I\d{4} .*\] "to the pipe"\n', out.getvalue())
    assert re.fullmatch(r'W\d{4} .*\] "to the file"\n', (tmp_path / "log").read_text())
    assert terminal.shown() == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "line"),
    [
        ([], r"error   code_0: Traceback \(.*\n      File "),
        (["--log-format=default"], r'E\d{4} .*\] ".*Traceback \(.*\\n'),
    ],
    ids=["people", "asked"],
)
def test_a_server_on_a_terminal(tmp_path: Path, option: list[str], line: str) -> None:
    """The traceback of a model's ``initialize``, as the person sees it who has just started the server."""
    (tmp_path / "code" / "1").mkdir(parents=True)
    (tmp_path / "code" / "config.pbtxt").write_text('backend: "python"\n')
    (tmp_path / "code" / "1" / "model.py").write_text(MODEL)
    terminal = Terminal()
    ports = [f"--{name}-port=0" for name in ("http", "grpc", "metrics")]
    addresses = [f"--{name}-address=127.0.0.1" for name in ("http", "grpc")]
    done = subprocess.run(
        [sys.executable, "-m", "naiad", "serve", str(tmp_path), *ports, *addresses, *option],
        stdout=terminal.stream,
        stderr=terminal.stream,
        env={**os.environ, **PLAIN},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(line, shown := terminal.shown()), shown
