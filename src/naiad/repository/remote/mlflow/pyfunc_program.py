"""The Python model that is served for the flavor ``pyfunc``: MLflow loads and runs what was logged.

It runs in the process of a Python model, whose environment has MLflow and what the logged model needs. Inputs and
outputs are those of the model's signature; the columns of a table are inputs with one element for each row.
"""

from __future__ import annotations

from typing import Final

PROGRAM: Final = """\
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils

_TYPES = {
    "boolean": "BOOL",
    "integer": "INT32",
    "long": "INT64",
    "float": "FP32",
    "double": "FP64",
    "string": "STRING",
    "binary": "STRING",
    "bool": "BOOL",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "str": "STRING",
    "object": "STRING",
}
_MAX_BATCH_SIZE = 1024


def _folder():
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.join(here, "logged_model")


def _specs(signature, side):
    return json.loads((signature or {}).get(side) or "[]")


def _tensor(spec, default):
    # The first axis of a tensor is the batch.
    if spec["type"] == "tensor":
        about = spec["tensor-spec"]
        name, dtype, dims = spec.get("name") or default, about["dtype"], about["shape"][1:] or [1]
    else:
        name, dtype, dims = spec.get("name") or default, spec["type"], [1]
    if dtype not in _TYPES:
        raise pb_utils.TritonModelException(f"the signature's '{name}' is {dtype}, expected one of {sorted(_TYPES)}")
    return {"name": name, "data_type": "TYPE_" + _TYPES[dtype], "dims": dims}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        from mlflow.models import Model

        signature = Model.load(_folder()).signature
        about = signature.to_dict() if signature is not None else None
        inputs, outputs = _specs(about, "inputs"), _specs(about, "outputs")
        if not inputs or not outputs:
            raise pb_utils.TritonModelException(
                "the logged model has no signature with inputs and outputs: log it with input_example=, or name the "
                "inputs and outputs in the configuration"
            )
        for index, spec in enumerate(inputs):
            config.add_input(_tensor(spec, f"input_{index}" if len(inputs) > 1 else "input"))
        for index, spec in enumerate(outputs):
            config.add_output(_tensor(spec, f"output_{index}" if len(outputs) > 1 else "output"))
        config.set_max_batch_size(_MAX_BATCH_SIZE)
        return config

    def initialize(self, args):
        import mlflow.pyfunc

        config = json.loads(args["model_config"])
        self._inputs = [(i["name"], i["data_type"] == "TYPE_STRING") for i in config["input"]]
        self._outputs = [
            (o["name"], pb_utils.triton_string_to_numpy(o["data_type"]), len(o["dims"])) for o in config["output"]
        ]
        self._model = mlflow.pyfunc.load_model(_folder())
        signature = self._model.metadata.signature
        specs = _specs(signature.to_dict() if signature is not None else None, "inputs")
        self._is_table = bool(specs) and specs[0]["type"] != "tensor"
        self._is_named = bool(specs) and "name" in specs[0]

    def execute(self, requests):
        responses = []
        for request in requests:
            try:
                responses.append(self._respond(request))
            except Exception as error:
                responses.append(
                    pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))
                )
        return responses

    def _respond(self, request):
        given = {}
        for name, is_text in self._inputs:
            array = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            given[name] = np.array([v.decode() for v in array.flat], object).reshape(array.shape) if is_text else array
        found = self._model.predict(self._argument(given))
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, value) for name, value in self._values(found, len(next(iter(given.values()))))]
        )

    def _argument(self, given):
        if self._is_table:
            import pandas

            return pandas.DataFrame({name: value.reshape(len(value)) for name, value in given.items()})
        return given if self._is_named or len(given) > 1 else next(iter(given.values()))

    def _values(self, found, rows):
        for name, dtype, rank in self._outputs:
            value = found
            if hasattr(found, "columns"):
                value = found[name] if name in found.columns else found
            elif isinstance(found, dict):
                value = found[name]
            elif isinstance(found, tuple):
                value = found[[o[0] for o in self._outputs].index(name)]
            array = np.asarray(value)
            if dtype == np.object_:
                array = np.array([v if isinstance(v, bytes) else str(v).encode() for v in array.flat], object).reshape(
                    array.shape
                )
            # One number for each row is a column.
            yield name, array.astype(dtype).reshape((rows, 1) if array.ndim == 1 and rank == 1 else array.shape)
"""
