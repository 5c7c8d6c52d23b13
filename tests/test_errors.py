"""The texts that errors give for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.errors import MAX_TEXT, ConfigError, caller_text, first_line


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  behind an empty line  \n"), "behind an empty line"),
        (ImportError(), "ImportError"),
        (RuntimeError("\n"), "RuntimeError"),
    ],
)
def test_first_line(error: Exception, text: str) -> None:
    assert first_line(error) == text


def test_located() -> None:
    assert ConfigError("wrong").located() == "wrong"
    assert ConfigError("wrong", Path("config.pbtxt")).located() == "config.pbtxt: wrong"
    assert ConfigError("wrong", Path("config.pbtxt"), 3).located() == "config.pbtxt:3: wrong"


def test_callers_are_told_the_beginning_and_the_end() -> None:
    assert caller_text(ConfigError("x" * MAX_TEXT)) == "x" * MAX_TEXT
    text = caller_text("Traceback: " + "line\n" * 10_000 + "ValueError: no")
    assert text.startswith("Traceback: line\n")
    assert text.endswith("line\nValueError: no")
    assert "characters left out" in text
    assert len(text) < MAX_TEXT + 60
