"""One server with the API of OpenAI for all tests of it that need no options of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.language_models import openai_served, write_language_models, write_tokenizer
from support.served_models import identity, write_model
from support.server_port import ServerPort


@pytest.fixture(scope="package")
def language_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_language_models(tmp_path_factory.mktemp("language_models"))
    write_model(folder, "same", identity())
    return folder


@pytest.fixture(scope="package")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="package")
def openai(language_models: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPort]:
    options = ("--tokenizer", tokenizer, "--tool-call-parser=mistral", "--max-tool-call-parse-bytes=256")
    log = tmp_path_factory.mktemp("log") / "log"
    with openai_served(log, language_models, *options, "--lora-separator=+") as port:
        yield port
