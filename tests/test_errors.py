"""The texts that errors give for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.errors import ConfigError, first_line


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
