"""What a model generated, read from its outputs, and as log-probabilities of documents."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from naiad.errors import BackendError
from naiad.wire.openai.documents import chat_choice, completion_choice
from naiad.wire.openai.generated import Generated, TokenLogprob, TokenUsage, read_generated


def read(**outputs: Any) -> Generated:
    return read_generated({name: np.array(value) for name, value in outputs.items()})


def logprobs(*places: object) -> list[TokenLogprob] | None:
    return read(text_output=[b"x"], logprobs=[json.dumps(places).encode()]).logprobs


def likely(token: object, logprob: object, **more: object) -> dict[str, object]:
    return {"decoded_token": token, "logprob": logprob, **more}


def test_a_text_alone() -> None:
    assert read(text_output=[[b"a"]]) == Generated("a", "", None, None)
    assert read(other=[1]).text == ""


def test_a_text_of_any_bytes() -> None:
    assert read(text_output=[b"\xe2\x82"]).text == "\ufffd"


@pytest.mark.parametrize("texts", [[], [b"a", b"b"]])
def test_not_one_text(texts: list[bytes]) -> None:
    with pytest.raises(BackendError, match=f"found {len(texts)} instead"):
        read(text_output=texts)


def test_numbers_of_tokens_come_in_pairs() -> None:
    assert read(num_input_tokens=[[3]], num_output_tokens=[4]).usage == TokenUsage(3, 4)
    assert read(num_input_tokens=[3]).usage is None


def test_only_reasons_of_the_api_are_passed_on() -> None:
    assert read(finish_reason=[b"length"]).finish_reason == "length"
    assert read(finish_reason=[b"tired"]).finish_reason == ""


def test_the_chosen_token_is_that_of_the_best_rank() -> None:
    found = logprobs({"5": likely("b", -2, rank=2), "7": likely("a", -1, rank=1), "9": likely("c", -3)})
    assert found == [TokenLogprob("a", -1, {"a": -1, "b": -2, "c": -3})]


@pytest.mark.parametrize(
    "places", [[5], [{"1": {}}], [{"1": likely("a", "x")}], [{"1": likely("a", 0, rank=None), "2": likely("b", 0)}]]
)
def test_log_probabilities_that_cannot_be_read_are_left_out(places: list[object]) -> None:
    assert logprobs(*places) is None


def test_a_token_without_a_text() -> None:
    found = logprobs({"1": likely(None, -1)}, {"2": likely("\u20ac", -2)})
    (first, second) = chat_choice("x", (), "stop", found, "cmpl-1")["logprobs"]["content"]
    assert (first["token"], first["bytes"]) == ("", [])
    assert (second["token"], second["bytes"]) == ("\u20ac", [0xE2, 0x82, 0xAC])
    # A part of a text says where its tokens lie in the whole.
    shown = completion_choice("x", "", found, offset=7)
    assert (shown["logprobs"]["text_offset"], shown["finish_reason"]) == ([7, 7], None)
