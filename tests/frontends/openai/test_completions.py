"""Completions: what models are given, what callers get, and what is refused."""

from __future__ import annotations

import json

import pytest

from support.openai_requests import COMPLETIONS, choice, completion, inputs_of, refused, sampling
from support.server_port import ServerPort, loaded


def test_a_model_of_the_kind_of_vllm(openai: ServerPort) -> None:
    response = completion(openai, "hello", seed=3, stop="end", max_tokens=7)
    assert inputs_of(response) | {"sampling_parameters": []} == {
        "text_input": ["hello"],
        "stream": [False],
        "exclude_input_in_output": [True],
        "return_logprobs": [False],
        "return_finish_reason": [True],
        "return_num_input_tokens": [True],
        "return_num_output_tokens": [True],
        "sampling_parameters": [],
    }
    assert sampling(response) == {
        "frequency_penalty": 0,
        "ignore_eos": False,
        "max_tokens": 7,
        "n": 1,
        "presence_penalty": 0,
        "seed": 3,
        "stop": "end",
        "temperature": 1,
        "top_p": 1,
    }
    assert sampling(completion(openai))["max_tokens"] == 16


def test_a_model_with_an_input_for_each_parameter_gets_those_that_it_has(openai: ServerPort) -> None:
    response = completion(openai, "hello", "talker", seed=-1, stop=["a", "b"], temperature=0.25, top_p=0.5)
    assert inputs_of(response) == {
        "text_input": ["hello"],
        "stream": [False],
        "max_tokens": [16],
        "stop_words": ["a", "b"],
        "temperature": [0.25],
        "seed": [2**64 - 1],
    }


def test_a_completion(openai: ServerPort) -> None:
    found = loaded(completion(openai, "say one\nsay two"))
    assert found.pop("id").startswith("cmpl-")
    assert found.pop("created") > 0
    assert found == {
        "object": "text_completion",
        "model": "words",
        "system_fingerprint": None,
        "choices": [{"index": 0, "text": "onetwo", "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }
    # A model that counts no tokens.
    assert loaded(completion(openai, "say one", "talker"))["usage"] is None


def test_why_a_text_ends(openai: ServerPort) -> None:
    assert choice(completion(openai, "say length"))["finish_reason"] == "length"


def test_the_prompt_before_its_completion(openai: ServerPort) -> None:
    assert inputs_of(completion(openai, echo=True))["exclude_input_in_output"] == [False]


def test_logprobs(openai: ServerPort) -> None:
    found = choice(completion(openai, "say a", logprobs=2))
    assert found["logprobs"] == {
        "text_offset": [0],
        "tokens": ["a"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"a": -0.5, "b": -1.5}],
    }
    assert sampling(completion(openai, logprobs=2))["logprobs"] == 2
    assert choice(completion(openai, "say a", logprobs=0))["logprobs"] is None
    assert "only for the vLLM backend" in refused(completion(openai, model="talker", logprobs=2), 400)


def test_an_adapter_behind_the_name_of_its_model(openai: ServerPort) -> None:
    response = completion(openai, model="words+pirate")
    assert sampling(response)["lora_name"] == "pirate"
    assert loaded(response)["model"] == "words+pirate"
    assert "for vLLM models only" in refused(completion(openai, model="talker+pirate"), 400)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"suffix": "x"}, "suffix is not currently supported"),
        ({"prompt": ""}, "prompt must be non-empty"),
        ({"prompt": ["a", "b"]}, "only single string input is supported"),
        ({"n": 2}, "Received n=2, but only single choice (n=1) is currently supported"),
        ({"best_of": 1}, "best_of is no longer supported in vLLM backend"),
        ({"logit_bias": {"0": 1}}, "logit bias is not supported"),
        ({"stream_options": {"include_usage": True}}, "`stream_options` can only be used when `stream` is True"),
        ({"model": "nobody"}, "Unknown model: nobody"),
        ({"model": ""}, "Unknown model: "),
        ({"model": "same"}, "it has no input 'text_input', only 'INPUT0'"),
    ],
)
def test_what_cannot_be_had(openai: ServerPort, more: dict[str, object], text: str) -> None:
    assert text in refused(openai.post(COMPLETIONS, {"model": "words", "prompt": "hello", **more}), 400)


def test_best_of_where_it_is_no_parameter_of_vllm(openai: ServerPort) -> None:
    assert completion(openai, model="talker", best_of=1).status == 200
    assert "only single choice (best_of=1)" in refused(completion(openai, model="talker", best_of=2), 400)


@pytest.mark.parametrize(
    ("more", "problems"),
    [
        ({"temperature": 2.5}, [("temperature", "Input should be less than or equal to 2")]),
        ({"temperature": "hot"}, [("temperature", "Input should be a valid number")]),
        ({"max_tokens": -1}, [("max_tokens", "Input should be greater than or equal to 0")]),
        ({"max_tokens": 1.5}, [("max_tokens", "Input should be a valid integer")]),
        ({"max_tokens": True}, [("max_tokens", "Input should be a valid integer")]),
        ({"logprobs": 6}, [("logprobs", "Input should be less than or equal to 5")]),
        ({"stream": 1}, [("stream", "Input should be a valid boolean")]),
        ({"prompt": 5}, [("prompt", "Input should be a valid string")]),
        ({"prompt": None}, [("prompt", "Input should be a valid string")]),
        ({"model": None}, [("model", "Input should be a valid string")]),
        ({"teperature": 1}, [("teperature", "Extra inputs are not permitted")]),
        ({"n": 0, "top_p": 2}, [("n", "Input should be greater than or equal to 1"), ("top_p", "less than or equal")]),
    ],
)
def test_members_that_are_wrong(openai: ServerPort, more: dict[str, object], problems: list[tuple[str, str]]) -> None:
    response = openai.post(COMPLETIONS, {"model": "words", "prompt": "hello", **more})
    refused(response, 422)
    found = {(entry["loc"][-1], entry["msg"]) for entry in response.json()["detail"]}
    assert len(found) == len(problems)
    for member, text in problems:
        assert any(name == member and text in message for name, message in found), found


def test_bodies_that_are_no_requests(openai: ServerPort) -> None:
    assert "failed to parse the request JSON buffer" in refused(openai.post(COMPLETIONS, b'{"model"'), 400)
    assert "valid dictionary" in refused(openai.post(COMPLETIONS, b"[]"), 422)
    both = openai.post(COMPLETIONS, b"{}")
    refused(both, 422)
    assert [entry["msg"] for entry in both.json()["detail"]] == ["Field required", "Field required"]
    many = openai.post(COMPLETIONS, {f"member {at}": at for at in range(1000)})
    refused(many, 422)
    assert len(many.body) < 20_000


def test_members_of_openai_that_concern_its_own_service_are_taken(openai: ServerPort) -> None:
    given = {"user": "u", "store": False, "metadata": {"a": "b"}, "service_tier": "auto"}
    assert "user" not in sampling(completion(openai, **given))


def test_a_long_prompt(openai: ServerPort) -> None:
    prompt = "x" * 200_000
    assert inputs_of(completion(openai, prompt))["text_input"] == [prompt]


def test_an_error_of_the_model(openai: ServerPort) -> None:
    response = completion(openai, "say fail at once")
    assert "no luck" in refused(response, 500)
    assert response.json()["error"]["type"] == "server_error"


def test_a_body_that_is_too_large(openai: ServerPort) -> None:
    response = openai.request("POST", COMPLETIONS, json.dumps({"a": "x"}).encode(), {"Content-Length": str(1 << 40)})
    assert response.status == 413
