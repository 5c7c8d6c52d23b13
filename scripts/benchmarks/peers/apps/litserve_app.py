"""LitServe: numbers or base64 in JSON, in the batches that it makes. It reads JSON and forms, no plain bytes."""

from __future__ import annotations

import os
from typing import Any

import litserve
import numpy as np
from network import (
    MAX_BATCH_SIZE,
    MAX_WAIT_MS,
    TIMEOUT_S,
    WIRE,
    WORKERS,
    Array,
    Network,
    base64_of,
    row_of_base64,
    row_of_values,
)


class OfJson(litserve.LitAPI):
    """One network."""

    def setup(self, device: str) -> None:
        """Load it, once for each worker."""
        self.network = Network()

    def decode_request(self, request) -> Array:  # type: ignore[no-untyped-def]
        """The row of a request. Without an annotation LitServe gives the JSON of the body."""
        return row_of_values(request["values"]) if WIRE == "json" else row_of_base64(request["b64"])

    def batch(self, inputs: list[Array]) -> Array:
        """One array of the rows."""
        return np.stack(inputs)

    def predict(self, x: Array) -> Array:
        """The scores of all rows."""
        return self.network.run(x)

    def unbatch(self, output: Array) -> list[Array]:
        """The scores of each row."""
        return list(output)

    def encode_response(self, output: Array) -> dict[str, Any]:
        """The body of a response."""
        return {"scores": output.tolist()} if WIRE == "json" else {"b64": base64_of(output)}


if __name__ == "__main__":
    api = OfJson(max_batch_size=MAX_BATCH_SIZE, batch_timeout=MAX_WAIT_MS / 1000, api_path=f"/{WIRE}")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=WORKERS, timeout=TIMEOUT_S)
    server.run(host="127.0.0.1", port=int(os.environ["PEER_PORT"]), generate_client_file=False, log_level="warning")
