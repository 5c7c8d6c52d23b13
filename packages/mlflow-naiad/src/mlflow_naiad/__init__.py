"""The target ``naiad`` of ``mlflow deployments``.

MLflow looks in this module for one client class, ``run_local`` and ``target_help``.
"""

from __future__ import annotations

from mlflow_naiad.client import NaiadDeploymentClient
from mlflow_naiad.help import HELP
from mlflow_naiad.local import run_local

__all__ = ["NaiadDeploymentClient", "run_local", "target_help"]


def target_help() -> str:
    """What ``mlflow deployments help -t naiad`` prints."""
    return HELP
