"""Log lines in JSON: one object per line, whatever a message holds."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from naiad.telemetry.logs.server_log import LogSettings, ServerLog, format_record, request_log, table_log, verbose

LOGGER = logging.getLogger("naiad.test")


class Captured:
    """An installed log in JSON."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        settings = LogSettings(log_format="json", log_verbose_level=1)
        self.log = ServerLog(settings, {"TRITON_SERVER_ESCAPE_LOG_MESSAGES": "0"}, self.out, self.err)

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.out.getvalue() + self.err.getvalue()).split("\n") if line]


@pytest.fixture
def captured() -> Iterator[Captured]:
    got = Captured()
    with got.log:
        yield got


def test_a_line_has_its_place_and_its_time(captured: Captured) -> None:
    LOGGER.info("Started %s", "x")
    (line,) = captured.lines()
    assert line | {"time": "", "line": 0} == {
        "time": "",
        "level": "info",
        "process": os.getpid(),
        "thread": threading.current_thread().name,
        "file": "test_json_lines.py",
        "line": 0,
        "message": "Started x",
    }
    found = datetime.strptime(str(line["time"]), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - found).total_seconds()) < 60


def test_times_are_exact() -> None:
    record = logging.LogRecord("naiad", logging.INFO, "/a/server.py", 12, "up", (), None)
    record.created = 1767225599.000123
    assert json.loads(format_record(record, "json", True))["time"] == "2025-12-31T23:59:59.000123Z"


def test_each_level_has_its_name(captured: Captured) -> None:
    verbose(LOGGER, 1, "V")
    for level in (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        LOGGER.log(level, "x")
    assert [line["level"] for line in captured.lines()] == ["verbose", "info", "warning", "error", "error"]


@pytest.mark.parametrize("text", ["two\nlines", '"quoted" \\', "\x00\x1b[31m", "grün ✓", "lone \udc80", "\u2028"])
def test_any_text_is_one_line(captured: Captured, text: str) -> None:
    # Outside the tree of loggers: pytest keeps what it sees there, and cannot send a lone surrogate to another process.
    logger = logging.Logger("naiad.alone")
    logger.addHandler(captured.log)
    request_log(logger, logging.WARNING, text, "failed: %s", text, model=text)
    assert captured.err.getvalue().count("\n") == 1
    (line,) = captured.lines()
    shown = text.encode("utf-8", "backslashreplace").decode()
    assert (line["request_id"], line["model"]) == (shown, shown)
    assert line["message"] == f"[request id: {shown}] failed: {shown}"


def test_a_traceback_and_a_table_have_fields_of_their_own(captured: Captured) -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        LOGGER.exception("it failed")
    table_log(LOGGER, logging.INFO, "models", "+---+\n| a |\n")
    table, error = captured.lines()
    assert (error["message"], table["message"]) == ("it failed", "models")
    assert str(error["exception"]).endswith("ValueError: wrong")
    assert table["table"] == "+---+\n| a |\n"


def test_a_message_that_cannot_be_made_a_text_is_a_line_all_the_same(captured: Captured) -> None:
    # Not through the logger: pytest has a handler of its own, which fails.
    captured.log.handle(LOGGER.makeRecord("naiad", logging.INFO, "x.py", 1, "%d", ("no number",), None))
    (line,) = captured.lines()
    assert "cannot format the log message '%d'" in str(line["message"])
