"""The three best classes of each row, with their probabilities."""

import numpy as np
import triton_python_backend_utils as pb_utils

COUNT = 3


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
        shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
        best = np.argsort(-probabilities, axis=1)[:, :COUNT]
        names = np.array([[f"class {index}".encode() for index in row] for row in best], object)
        values = np.take_along_axis(probabilities, best, axis=1).astype(np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("CLASS", names), pb_utils.Tensor("SCORE", values)])
