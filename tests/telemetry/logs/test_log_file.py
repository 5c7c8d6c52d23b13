"""The log file: rotated by its size, and opened again after another program has renamed it."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

from naiad.telemetry.logs.log_file import LogFile
from naiad.telemetry.logs.server_log import LogSettings, Rotation, ServerLog
from naiad.telemetry.logs.sink import plain_notice

LOGGER = logging.getLogger("naiad.test")


def opened(path: Path, max_bytes: int, backups: int) -> LogFile:
    return LogFile(str(path), max_bytes, backups, plain_notice)


def contents(path: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in path.parent.iterdir()}


def test_a_full_file_is_renamed(tmp_path: Path) -> None:
    file = opened(tmp_path / "log", max_bytes=4, backups=2)
    for line in ("a\n", "b\n", "c\n", "d\n", "e\n", "f\n", "g\n"):
        file.write(line)
    file.close()
    assert contents(tmp_path / "log") == {"log": "g\n", "log.1": "e\nf\n", "log.2": "c\nd\n"}


def test_what_an_earlier_server_wrote_counts(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("old\n")
    file = opened(tmp_path / "log", max_bytes=5, backups=1)
    file.write("new\n")
    file.close()
    assert contents(tmp_path / "log") == {"log": "new\n", "log.1": "old\n"}


def test_without_backups_the_file_is_emptied(tmp_path: Path) -> None:
    file = opened(tmp_path / "log", max_bytes=4, backups=0)
    for line in ("aa\n", "bb\n"):
        file.write(line)
    file.close()
    assert contents(tmp_path / "log") == {"log": "bb\n"}


def test_a_line_that_is_too_long_gets_a_file_of_its_own(tmp_path: Path) -> None:
    file = opened(tmp_path / "log", max_bytes=4, backups=5)
    for line in ("a\n", "long line\n", "b\n"):
        file.write(line)
    file.close()
    assert contents(tmp_path / "log") == {"log": "b\n", "log.1": "long line\n", "log.2": "a\n"}


def test_bytes_are_counted_rather_than_characters(tmp_path: Path) -> None:
    file = opened(tmp_path / "log", max_bytes=6, backups=1)
    for line in ("ü\n", "ü\n", "ü\n"):
        file.write(line)
    file.close()
    assert contents(tmp_path / "log") == {"log": "ü\n", "log.1": "ü\nü\n"}


def test_a_pipe_is_not_rotated(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    file = opened(tmp_path / "log", max_bytes=4, backups=5)
    for line in ("aaa\n", "bbb\n"):
        file.write(line)
    assert os.read(reader, 100) == b"aaa\nbbb\n"
    file.close()
    os.close(reader)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_file_that_cannot_be_renamed_goes_on(tmp_path: Path) -> None:
    (tmp_path / "log.1").mkdir()
    (tmp_path / "log.1" / "x").touch()
    file = opened(tmp_path / "log", max_bytes=4, backups=1)
    for line in ("aa\n", "bb\n", "c\n"):
        file.write(line)
    file.close()
    assert (tmp_path / "log").read_text() == "aa\nbb\nc\n"


def test_a_renamed_file_is_left_alone_once_the_path_is_opened_again(tmp_path: Path) -> None:
    log = ServerLog(LogSettings(log_file=str(tmp_path / "log")), {"TRITON_SERVER_ESCAPE_LOG_MESSAGES": "0"})
    with log:
        LOGGER.info("first")
        (tmp_path / "log").rename(tmp_path / "moved")
        LOGGER.info("second")
        log.reopen_file()
        LOGGER.info("third")
        (tmp_path / "log").unlink()
        (tmp_path / "log").mkdir()
        log.reopen_file()
    moved = (tmp_path / "moved").read_text()
    assert [word in moved for word in ("first", "second", "third")] == [True, True, False]


def test_a_file_that_cannot_be_opened_again_stays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = ServerLog(LogSettings(log_file=str(path)))
    with log, open(path) as reader:
        path.unlink()
        path.mkdir()
        log.reopen_file()
        assert "cannot be opened again" in reader.read()


@pytest.mark.parametrize("log_format", ["default", "json"])
def test_lines_of_many_threads_are_all_there(tmp_path: Path, log_format: str) -> None:
    settings = LogSettings(log_file=str(tmp_path / "log"), log_format=log_format)

    def write(name: int) -> None:
        for number in range(50):
            LOGGER.info("line %d of %d", number, name)

    with ServerLog(settings, rotation=Rotation(2000, 1000)):
        threads = [threading.Thread(target=write, args=[n]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    files = contents(tmp_path / "log")
    assert len(files) > 5
    assert max(map(len, files.values())) <= 2000
    lines = [line for text in files.values() for line in text.splitlines()]
    assert len(lines) == 200
    assert all(sum(f'line {n} of {t}"' in line for line in lines) == 1 for n in range(50) for t in range(4))


def test_another_process_may_rename_the_file(tmp_path: Path) -> None:
    """Of several processes with one file one renames it, when their lines together are too many; the others follow."""
    path = tmp_path / "log"
    owner, other = LogFile(str(path), 20, 1, str), LogFile(str(path), 0, 0, str, follows=True)
    other.write("from the other one\n")
    owner.write("from the owner\n")
    other.write("then\n")
    path.unlink()
    other.write("lost with the file\n")
    owner.reopen()
    other.write("again\n")
    for file in (owner, other):
        file.close()
    assert (tmp_path / "log.1").read_text() == "from the other one\n"
    assert path.read_text() == "again\n"
