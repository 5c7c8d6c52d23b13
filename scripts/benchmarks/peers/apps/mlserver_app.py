"""MLServer: a runtime of its own, which takes the batches of MLServer's adaptive batching."""

from __future__ import annotations

import base64

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from network import ROW, WIRE, Network


class Scorer(MLModel):
    """One network. Base64 comes as elements of type BYTES, which MLServer's content type ``base64`` decodes."""

    async def load(self) -> bool:
        """Load it, once for each worker."""
        self.network = Network()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """The scores of all rows of a batch."""
        (given,) = payload.inputs
        if WIRE == "b64":
            rows = np.stack([np.frombuffer(row, np.float32).reshape(ROW) for row in self.decode(given)])
            texts = [base64.b64encode(scores.tobytes()).decode() for scores in self.network.run(rows)]
            output = ResponseOutput(name="scores", datatype="BYTES", shape=[len(texts), 1], data=texts)
        else:
            scores = self.network.run(NumpyCodec.decode_input(given))
            output = NumpyCodec.encode_output("scores", scores)
        return InferenceResponse(model_name=self.name, outputs=[output])
