"""Chat sessions of several turns, against a language model's server that checks what was said before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from naiad.perf.results import LevelResult
from naiad.perf.target.protocol import TargetError
from support.perf_runs import measure_level, run_command
from support.text_peer import text_peer

MS = 1e6
CHAT = "v1/chat/completions"


def sessions(folder: Path, turns: dict[str, int], delay_ms: float = 0) -> Path:
    """A file with so many turns of each session, which take turns in the file."""
    steps: list[dict[str, Any]] = []
    for number in range(max(turns.values())):
        for name in (name for name, count in turns.items() if number < count):
            payload = {"messages": [{"role": "user", "content": f"{name} {number}"}]}
            steps.append({"payload": [payload], "session_id": name, "delay": delay_ms})
    file = folder / "sessions.json"
    file.write_text(json.dumps({"data": steps}))
    return file


def words(address: str, file: Path, concurrency: int, *more: object, endpoint: str = CHAT) -> list[object]:
    of_service = ("-m", "words", "--service-kind", "openai", "--async", "--endpoint", endpoint)
    return [*of_service, "-u", address, "--input-data", file, "--session-concurrency", concurrency, *more]


def play(address: str, file: Path, concurrency: int, *more: object) -> LevelResult:
    return measure_level(*words(address, file, concurrency, *more))


@pytest.mark.parametrize("stream", [(), ("--streaming",)])
def test_each_turn_has_everything_that_was_said_before(tmp_path: Path, stream: tuple[str, ...]) -> None:
    file = sessions(tmp_path, {"a": 3, "b": 1, "c": 2})
    with text_peer("history", words=2) as address:
        window = play(address, file, 2, *stream).merged
    assert window.errors == {}
    assert (window.requests, window.sequences) == (6, 3)
    assert window.responses == (12 if stream else 6)


@pytest.mark.slow
def test_turns_rest_and_sessions_take_turns(tmp_path: Path) -> None:
    file = sessions(tmp_path, dict.fromkeys("abcd", 3), delay_ms=60)
    with text_peer("history", first_ms=10) as address:
        one, two = (play(address, file, concurrency).merged for concurrency in (1, 2))
    for window, concurrency in ((one, 1), (two, 2)):
        assert (window.requests, window.sequences, window.errors) == (12, 4, {})
        # Three turns of 10 ms and two rests of 60 ms in each session; the last turn is followed by none.
        least_s = 4 / concurrency * 0.15
        assert least_s <= window.duration_s < 2 * least_s
        # The rests are in no latency.
        assert 10 * MS <= window.latency.percentile(50) < 40 * MS


def test_a_turn_that_fails_ends_its_session(tmp_path: Path) -> None:
    file = sessions(tmp_path, {"a": 3, "b": 2})
    text = json.loads(file.read_text())
    text["data"][2]["payload"][0]["model"] = "other"
    file.write_text(json.dumps(text))
    with text_peer("history") as address:
        window = play(address, file, 1).merged
    # The second turn of a failed, and its third one was not sent.
    assert (window.requests, window.sequences) == (3, 1)
    assert window.errors == {("HTTP 404", "The model `other` does not exist"): 1}


@pytest.mark.slow
def test_what_is_no_chat_of_sessions_is_refused(tmp_path: Path) -> None:
    file = sessions(tmp_path, {"a": 1, "b": 1})
    with text_peer() as address:
        with pytest.raises(TargetError, match="contains 2 unique session IDs, which is fewer than the required"):
            play(address, file, 3)
        with pytest.raises(TargetError, match="--session-concurrency plays chats: expected --endpoint="):
            measure_level(*words(address, file, 1, endpoint="v1/embeddings"))
        file.write_text(json.dumps({"data": [{"payload": [{"messages": []}]}]}))
        with pytest.raises(TargetError, match='needs a "session_id" in each step'):
            play(address, file, 1)
        code, _, errors = run_command(*words(address, file, 1))
    assert code == 99
    assert errors.count("error: ") == 1
