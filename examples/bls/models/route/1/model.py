"""Calls the model ``simple`` and gives back its sum or its difference; several requests wait at the same time."""

import asyncio

import triton_python_backend_utils as pb_utils

OUTPUTS = {"add": "OUTPUT0", "sub": "OUTPUT1"}


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*(self.respond(request) for request in requests))

    async def respond(self, request):
        operation = pb_utils.get_input_tensor_by_name(request, "OPERATION").as_numpy()[0].decode()
        if operation not in OUTPUTS:
            text = f"OPERATION is '{operation}', expected one of {', '.join(OUTPUTS)}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))
        name = OUTPUTS[operation]
        inner = pb_utils.InferenceRequest(
            model_name="simple",
            requested_output_names=[name],
            inputs=[pb_utils.get_input_tensor_by_name(request, f"INPUT{index}") for index in (0, 1)],
        )
        found = await inner.async_exec()
        if found.has_error():
            return pb_utils.InferenceResponse(error=found.error())
        values = pb_utils.get_output_tensor_by_name(found, name).as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", values)])
