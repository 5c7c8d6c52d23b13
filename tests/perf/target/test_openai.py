"""Services with the API of OpenAI: first tokens, the times between them, their rate, and errors with their cause."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.test_repeat_and_square import DECOUPLED, REPEAT
from naiad.perf.report.profile_export import write_profile_export
from naiad.perf.results import Window
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.services.generated_text import ChatStream, CompletionStream, GeneratedStream, output_counter
from naiad.testing import RunningServer, serving
from support.perf_runs import measure, measure_level, run_command
from support.served_models import write_model
from support.text_peer import text_peer

MS = 1_000_000
MESSAGES = [{"role": "user", "content": "say three words"}]
CHAT = ("--endpoint", "v1/chat/completions")
TEXT = ("--endpoint", "v1/completions")


def data(folder: Path, *payloads: dict[str, Any]) -> Path:
    """A file of ``--input-data``."""
    file = folder / "payloads.json"
    file.write_text(json.dumps({"data": [{"payload": [payload]} for payload in payloads]}))
    return file


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return data(tmp_path, {"messages": MESSAGES})


def words_of(address: str, file: Path, *words: object) -> tuple[object, ...]:
    return ("-m", "words", "--service-kind", "openai", "--async", "-u", address, "--input-data", file, *words)


def window_of(address: str, file: Path, *words: object, requests: int = 10) -> Window:
    return measure_level(*words_of(address, file, "--request-count", requests, *words)).merged


def test_a_stream_of_known_delays(chat: Path) -> None:
    with text_peer(words=4, first_ms=40, between_ms=15) as address:
        window = window_of(address, chat, *CHAT, "--streaming", "--concurrency-range", 2)
    assert (window.requests, window.responses, window.errors) == (10, 40, {})
    # The event with the role comes at once, and is no token.
    assert window.first_response.count == 10
    assert window.first_response.percentile(1) >= 40 * MS
    assert window.between_responses.count == 30
    assert window.between_responses.total >= 0.9 * 30 * 15 * MS
    assert window.latency.percentile(1) >= (40 + 3 * 15) * MS
    assert window.output_tokens == 40


@pytest.mark.parametrize("flags", [(), ("pieces",)])
def test_completions_have_streams_of_their_own(tmp_path: Path, flags: Sequence[str]) -> None:
    file = data(tmp_path, {"prompt": "a", "model": "words", "stream": True})
    with text_peer(*flags, words=3) as address:
        window = window_of(address, file, *TEXT, "--streaming")
    assert (window.requests, window.responses, window.output_tokens, window.errors) == (10, 30, 30, {})


def test_payloads_ask_for_a_stream_by_themselves(tmp_path: Path) -> None:
    file = data(tmp_path, *[{"messages": MESSAGES, "stream": True}] * 2)
    with text_peer(words=3) as address:
        window = window_of(address, file, *CHAT)
    assert (window.requests, window.responses, window.errors) == (10, 30, {})
    assert window.first_response.count == 10


@pytest.mark.parametrize("first", [True, False])
def test_payloads_are_streams_all_or_none(tmp_path: Path, first: bool) -> None:
    file = data(tmp_path, *({"messages": MESSAGES, "stream": stream} for stream in (first, not first)))
    match = f'the payload of step 1 has "stream": {str(not first).lower()}: change it, or make all payloads alike'
    with text_peer() as address, pytest.raises(TargetError, match=match):
        window_of(address, file, *CHAT)


@pytest.mark.parametrize("words", [(), ("--streaming",)])
def test_the_server_counts_tokens_better(chat: Path, words: tuple[str, ...]) -> None:
    with text_peer("usage", words=5) as address:
        window = window_of(address, chat, *CHAT, *words)
    assert (window.requests, window.output_tokens) == (10, 100)


def test_whole_responses(chat: Path) -> None:
    with text_peer(words=3, first_ms=20) as address:
        window = window_of(address, chat, *CHAT)
    # Nobody has counted the tokens.
    assert (window.requests, window.responses, window.output_tokens, window.errors) == (10, 10, 0, {})
    assert window.first_response.count == 0
    assert window.latency.percentile(1) >= 20 * MS


def test_the_payloads_take_turns(tmp_path: Path) -> None:
    file = data(tmp_path, {"messages": MESSAGES}, {"messages": MESSAGES, "model": "other"})
    with text_peer() as address:
        window = window_of(address, file, *CHAT)
    assert window.requests == 5
    assert window.errors == {("HTTP 404", "The model `other` does not exist"): 5}


def test_headers_are_sent(chat: Path) -> None:
    with text_peer("key") as address:
        assert window_of(address, chat, *CHAT, "-H", "Authorization: Bearer secret").requests == 10
        with pytest.raises(TargetError, match="HTTP 401: You didn't provide an API key"):
            window_of(address, chat, *CHAT)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("silent_end", "bad response: the stream ended after 3 events with output, expected data: .DONE."),
        ("error", "error in the stream: the model is out of memory"),
        ("garbage", "bad response: an event is no JSON: .*: {oops"),
        ("break", "connection lost: "),
        ("overload", "HTTP 429: Rate limit reached"),
    ],
)
def test_faults_have_their_cause(chat: Path, fault: str, cause: str) -> None:
    with text_peer(fault=fault) as address, pytest.raises(TargetError, match=cause):
        window_of(address, chat, *CHAT, "--streaming")


@pytest.mark.parametrize(
    ("payload", "words", "match"),
    [
        ({"stream": False}, (*CHAT, "--streaming"), r'has "stream": false: change it, or leave out --streaming'),
        ({}, ("--endpoint", "v1/embeddings", "--streaming"), "cannot read the streams of 'v1/embeddings'"),
        ({}, ("--endpoint", "v1/other"), r"HTTP 404: Invalid URL \(POST /v1/other\)"),
        ({"messages": None}, (*CHAT, "-m", "nobody"), "The model `nobody` does not exist"),
    ],
)
def test_what_cannot_be_measured(tmp_path: Path, payload: dict[str, Any], words: Sequence[str], match: str) -> None:
    with text_peer() as address, pytest.raises(TargetError, match=match):
        window_of(address, data(tmp_path, payload), *words)


@pytest.mark.slow
def test_an_open_loop(chat: Path) -> None:
    with text_peer(first_ms=50) as address:
        window = window_of(address, chat, *CHAT, "--streaming", "--request-rate-range", 20, requests=20)
    assert (window.requests, window.responses, window.errors) == (20, 60, {})
    assert window.duration_s >= 19 / 20


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--concurrency-range", 4), ("--request-rate-range", 20)])
def test_several_processes_read_streams(chat: Path, words: tuple[object, ...]) -> None:
    with text_peer("usage", words=4, first_ms=20, between_ms=5) as address:
        window = window_of(address, chat, *CHAT, "--streaming", "--client-workers", 2, *words, requests=20)
    assert (window.requests, window.responses, window.output_tokens, window.errors) == (20, 80, 160, {})
    assert (window.first_response.count, window.between_responses.count) == (20, 60)
    assert window.first_response.least >= 20 * MS
    assert window.between_responses.total >= 0.9 * 60 * 5 * MS


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--streaming",), ("--streaming", "--client-workers", 2)])
def test_a_server_that_ends(chat: Path, words: tuple[object, ...]) -> None:
    given = (*CHAT, *words, "--concurrency-range", 2, "-p", 200, "-r", 99, "-s", 0.001)
    with text_peer(first_ms=2, end_after=100) as address:
        code, _, errors = run_command(*words_of(address, chat, *given))
    assert code == 99
    # A connection that the server's end meets half-way is reset.
    text = f"error: cannot connect to {address}: Connection "
    assert errors in (f"{text}refused\n", f"{text}reset by peer\n")


@pytest.mark.parametrize("words", [(), ("--streaming",)])
def test_an_export_has_the_payload_and_what_came_back(chat: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "out.json"
    with text_peer(words=2) as address:
        given = words_of(address, chat, *CHAT, *words, "--request-count", 2, "--profile-export-file", file)
        write_profile_export(measure(*given), file, "v1/chat/completions")
    found = json.loads(file.read_text())
    assert (found["service_kind"], found["endpoint"]) == ("openai", "v1/chat/completions")
    for request in found["experiments"][0]["requests"]:
        assert json.loads(request["request_inputs"]["payload"])["messages"] == MESSAGES
        texts = [output["response"] for output in request["response_outputs"]]
        if words:
            events = [json.loads(text.removeprefix("data: ")) for text in texts]
            assert [event["choices"][0]["delta"] for event in events] == [{"content": "word "}] * 2
        else:
            assert [json.loads(text)["choices"][0]["message"]["content"] for text in texts] == ["word word "]


@pytest.mark.slow
def test_the_report_has_first_tokens_and_their_rate(chat: Path) -> None:
    with text_peer(first_ms=5, between_ms=1) as address:
        words = words_of(address, chat, *CHAT, "--streaming", "-p", 200, "-r", 3, "-s", 900)
        code, out, errors = run_command(*words)
    assert (code, errors) == (0, "")
    for text in ("Service Kind: OPENAI", "Output token throughput: ", "First response: ", "Between responses: "):
        assert text in out


# How events are read


def test_events_count_where_they_carry_output() -> None:
    stream = ChatStream()
    body = bytearray()
    for delta, new in (
        ({"role": "assistant"}, 0),
        ({"role": "assistant", "content": ""}, 0),
        ({"content": "a"}, 1),
        ({"reasoning_content": "b"}, 1),
        ({"tool_calls": [{"index": 0}]}, 1),
        ({}, 0),
    ):
        body += b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\r\n\r\n"
        assert stream.feed(body) == new
    body += b": a comment\n\nevent: x\ndata:[DONE]\n\n"
    assert stream.feed(body) == 0
    assert stream.end() is None
    assert (stream.outputs, stream.output_tokens) == (3, 3)


def test_an_event_is_read_once_it_is_whole() -> None:
    stream, body = CompletionStream(), bytearray()
    whole = b'data: {"choices":[{"text":"a"}]}\n\n'
    found = []
    for byte in whole * 2:
        body.append(byte)
        found.append(stream.feed(body))
    assert sum(found) == 2
    assert stream.end() == ("bad response", "the stream ended after 2 events with output, expected data: [DONE]")


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [
        ("v1/chat/completions", ChatStream),
        ("/api/v3/chat/completions?x=1", ChatStream),
        ("v1/completions/", CompletionStream),
        ("v2/models/m/generate_stream", GeneratedStream),
        ("v1/embeddings", None),
    ],
)
def test_the_endpoint_says_how_streams_are_read(endpoint: str, kind: type | None) -> None:
    assert output_counter(endpoint) is kind


# Naiad's own streams


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("generate")
    write_model(folder / "models", "repeat", REPEAT + DECOUPLED)
    with serving(folder / "log", folder / "models") as running:
        yield running


@pytest.mark.slow
def test_generate_stream(server: RunningServer, tmp_path: Path) -> None:
    file = data(tmp_path, {"IN": [1, 2, 3], "DELAY": [0, 5, 5], "WAIT": 0})
    words = ("--endpoint", "v2/models/repeat/generate_stream", "--streaming")
    window = window_of(server.url, file, *words)
    assert (window.requests, window.responses, window.errors) == (10, 30, {})
    assert (window.first_response.count, window.between_responses.count) == (10, 20)
    # The server's event loop counts time in whole milliseconds, so that each of two waits may be that much shorter.
    assert window.latency.percentile(1) >= 8 * MS


def test_an_error_in_a_generate_stream(server: RunningServer, tmp_path: Path) -> None:
    file = data(tmp_path, {"IN": [1, 2], "DELAY": [0], "WAIT": 0})
    words = ("--endpoint", "v2/models/repeat/generate_stream", "--streaming")
    with pytest.raises(TargetError, match="expected IN and DELAY shape to match"):
        window_of(server.url, file, *words)
