"""What the variables of a cloud platform say about options: SageMaker and Vertex AI set them in their containers.

Source: the reference's ``command_line_parser.cc`` for Vertex AI, and the start script of its image for SageMaker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class PlatformValue(NamedTuple):
    """The value of an option by a variable of the platform."""

    field: str
    text: str
    variable: str


_PREDICTION = {"allow_vertex_ai": "true", "allow_http": "false", "allow_grpc": "false"}
_VARIABLES = (
    ("vertex_ai_port", "AIP_HTTP_PORT"),
    ("sagemaker_port", "SAGEMAKER_BIND_TO_PORT"),
    ("sagemaker_safe_port_range", "SAGEMAKER_SAFE_PORT_RANGE"),
)


def platform_values(environ: Mapping[str, str], has_repository: bool) -> Iterator[PlatformValue]:
    """The options that the platform sets where nothing else does.

    ``has_repository``: models are named already, so the place of Vertex AI's model is not needed.
    """
    if environ.get("AIP_MODE") == "PREDICTION":
        for field, text in _PREDICTION.items():
            yield PlatformValue(field, text, "AIP_MODE")
    for field, variable in _VARIABLES:
        if text := environ.get(variable, ""):
            yield PlatformValue(field, text, variable)
    if not has_repository and (place := environ.get("AIP_STORAGE_URI", "")):
        yield PlatformValue("model_repository", place, "AIP_STORAGE_URI")
