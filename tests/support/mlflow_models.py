"""A program of its own: logs models to an MLflow server, some of them directly to S3, and prints their names.

Models whose framework is missing are left out, and those of torch and Keras without ``NAIAD_MLFLOW_ALL``, since their
import takes longer than all tests.
"""

import importlib.util
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import numpy as np
from mlflow.models import infer_signature

ALL = bool(os.environ.get("NAIAD_MLFLOW_ALL"))
X = np.linspace(0, 1, 40, dtype=np.float32).reshape(10, 4)
# MLflow would import the model in another process to find these.
PLAIN = {"pip_requirements": ["mlflow"]}
Y = (X[:, 0] > 0.5).astype(int)


def has(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


def times(factor: float) -> object:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    k = helper.make_tensor("k", TensorProto.FLOAT, [1], [factor])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["y"])], "times", [x], [y], [k])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


class Half(mlflow.pyfunc.PythonModel):
    """Half of an array."""

    def predict(self, context, model_input, params=None):
        return model_input / 2


def log_onnx() -> None:
    for factor in (2.0, 3.0):
        mlflow.onnx.log_model(times(factor), name="times", registered_model_name="times", **PLAIN)
    client = mlflow.MlflowClient()
    client.set_registered_model_alias("times", "champion", "1")
    client.set_registered_model_alias("times", "challenger", "2")


def log_folder() -> None:
    """A model folder with its configuration, logged as it is."""
    import onnx

    with TemporaryDirectory() as folder:
        version = Path(folder) / "1"
        version.mkdir()
        onnx.save(times(5.0), version / "model.onnx")
        (Path(folder) / "config.pbtxt").write_text('backend: "onnxruntime"\nmax_batch_size: 16\n')
        with mlflow.start_run() as run:
            mlflow.log_artifacts(folder, "folder")
    client = mlflow.MlflowClient()
    client.create_registered_model("folder")
    client.create_model_version("folder", f"{run.info.artifact_uri}/folder", run.info.run_id)


def main(direct: str) -> None:
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("direct", artifact_location=direct))
    found = ["times", "folder", "half"]
    log_onnx()
    log_folder()
    mlflow.set_experiment("Default")
    mlflow.pyfunc.log_model(
        name="half", python_model=Half(), registered_model_name="half", signature=infer_signature(X, X), **PLAIN
    )
    if has("sklearn", "skops"):
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression().fit(X, Y)
        mlflow.sklearn.log_model(
            model, name="logistic", registered_model_name="logistic", serialization_format="skops", **PLAIN
        )
        found.append("logistic")
    if has("xgboost"):
        import xgboost

        model = xgboost.XGBClassifier(n_estimators=3).fit(X, Y)
        mlflow.xgboost.log_model(model, name="boosted", registered_model_name="boosted", **PLAIN)
        found.append("boosted")
    if ALL and has("torch"):
        import torch

        mlflow.pytorch.log_model(
            torch.nn.Linear(4, 2),
            name="linear",
            registered_model_name="linear",
            input_example=X,
            serialization_format="pt2",
            **PLAIN,
        )
        found.append("linear")
    if ALL and has("tensorflow", "keras"):
        import keras

        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        mlflow.tensorflow.log_model(model, name="dense", registered_model_name="dense", **PLAIN)
        found.append("dense")
    print(*found)


if __name__ == "__main__":
    main(sys.argv[1])
