"""Models that are loaded into a server elsewhere, where they run in processes."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format

from naiad.client.errors import ConnectionFailedError
from naiad.client.sync import Client
from naiad.config.messages import message_class
from naiad.errors import NaiadError
from naiad.pytriton.client.auth import create_auth_headers
from naiad.pytriton.client.url import TritonUrl
from naiad.pytriton.serving.bound_model import BoundTritonModel


class RemoteModels:
    """Loads and unloads models of this program on a server elsewhere."""

    def __init__(self, url: TritonUrl, access_token: str | None) -> None:
        headers = create_auth_headers(access_token, url.scheme) if access_token else {}
        self._client = Client(url.with_scheme, headers=headers)

    def load(self, bound: BoundTritonModel) -> None:
        """Load a model with its function.

        Raises:
            NaiadError: the server refused it.
        """
        version = bound.config.model_version
        files = {f"{version}/{name}": content for name, content in bound.files().items()}
        self._client.load(bound.model, json.dumps(_plain(bound.server_config())), files)

    def unload(self, name: str) -> None:
        """Unload a model, if the server is still there."""
        try:
            self._client.unload(name)
        except NaiadError:
            return

    def is_live(self) -> bool:
        """Whether the server responds."""
        try:
            return self._client.live()
        except (ConnectionFailedError, NaiadError):
            return False

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    message = json_format.ParseDict(config, message_class("ModelConfig")())
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    # Protobuf leaves out what is 0, and without it the server would choose a size.
    return {"max_batch_size": 0} | found
