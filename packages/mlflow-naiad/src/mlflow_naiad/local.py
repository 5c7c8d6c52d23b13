"""``mlflow deployments run-local -t naiad``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlflow.exceptions import MlflowException


def run_local(
    target: str, name: str, model_uri: str, flavor: str | None = None, config: Mapping[str, Any] | None = None
) -> None:
    """Say how to serve a model here, which needs no deployment.

    Raises:
        MlflowException: always.
    """
    raise MlflowException(
        f"serve the model on this machine with: naiad serve '{model_uri}'; then it needs no deployment"
    )
