"""Embeddings: as numbers and as base64, and what is refused."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from support.openai_requests import EMBEDDINGS, refused
from support.server_port import ServerPort, loaded


def test_an_embedding(openai: ServerPort) -> None:
    found = loaded(openai.post(EMBEDDINGS, {"model": "embedder", "input": "hello"}))
    wanted = json.dumps({"input": "hello", "pooling_params": {}}, separators=(",", ":"))
    assert found == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, len(wanted)]}],
        "model": "embedder",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }


def test_an_embedding_as_base64_and_of_tokens(openai: ServerPort) -> None:
    given = {"model": "embedder", "input": [1, 2], "encoding_format": "base64", "dimensions": 4}
    (found,) = loaded(openai.post(EMBEDDINGS, given))["data"]
    wanted = json.dumps({"input": [1, 2], "pooling_params": {"dimensions": [4]}}, separators=(",", ":"))
    assert np.frombuffer(base64.b64decode(found["embedding"]), np.float32).tolist() == [0.5, len(wanted)]


@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        ({"model": "nobody"}, 400, "Unknown model: nobody"),
        ({"model": "talker"}, 400, "do not support embedding requests"),
        ({"model": "words"}, 400, "it has no input 'embedding_request'"),
        ({"model": 123}, 422, "Input should be a valid string"),
        ({"input": ""}, 422, "Value should have at least 1 item after validation, not 0"),
        ({"input": []}, 422, "Value should have at least 1 item after validation, not 0"),
        ({"input": None}, 422, "Input should be a valid string"),
        ({"input": 1.5}, 422, "Input should be a valid string"),
        ({"dimensions": "x"}, 422, "Input should be a valid integer"),
        ({"encoding_format": "hex"}, 422, "Input should be 'float' or 'base64'"),
    ],
)
def test_what_is_refused(openai: ServerPort, more: dict[str, object], status: int, text: str) -> None:
    assert text in refused(openai.post(EMBEDDINGS, {"model": "embedder", "input": "hello", **more}), status)
