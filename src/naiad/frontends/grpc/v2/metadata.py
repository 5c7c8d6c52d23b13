"""The description of the server and its models: health, metadata, configuration.

Each method gets a request message and returns the response message. Errors are those of the engine.
"""

from __future__ import annotations

from typing import Any

from naiad.config.messages import message_class
from naiad.engine.engine import Engine


class Description:
    """The descriptive methods of ``inference.GRPCInferenceService``, by their names in the protocol."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def server_live(self, request: Any) -> Any:
        """``ServerLive``."""
        return message_class("ServerLiveResponse")(live=self._engine.is_live())

    def server_ready(self, request: Any) -> Any:
        """``ServerReady``."""
        return message_class("ServerReadyResponse")(ready=self._engine.is_ready())

    def model_ready(self, request: Any) -> Any:
        """``ModelReady``: an unknown model is not ready, which is no error.

        Raises:
            InvalidArgumentError: the version is no number.
        """
        return message_class("ModelReadyResponse")(
            ready=self._engine.reports_model_ready(request.name, request.version)
        )

    def server_metadata(self, request: Any) -> Any:
        """``ServerMetadata``."""
        return message_class("ServerMetadataResponse")(**self._engine.server_metadata())

    def model_metadata(self, request: Any) -> Any:
        """``ModelMetadata``; errors as ``Engine.find``."""
        return message_class("ModelMetadataResponse")(**self._engine.model_metadata(request.name, request.version))

    def model_config(self, request: Any) -> Any:
        """``ModelConfig``: the completed configuration; errors as ``Engine.find``."""
        return message_class("ModelConfigResponse")(config=self._engine.model_config(request.name, request.version))
