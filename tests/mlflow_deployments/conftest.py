"""One MLflow server for all tests of the folder: its start takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.mlflow_server import Mlflow, mlflow_server


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    """A server with models."""
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as found:
        yield found
