"""The log: its line formats, where lines go, what is left out, and that a stream in trouble troubles nobody."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from naiad.errors import OptionError
from naiad.options import ServerOptions
from naiad.telemetry.logs.server_log import LogSettings, ServerLog, format_record, request_log, table_log, verbose
from naiad.telemetry.logs.sink import LogSink
from naiad.telemetry.logs.tables import format_table

LOGGER = logging.getLogger("naiad.test")
HERE = Path(__file__).name

DEFAULT_LINE = re.compile(r"([EWI])\d{4} \d\d:\d\d:\d\d\.\d{6} (\d+) ([\w.]+):(\d+)\] (.*)\n")
ISO8601_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ([EWI]) (\d+) ([\w.]+):(\d+)\] (.*)\n")


@dataclass(frozen=True, slots=True)
class Captured:
    """An installed log and the streams it writes to."""

    log: ServerLog
    out: io.StringIO
    err: io.StringIO


def installed(settings: LogSettings, **environ: str) -> Captured:
    out, err = io.StringIO(), io.StringIO()
    return Captured(ServerLog(settings, environ, out, err), out, err)


@pytest.fixture
def captured() -> Iterator[Captured]:
    got = installed(LogSettings())
    with got.log:
        yield got


def record(message: str, created: float, level: int = logging.INFO) -> logging.LogRecord:
    made = logging.LogRecord("naiad", level, "/a/b/server.py", 12, message, (), None)
    made.created, made.process = created, 77
    return made


def test_default_lines_are_exact() -> None:
    moment = 1767225599.000123  # 2025-12-31 23:59:59 UTC
    assert format_record(record("up", moment), "default", True) == 'I1231 23:59:59.000123 77 server.py:12] "up"\n'
    assert format_record(record("up", moment, logging.ERROR), "default", False)[0] == "E"
    assert format_record(record("up", moment, logging.WARNING), "default", False) == (
        "W1231 23:59:59.000123 77 server.py:12] up\n"
    )


def test_a_fraction_that_rounds_up_carries_into_the_second() -> None:
    assert "23:59:59.000000" in format_record(record("x", 1767225598.9999999), "default", True)


def test_iso8601_lines_are_exact() -> None:
    assert format_record(record("up", 1767225599.9), "ISO8601", True) == (
        '2025-12-31T23:59:59Z I 77 server.py:12] "up"\n'
    )


@pytest.mark.parametrize(("log_format", "line"), [("default", DEFAULT_LINE), ("ISO8601", ISO8601_LINE)])
def test_a_line_names_its_process_and_its_place(log_format: str, line: re.Pattern[str]) -> None:
    got = installed(LogSettings(log_format=log_format))
    with got.log:
        LOGGER.info("Started %s at %s:%d", "HTTPService", "0.0.0.0", 8000)
    match = line.fullmatch(got.out.getvalue())
    assert match is not None
    assert match.group(1, 2, 3) == ("I", str(os.getpid()), HERE)
    assert match[5] == '"Started HTTPService at 0.0.0.0:8000"'


def test_information_and_trouble_go_to_different_streams(captured: Captured) -> None:
    LOGGER.info("fine")
    LOGGER.warning("hm")
    LOGGER.error("bad")
    assert [line[0] for line in captured.out.getvalue().splitlines()] == ["I"]
    assert [line[0] for line in captured.err.getvalue().splitlines()] == ["W", "E"]


@pytest.mark.parametrize("message", ['a "quoted" name', "two\nlines", "back\\slash", "tab\t and \x1b[31m", "grün ✓"])
def test_a_message_is_one_json_string(message: str, captured: Captured) -> None:
    LOGGER.info("%s", message)
    match = DEFAULT_LINE.fullmatch(captured.out.getvalue())
    assert match is not None
    assert json.loads(match[5]) == message


@pytest.mark.parametrize(("value", "shown"), [("0", "a\nb"), ("1", '"a\\nb"'), ("", '"a\\nb"'), ("false", '"a\\nb"')])
def test_only_a_zero_turns_the_quoting_off(value: str, shown: str) -> None:
    got = installed(LogSettings(), TRITON_SERVER_ESCAPE_LOG_MESSAGES=value)
    with got.log:
        LOGGER.info("a\nb")
    assert got.out.getvalue().endswith(f"] {shown}\n")


@pytest.mark.parametrize(
    ("settings", "letters"),
    [
        (LogSettings(), "IWE"),
        (LogSettings(log_info=False), "WE"),
        (LogSettings(log_warning=False), "IE"),
        (LogSettings(log_error=False), "IW"),
        (LogSettings(log_info=False, log_warning=False, log_error=False), ""),
        (LogSettings(log_verbose_level=1), "VIWE"),
        (LogSettings(log_verbose_level=2, log_info=False), "VVWE"),
    ],
)
def test_each_level_has_a_switch_of_its_own(settings: LogSettings, letters: str) -> None:
    got = installed(settings)
    with got.log:
        verbose(LOGGER, 2, "V")
        verbose(LOGGER, 1, "V")
        LOGGER.info("I")
        LOGGER.warning("W")
        LOGGER.error("E")
    assert "".join(re.findall(r'"(\w)"', got.out.getvalue() + got.err.getvalue())) == letters


def test_settings_change_while_the_log_runs(captured: Captured) -> None:
    assert not LOGGER.isEnabledFor(logging.DEBUG)
    verbose(LOGGER, 1, "before")
    captured.log.change(replace(captured.log.settings, log_verbose_level=1, log_format="ISO8601"))
    assert LOGGER.isEnabledFor(logging.DEBUG)
    verbose(LOGGER, 1, "after")
    assert ISO8601_LINE.fullmatch(captured.out.getvalue())
    with pytest.raises(OptionError, match=r"^invalid argument for log_format, got: bogus$"):
        captured.log.change(replace(captured.log.settings, log_format="bogus"))
    assert captured.log.settings.log_format == "ISO8601"


def test_settings_come_from_the_options() -> None:
    options = ServerOptions(log_verbose=2, log_info=False, log_format="ISO8601", log_file="x.log")
    assert LogSettings.from_options(options) == LogSettings("x.log", False, True, True, 2, "ISO8601")


def test_a_log_file_gets_everything_and_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "naiad.log"
    path.write_text("kept\n")
    got = installed(LogSettings(log_file=str(path)))
    with got.log:
        LOGGER.info("one")
        LOGGER.error("two")
    assert [line.rpartition("] ")[2] for line in path.read_text().splitlines()] == ["kept", '"one"', '"two"']
    assert got.out.getvalue() + got.err.getvalue() == ""


def test_a_log_file_can_be_changed(tmp_path: Path, captured: Captured) -> None:
    captured.log.change(LogSettings(log_file=str(tmp_path / "a.log")))
    LOGGER.info("in a")
    captured.log.change(LogSettings())
    LOGGER.info("out")
    assert "in a" in (tmp_path / "a.log").read_text()
    assert "out" in captured.out.getvalue() and "in a" not in captured.out.getvalue()
    with pytest.raises(OptionError, match=r'^Bad option: "--log-file"\. cannot append to .*: Is a directory'):
        captured.log.change(LogSettings(log_file=str(tmp_path)))
    LOGGER.info("still here")
    assert "still here" in captured.out.getvalue()


@pytest.mark.parametrize(("request_id", "label"), [("7", "[request id: 7] "), ("", "[request id: <id_unknown>] ")])
def test_a_line_about_a_request_begins_with_its_id(request_id: str, label: str, captured: Captured) -> None:
    request_log(LOGGER, logging.ERROR, request_id, "no such model '%s'", "m%d")
    match = DEFAULT_LINE.fullmatch(captured.err.getvalue())
    assert match is not None
    assert match[3] == HERE
    assert json.loads(match[5]) == label + "no such model 'm%d'"


def test_a_request_id_cannot_forge_a_line(captured: Captured) -> None:
    request_log(LOGGER, logging.INFO, 'x\nE0101 00:00:00.000000 1 server.py:1] "owned', "%% done")
    assert captured.out.getvalue().count("\n") == 1


def test_a_table_stands_below_its_heading_as_it_is(captured: Captured) -> None:
    table = format_table(("Model", "Version"), [("mlp", 1)])
    table_log(LOGGER, logging.INFO, "Models", table)
    first, _, rest = captured.out.getvalue().partition("\n")
    assert first.endswith('] "Models"') and HERE in first
    assert rest == table


def test_an_exception_is_part_of_its_line(captured: Captured) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        LOGGER.exception("execute failed")
    match = DEFAULT_LINE.fullmatch(captured.err.getvalue())
    assert match is not None
    message = json.loads(match[5])
    assert message.startswith("execute failed\nTraceback (most recent call last):\n")
    assert message.endswith("KeyError: 'gone'")


class _Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("argument", [_Unprintable(), ("too", "many")])
def test_a_message_that_cannot_be_made_is_reported_and_raises_nothing(argument: object, captured: Captured) -> None:
    args = argument if isinstance(argument, tuple) else (argument,)
    captured.log.handle(logging.LogRecord("naiad", logging.ERROR, "/a/model.py", 3, "value %s", args, None))
    assert captured.err.getvalue().startswith("cannot format the log message 'value %s' of /a/model.py:3: ")


def test_python_warnings_are_log_lines(captured: Captured) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old form", DeprecationWarning, stacklevel=1)
    match = DEFAULT_LINE.fullmatch(captured.err.getvalue())
    assert match is not None
    assert match.group(1, 3, 5) == ("W", HERE, '"DeprecationWarning: old form"')


def test_an_exception_that_ends_a_thread_is_a_log_line(captured: Captured) -> None:
    def fail() -> None:
        raise ValueError("lost")

    thread = threading.Thread(target=fail, name="instance-3")
    thread.start()
    thread.join(10)
    assert '"uncaught exception in thread instance-3\\nTraceback' in captured.err.getvalue()
    assert "ValueError: lost" in captured.err.getvalue()


class _FailsWhenCollected:
    def __del__(self) -> None:
        raise ValueError("in a finaliser")


def test_an_exception_nobody_can_catch_is_a_log_line(captured: Captured) -> None:
    _FailsWhenCollected()
    gc.collect()
    assert "ValueError: in a finaliser" in captured.err.getvalue()


def test_libraries_log_here_too(captured: Captured) -> None:
    logging.getLogger("asyncio").error("loop trouble")
    logging.getLogger("asyncio").info("small talk")
    assert captured.err.getvalue().count("\n") == 1
    assert captured.out.getvalue() == ""


def test_an_exception_in_a_callback_of_the_loop_is_a_log_line(captured: Captured) -> None:
    async def run() -> None:
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert "invalid literal for int()" in captured.err.getvalue()


def test_everything_is_put_back() -> None:
    before = (warnings.showwarning, threading.excepthook, sys.unraisablehook, logging.getLogger("naiad").level)
    handlers = list(logging.getLogger().handlers)
    with installed(LogSettings(log_verbose_level=1)).log:
        assert warnings.showwarning is not before[0]
    assert before == (
        warnings.showwarning,
        threading.excepthook,
        sys.unraisablehook,
        logging.getLogger("naiad").level,
    )
    assert logging.getLogger().handlers == handlers


def test_a_reader_that_went_away_is_ignored() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream, ServerLog(LogSettings(), {}, stream, stream):
        LOGGER.info("nobody reads this")
        LOGGER.info("nor this")


def test_a_closed_stream_is_ignored(tmp_path: Path) -> None:
    stream = (tmp_path / "x").open("w")
    sink = LogSink(stream)
    stream.close()
    sink.write("lost\n")
    LogSink(stream).write("lost\n")
    LogSink(None).write("lost\n")


def test_text_that_has_no_encoding_is_shown_escaped(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as stream:
        LogSink(stream).write("lone \udc80\n")
    assert (tmp_path / "x").read_bytes() == b"lone \\udc80\n"
    ascii_stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    LogSink(ascii_stream).write("ü\n")
    assert ascii_stream.buffer.getvalue() == b"\\xfc\n"  # type: ignore[attr-defined]


def test_a_full_pipe_holds_nobody_up_and_loses_nothing_within_bounds() -> None:
    reading, writing = os.pipe()
    lines = [f"line {i} {'x' * 100}\n" for i in range(2000)]
    with os.fdopen(writing, "w") as stream:
        sink = LogSink(stream)
        began = time.monotonic()
        for line in lines:
            sink.write(line)
        assert time.monotonic() - began < 20
        received = _read(reading, len("".join(lines)))
        sink.flush(10)
        sink.write("caught up\n")
        assert os.read(reading, 100) == b"caught up\n"
    os.close(reading)
    assert received == "".join(lines).encode()


def test_what_a_full_pipe_cannot_take_is_counted() -> None:
    reading, writing = os.pipe()
    line = "x" * 99_999 + "\n"
    with os.fdopen(writing, "w") as stream:
        sink = LogSink(stream)
        for _ in range(30):
            sink.write(line)
        received = b""
        while not received.endswith(b"log lines were dropped: the stream did not take them\n"):
            received += os.read(reading, 1 << 16)
        sink.flush(10)
    os.close(reading)
    *whole, notice = received.decode().splitlines(keepends=True)
    assert set(whole) == {line}
    assert int(notice.split()[0]) == 30 - len(whole)


def test_lines_of_many_threads_stay_whole() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        sink = LogSink(stream)
        lines = {name: f"{name * 200}\n" for name in "abcdefgh"}
        writers = [threading.Thread(target=_write_often, args=(sink, line)) for line in lines.values()]
        for writer in writers:
            writer.start()
        received = _read(reading, 100 * sum(len(line) for line in lines.values()))
        for writer in writers:
            writer.join(10)
        sink.flush(10)
    os.close(reading)
    counts = {line: received.decode().splitlines(keepends=True).count(line) for line in lines.values()}
    assert set(counts.values()) == {100}


def _write_often(sink: LogSink, line: str) -> None:
    for _ in range(100):
        sink.write(line)


def _read(descriptor: int, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += os.read(descriptor, 1 << 16)
    return received
