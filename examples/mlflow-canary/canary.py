"""Register two versions of a model, serve the first, and give the second a share of the requests.

python canary.py, with NAIAD_URL and MLFLOW_TRACKING_URI in the environment.
"""

import os
from collections import Counter

import mlflow
import numpy as np
import onnx
from mlflow.deployments import get_deploy_client
from onnx import TensorProto, helper

from naiad.client import Client

NAME = "scale"


def times(factor: float) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in "xy")
    k = helper.make_tensor("k", TensorProto.FLOAT, [1], [factor])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["y"])], NAME, [x], [y], [k])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def register() -> None:
    registry = mlflow.MlflowClient()
    for alias, factor in (("champion", 2.0), ("challenger", 3.0)):
        # With requirements named, MLflow does not import the model in another process to find them.
        named = {"name": NAME, "registered_model_name": NAME, "pip_requirements": ["onnxruntime"]}
        logged = mlflow.onnx.log_model(times(factor), **named)
        registry.set_registered_model_alias(NAME, alias, logged.registered_model_version)


def shares(url: str) -> dict[str, int]:
    """Which versions serve 100 requests that name none."""
    with Client(url) as client:
        rows = np.ones((1, 2), np.float32)
        return dict(sorted(Counter(client.infer(NAME, {"x": rows}).version for _ in range(100)).items()))


def main() -> None:
    url = os.environ["NAIAD_URL"]
    register()
    deployments = get_deploy_client("naiad")
    deployments.create_deployment(NAME, f"models:/{NAME}@champion", flavor="onnx")
    print("champion:", shares(url))
    deployments.update_deployment(NAME, f"models:/{NAME}@challenger", config={"canary": "10"})
    print("canary:", shares(url))
    deployments.update_deployment(NAME, f"models:/{NAME}@challenger")
    print("promoted:", shares(url))
    deployments.update_deployment(NAME, f"models:/{NAME}@champion")
    print("back:", shares(url))
    deployments.delete_deployment(NAME)


if __name__ == "__main__":
    main()
