"""mosec: one route with its workers, which take the batches that mosec makes."""

from __future__ import annotations

from typing import Any

import numpy as np
from mosec import Server, Worker
from network import (
    MAX_BATCH_SIZE,
    MAX_WAIT_MS,
    WIRE,
    WORKERS,
    Array,
    Network,
    base64_of,
    row_of_base64,
    row_of_bytes,
    row_of_values,
)


class OfValues(Worker):
    """Numbers in JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def deserialize(self, data: bytes) -> Array:
        """The row of a request."""
        return row_of_values(super().deserialize(data)["values"])

    def serialize(self, data: Array) -> bytes:
        """The body of a response."""
        return self.in_json({"scores": data.tolist()})

    def in_json(self, answer: dict[str, Any]) -> bytes:
        """``answer`` as mosec writes JSON."""
        return Worker.serialize(self, answer)

    def forward(self, data: list[Array]) -> list[Array]:
        """The scores of each row."""
        return list(self.network.run(np.stack(data)))


class OfBase64(OfValues):
    """Base64 in JSON."""

    def deserialize(self, data: bytes) -> Array:
        """The row of a request."""
        return row_of_base64(Worker.deserialize(self, data)["b64"])

    def serialize(self, data: Array) -> bytes:
        """The body of a response."""
        return self.in_json({"b64": base64_of(data)})


class OfBytes(OfValues):
    """Bytes as they are."""

    req_mime_type = "application/octet-stream"
    resp_mime_type = "application/octet-stream"

    def deserialize(self, data: bytes) -> Array:
        """The row of a request."""
        return row_of_bytes(data)

    def serialize(self, data: Array) -> bytes:
        """The body of a response."""
        return data.tobytes()


if __name__ == "__main__":
    server = Server()
    worker = {"json": OfValues, "b64": OfBase64, "binary": OfBytes}[WIRE]
    server.append_worker(
        worker, num=WORKERS, max_batch_size=MAX_BATCH_SIZE, max_wait_time=MAX_WAIT_MS, route=f"/{WIRE}"
    )
    server.run()
