"""LitServe: the API of OpenAI, with a model that says one token again and again."""

from __future__ import annotations

import os
from collections.abc import Iterator

import litserve


class Tokens(litserve.LitAPI):
    """The model."""

    def setup(self, device: str) -> None:
        """Load nothing."""
        self.tokens = ["token "] * int(os.environ["PEER_TOKENS"])

    def predict(self, prompt: object) -> Iterator[str]:
        """The tokens, one by one."""
        yield from self.tokens


if __name__ == "__main__":
    server = litserve.LitServer(Tokens(spec=litserve.OpenAISpec()), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(os.environ["PEER_PORT"]), generate_client_file=False, log_level="warning")
