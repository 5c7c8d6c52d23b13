"""The server's log: the reference's two line formats over the standard ``logging`` module, JSON, and one for terminals.

Source: ``logging.cc`` of the reference. ``default`` begins a line with ``I0131 23:59:59.123456 <pid> <file>:<line>] ``,
``ISO8601`` with ``2026-01-31T23:59:59Z I <pid> <file>:<line>] ``, both in UTC; the message follows as a JSON string
unless the environment variable TRITON_SERVER_ESCAPE_LOG_MESSAGES is exactly ``0``.

Modules log with ``logging.getLogger("naiad...")``. Warnings of Python, uncaught exceptions of threads and the logs of
libraries end here too while a ``ServerLog`` is installed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TextIO

from naiad.errors import OptionError
from naiad.options import ServerOptions
from naiad.request import request_label
from naiad.telemetry.logs.json_lines import MODEL, REQUEST_ID, format_as_json
from naiad.telemetry.logs.log_file import LogFile
from naiad.telemetry.logs.moments import split_time
from naiad.telemetry.logs.recent_lines import RecentLines
from naiad.telemetry.logs.sink import LogSink, plain_notice
from naiad.telemetry.logs.terminal import format_for_terminal, is_terminal, wants_colours

LOGGER = logging.getLogger("naiad")
FORMATS = ("default", "ISO8601", "json")
BATCHES: Final = 2
"""The verbose level from which on batches are logged."""
ESCAPE_VARIABLE = "TRITON_SERVER_ESCAPE_LOG_MESSAGES"

_TABLE = "naiad_table"
_FLUSH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of the log that the protocol has. ``log_file`` "" means standard output and standard error."""

    log_file: str = ""
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0
    log_format: str = "default"

    @classmethod
    def from_options(cls, options: ServerOptions) -> LogSettings:
        """The settings that a server starts with."""
        return cls(
            log_file=options.log_file,
            log_info=options.log_info,
            log_warning=options.log_warning,
            log_error=options.log_error,
            log_verbose_level=options.log_verbose,
            log_format=options.log_format,
        )

    def takes(self, level: int) -> bool:
        """Whether a record of this ``logging`` level is wanted."""
        if level >= logging.ERROR:
            return self.log_error
        if level >= logging.WARNING:
            return self.log_warning
        if level >= logging.INFO:
            return self.log_info
        return level >= verbose_level(self.log_verbose_level)

    @property
    def lowest_level(self) -> int:
        """The ``logging`` level below which nothing is wanted, so that such calls cost nothing."""
        if self.log_verbose_level > 0:
            return verbose_level(self.log_verbose_level)
        switches = ((logging.INFO, self.log_info), (logging.WARNING, self.log_warning), (logging.ERROR, self.log_error))
        return next((level for level, wanted in switches if wanted), logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Rotation:
    """When the log file is renamed, and how many renamed files stay; see ``LogFile``.

    Of several processes with one log file a single one renames it, and the others have ``follows``.
    """

    max_bytes: int = 0
    backups: int = 5
    follows: bool = False

    @classmethod
    def from_options(cls, options: ServerOptions) -> Rotation:
        """The rotation that the options ask for."""
        return cls(options.log_file_max_bytes, options.log_file_backups)


class ServerLog(logging.Handler):
    """The log of the process, as a context manager: on exit it restores the handlers that it replaced.

    Attributes:
        settings: the current settings.
        recent: the last lines.
        when_changed: called with the new settings after every change.
    """

    def __init__(
        self,
        settings: LogSettings,
        environ: Mapping[str, str] = os.environ,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        *,
        for_terminals: bool = False,
        rotation: Rotation | None = None,
    ) -> None:
        """
        Args:
            settings: the first settings.
            environ: the environment variables.
            stdout: the stream of informational messages without a log file.
            stderr: the stream of warnings and errors without a log file.
            for_terminals: a stream that is a terminal gets lines for people while the format is ``default``.
            rotation: of the log file; None for none.

        Raises:
            OptionError: the log file cannot be opened.
        """
        super().__init__()
        self._escape = environ.get(ESCAPE_VARIABLE) != "0"
        self._colours = wants_colours(environ)
        streams = (stdout or sys.stdout, stderr or sys.stderr)
        self._stdout, self._stderr = sinks = LogSink(streams[0], self._dropped), LogSink(streams[1], self._dropped)
        self._terminals = {sink for sink, s in zip(sinks, streams, strict=True) if for_terminals and is_terminal(s)}
        self._rotation = rotation or Rotation()
        self._file: LogFile | None = None
        self._restore: list[Callable[[], None]] = []
        self.when_changed: list[Callable[[LogSettings], None]] = []
        self.recent = RecentLines()
        self.settings = LogSettings()
        self.change(settings)

    def change(self, settings: LogSettings) -> None:
        """Log by ``settings`` from now on.

        Raises:
            OptionError: an unknown format, or a log file that cannot be opened; the old settings then stay.
        """
        if settings.log_format not in FORMATS:
            raise OptionError(f"invalid argument for log_format, got: {settings.log_format}")
        # First what may fail: the old settings then stay.
        if settings.log_file != self.settings.log_file:
            self._open(settings.log_file)
        self.settings = settings
        # Only while installed: ``__exit__`` restores the level that ``__enter__`` found.
        if self._restore:
            LOGGER.setLevel(settings.lowest_level)
        for tell in self.when_changed:
            tell(settings)

    def __enter__(self) -> ServerLog:
        root = logging.getLogger()
        level = LOGGER.level
        root.addHandler(self)
        LOGGER.setLevel(self.settings.lowest_level)
        self._restore = [lambda: root.removeHandler(self), lambda: LOGGER.setLevel(level), _install_hooks()]
        return self

    def __exit__(self, *_: object) -> None:
        for restore in reversed(self._restore):
            restore()
        self._restore = []
        self.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, if the settings take it."""
        settings = self.settings
        if not settings.takes(record.levelno):
            return
        sink = self._file or (self._stderr if record.levelno >= logging.WARNING else self._stdout)
        try:
            line = self._line(record, sink)
        except Exception as error:  # whatever an argument raises when it is made a text
            line = self._plain_line(
                f"cannot format the log message {record.msg!r} of {record.pathname}:{record.lineno}: {error}"
            )
        sink.write(line)
        self.recent.append(record.levelno, line)

    def _line(self, record: logging.LogRecord, sink: LogSink | LogFile) -> str:
        log_format = self.settings.log_format
        if log_format != "default" or sink not in self._terminals:
            return format_record(record, log_format, self._escape)
        return format_for_terminal(record, _message(record), _table_below(record), coloured=self._colours)

    def _dropped(self, count: int) -> str:
        return self._plain_line(plain_notice(count).rstrip())

    def _plain_line(self, text: str) -> str:
        """A line of the log about itself: the text alone, except in JSON, which is to be valid in every line."""
        if self.settings.log_format != "json":
            return text + "\n"
        record = LOGGER.makeRecord(LOGGER.name, logging.WARNING, __file__, 0, "%s", (text,), None)
        return format_record(record, "json", self._escape)

    def reopen_file(self) -> None:
        """Open the log file again: another program may have renamed it."""
        with self._locked():
            if self._file is None:
                return
            try:
                self._file.reopen()
            except OSError as error:
                problem = error
            else:
                return
        LOGGER.error("the log file cannot be opened again, lines go to the old one: %s", problem)

    def close(self) -> None:
        """Write the buffered lines, for a moment at most, and close the log file."""
        for sink in (self._stdout, self._stderr, self._file.sink if self._file is not None else None):
            if sink is not None:
                sink.flush(_FLUSH_SECONDS)
        self._open("")
        super().close()

    def _open(self, path: str) -> None:
        rotation = self._rotation
        try:
            file = None
            if path:
                parts = rotation.max_bytes, rotation.backups, self._dropped
                file = LogFile(path, *parts, follows=rotation.follows)
        except OSError as error:
            raise OptionError(
                f'Bad option: "--log-file". cannot append to {path}: {error.strerror}. Name a file in a folder that '
                "exists and may be written."
            ) from error
        with self._locked():
            if self._file is not None:
                self._file.close()
            self._file = file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Another thread may be about to write a line: it must not find the file closed.
        self.acquire()
        try:
            yield
        finally:
            self.release()


def verbose_level(level: int) -> int:
    """The ``logging`` level of verbose messages of ``level`` (1 is DEBUG, higher ones lie below); 0 lies above all."""
    return max(1, logging.DEBUG + 1 - level)


def verbose(logger: logging.Logger, level: int, message: str, *args: object) -> None:
    """Log ``message`` when ``--log-verbose`` is at least ``level`` (from 1)."""
    logger.log(verbose_level(level), message, *args, stacklevel=2)


def request_log(
    logger: logging.Logger,
    level: int,
    request_id: str,
    message: str,
    *args: object,
    model: str = "",
    exc_info: bool = False,
) -> None:
    """Log ``message`` about one request: the line begins with ``[request id: <id>] ``.

    Args:
        model: the request's, where it is known; JSON has it in a field of its own, as it has the id.
        exc_info: the exception that is being handled belongs to it.
    """
    if logger.isEnabledFor(level):
        # The label is an argument: a "%" in a client's id must not be read as a placeholder.
        labelled = "%s" + message
        extra = {REQUEST_ID: request_id, MODEL: model}
        logger.log(level, labelled, request_label(request_id), *args, stacklevel=2, exc_info=exc_info, extra=extra)


def table_log(logger: logging.Logger, level: int, heading: str, table: str) -> None:
    """Log ``heading`` as a line and ``table`` (several lines, from ``tables.format_table``) below it as it is."""
    # Beside the message, which the reference's formats write as one JSON string.
    logger.log(level, "%s", heading, stacklevel=2, extra={_TABLE: table})


def format_record(record: logging.LogRecord, log_format: str, escape: bool) -> str:
    """One record as the text of its line, with the newline."""
    if log_format == "json":
        return format_as_json(record, record.getMessage(), _exception(record), _table_below(record))
    message = _message(record)
    if escape:
        message = json.dumps(message, ensure_ascii=False)
    return f"{_prefix(record, log_format)}{message}\n" + _table_below(record)


def _message(record: logging.LogRecord) -> str:
    """The record's text, with the traceback of its exception if it has one."""
    message, exception = record.getMessage(), _exception(record)
    return f"{message}\n{exception}" if exception else message


def _exception(record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[0] is not None:
        return logging.Formatter().formatException(record.exc_info)
    return ""


def _table_below(record: logging.LogRecord) -> str:
    table: str | None = getattr(record, _TABLE, None)
    return table or ""


def _prefix(record: logging.LogRecord, log_format: str) -> str:
    letter = "E" if record.levelno >= logging.ERROR else "W" if record.levelno >= logging.WARNING else "I"
    moment, microseconds = split_time(record.created)
    place = f"{record.process} {record.filename}:{record.lineno}] "
    if log_format == "ISO8601":
        return time.strftime("%Y-%m-%dT%H:%M:%SZ ", moment) + f"{letter} {place}"
    return letter + time.strftime("%m%d %H:%M:%S.", moment) + f"{microseconds:06d} {place}"


def _install_hooks() -> Callable[[], None]:
    """Send Python's warnings and uncaught exceptions to the log; returns the function that undoes it."""
    show, thread, unraisable = warnings.showwarning, threading.excepthook, sys.unraisablehook

    def undo() -> None:
        warnings.showwarning, threading.excepthook, sys.unraisablehook = show, thread, unraisable

    warnings.showwarning, threading.excepthook, sys.unraisablehook = _log_warning, _log_thread, _log_unraisable
    return undo


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    # Made by hand: the line has the place of the warning, not that of this function.
    record = LOGGER.makeRecord(
        LOGGER.name, logging.WARNING, filename, lineno, "%s: %s", (category.__name__, message), None
    )
    LOGGER.handle(record)


def _log_thread(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread else "unknown"
    error = args.exc_value or args.exc_type()
    LOGGER.error("uncaught exception in thread %s", name, exc_info=(args.exc_type, error, args.exc_traceback))


def _log_unraisable(args: Any) -> None:
    heading = args.err_msg or "exception ignored in"
    LOGGER.error("%s: %r", heading, args.object, exc_info=(args.exc_type, args.exc_value, args.exc_traceback))
