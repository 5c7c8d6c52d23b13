"""API keys: how they are written, and finding the one that a caller shows."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from naiad.clock import ManualClock
from naiad.errors import OptionError, RateLimitError
from naiad.frontends.access.keys import KeyRing, read_keys
from naiad.options.api_key import read_api_key
from support.api_keys import hashed


def test_an_entry_is_read() -> None:
    key = read_api_key(f"  alice \t infer,observe  {hashed('k').upper().replace('SHA256', 'sha256')} rate=2.5 burst=4 ")
    assert (key.name, key.scopes, key.per_second, key.burst) == ("alice", {"infer", "observe"}, 2.5, 4)
    assert key.digest == hashlib.sha256(b"k").digest()
    assert read_api_key(f"a infer {hashed('k')} rate=7").burst == 7
    assert read_api_key(f"a infer {hashed('k')} rate=0.1").burst == 1
    assert read_api_key(f"a infer {hashed('k')}").per_second is None


def test_texts_of_a_key_hold_nothing_of_its_hash() -> None:
    key = read_api_key(f"alice infer {hashed('k')}")
    assert hashed("k")[7:20] not in f"{key} {key!r}"
    assert str(key) == "alice infer"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 words were found"),
        ("alice infer", "2 words were found"),
        ("al/ice infer HASH", "the name of an API key has"),
        ("x" * 65 + " infer HASH", "the name of an API key has"),
        ("alice read HASH", "unknown scope 'read'; there are infer, manage, observe"),
        ("alice infer, HASH", "unknown scope ''"),
        ("alice infer my-secret-key", "has to be sha256: and 64 hexadecimal digits"),
        ("alice infer sha256:12", "has to be sha256: and 64 hexadecimal digits"),
        ("alice infer HASH rate", "cannot read 'rate'"),
        ("alice infer HASH rate=-1", "cannot read 'rate=-1'"),
        ("alice infer HASH rate=1 rate=2", "cannot read 'rate=2'"),
        ("alice infer HASH speed=1", "cannot read 'speed=1'"),
        ("alice infer HASH burst=2", "burst needs a rate"),
        ("alice infer HASH rate=0", "rate and burst lie above 0"),
        ("alice infer HASH rate=1 burst=0", "rate and burst lie above 0"),
        ("alice infer HASH rate=9999999", "rate and burst lie above 0"),
    ],
)
def test_bad_entries_are_explained_without_repeating_the_secret(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_api_key(text.replace("HASH", hashed("k")))
    assert problem in str(raised.value)
    assert "my-secret-key" not in str(raised.value)


def test_a_key_is_found_by_its_text_alone() -> None:
    ring = KeyRing([read_api_key(f"a infer {hashed('one')}"), read_api_key(f"b manage {hashed('two')}")], ManualClock())
    found = ring.find("two")
    assert found is not None
    assert found.key.name == "b"
    for wrong in ("", "three", "one ", "ONE", hashed("one"), hashed("one")[7:], "\xff" * 5000):
        assert ring.find(wrong) is None


def test_a_limit_counts_over_all_uses_of_a_key() -> None:
    clock = ManualClock()
    ring = KeyRing([read_api_key(f"a infer {hashed('one')} rate=0.5 burst=2")], clock)
    for _ in range(2):
        found = ring.find("one")
        assert found is not None
        found.take()
    with pytest.raises(
        RateLimitError, match=r"'a' is beyond its limit of 0.5 requests per second; try again in 2 s"
    ) as e:
        found.take()
    assert e.value.retry_s == 2
    clock.advance(2_000_000_000)
    found.take()


def test_a_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who may ask\n\na infer {hashed('one')}\n  b manage,observe {hashed('two')} rate=1\n")
    given = (read_api_key(f"c infer {hashed('three')}"),)
    assert [key.name for key in read_keys(given, str(file))] == ["c", "a", "b"]
    assert read_keys(given, "") == given


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"# nothing\n", "holds no key"),
        (b"\na infer\n", "keys:2: an API key has at least"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"a" * (1 << 21), "larger than"),
        (f"a infer {hashed('1')}\na infer {hashed('2')}".encode(), "API key a is given more than once"),
        (f"a infer {hashed('1')}\nb infer {hashed('1')}".encode(), "the API keys a and b have the same hash"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(OptionError, match=problem):
        read_keys((), str(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        read_keys((), str(tmp_path / "none"))
