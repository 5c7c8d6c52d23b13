"""What several files of these tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.certificates import Authority, new_authority
from support.served_models import identity, write_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the model ``same``, which gives a vector of FP32 back."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "same", identity("TYPE_FP32", "-1"))
    return folder


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that signs certificates."""
    return new_authority(tmp_path_factory.mktemp("certificates"), "authority")
