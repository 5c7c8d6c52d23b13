"""BentoML: a service whose routes take the batches that BentoML makes. It reads JSON and forms, no plain bytes."""

# BentoML reads the annotations: they may not be text here.
from typing import Annotated, Any

import bentoml
import numpy as np
from bentoml.validators import DType
from network import MAX_BATCH_SIZE, ROW, TIMEOUT_S, WORKERS, Network, base64_of, row_of_base64

BATCHED: dict[str, Any] = {"batchable": True, "max_batch_size": MAX_BATCH_SIZE, "max_latency_ms": TIMEOUT_S * 1000}
Numbers = Annotated[np.ndarray, DType("float32")]


@bentoml.service(workers=WORKERS, traffic={"timeout": TIMEOUT_S}, logging={"access": {"enabled": False}})
class Scorer:
    """One network."""

    def __init__(self) -> None:
        self.network = Network()

    @bentoml.api(route="/json", **BATCHED)
    def of_values(self, rows: Numbers) -> Numbers:
        """Numbers in, [batch, values]; numbers out."""
        return self.network.run(rows.reshape(-1, *ROW))

    @bentoml.api(route="/b64", **BATCHED)
    def of_base64(self, rows: list[str]) -> list[str]:
        """Base64 in, base64 out."""
        return [base64_of(scores) for scores in self.network.run(np.stack([row_of_base64(row) for row in rows]))]
