"""What SageMaker's variables say about its port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from naiad.errors import OptionError

UNSPECIFIED: Final = "unspecified_SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
"""The reference's name for a model that nobody named: the error for it says what to set."""
INFERENCE_TYPES: Final = ("infer", "generate", "generate_stream")
READY: Final = "ready"
LIVE: Final = "live"
MODELS_ROOT: Final = Path("/opt/ml/models")
"""Where SageMaker puts the files of models."""


@dataclass(frozen=True, slots=True)
class SageMakerSettings:
    """How the port serves.

    Attributes:
        model: serves ``/invocations``.
        inference_type: the route of the v2 API that ``/invocations`` stands for.
        ping_mode: whether ``/ping`` says that the server is ready, or that it is live.
        models_root: the folder below which models may be loaded.
    """

    model: str = UNSPECIFIED
    inference_type: str = INFERENCE_TYPES[0]
    ping_mode: str = READY
    models_root: Path = MODELS_ROOT

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SageMakerSettings:
        """The settings that the variables make.

        Raises:
            OptionError: a value is none of those that are known.
        """
        # Such a server is pinged before its first model, and one that cannot be loaded must not end it.
        default_mode = LIVE if environ.get("SAGEMAKER_MULTI_MODEL") == "true" else READY
        return cls(
            environ.get("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME") or UNSPECIFIED,
            _one_of(environ, "SAGEMAKER_TRITON_INFERENCE_TYPE", INFERENCE_TYPES, INFERENCE_TYPES[0]),
            _one_of(environ, "SAGEMAKER_TRITON_PING_MODE", (READY, LIVE), default_mode),
            Path(environ.get("SAGEMAKER_MODELS_DIRECTORY") or MODELS_ROOT).absolute(),
        )


def _one_of(environ: Mapping[str, str], variable: str, words: tuple[str, ...], default: str) -> str:
    found = environ.get(variable) or default
    if found not in words:
        raise OptionError(f"Invalid {variable} '{found}': must be one of {', '.join(words)}")
    return found
