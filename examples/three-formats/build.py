"""Write one network in three formats: python build.py models"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (16, 32, 4)
MODULE = """\
import torch


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.second = torch.nn.Linear(32, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
"""
TENSORS = """\
max_batch_size: 32
input [ { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
# On processors with instructions for BF16, OpenVINO would compute in that.
FP32 = 'parameters { key: "HINT_BF16" value { string_value: "NO" } }\n'


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"first": (32, 16), "second": (4, 32)}
    found = {f"{name}.weight": random.normal(size=shape) / 8 for name, shape in shapes.items()}
    found |= {f"{name}.bias": random.normal(size=shape[0]) for name, shape in shapes.items()}
    return {name: value.astype(np.float32) for name, value in found.items()}


def onnx_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "second.weight", "second.bias"], ["y"], transB=1),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in (("x", 16), ("y", 4)))
    kept = [numpy_helper.from_array(value, name) for name, value in weights().items()]
    graph = helper.make_graph(nodes, "network", [x], [y], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def version_folder(repository: Path, name: str, config: str) -> Path:
    folder = repository / name / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "config.pbtxt").write_text(config)
    return folder


def main(repository: Path) -> None:
    folder = version_folder(repository, "network_onnx", f'backend: "onnxruntime"\n{TENSORS}')
    onnx_file = folder / "model.onnx"
    onnx.save(onnx_model(), onnx_file)

    from safetensors.numpy import save_file

    folder = version_folder(repository, "network_pytorch", f'backend: "pytorch"\n{TENSORS}')
    (folder / "model.py").write_text(MODULE)
    save_file(weights(), folder / "model.safetensors")

    import openvino

    folder = version_folder(repository, "network_openvino", f'backend: "openvino"\n{TENSORS}{FP32}')
    openvino.save_model(openvino.convert_model(onnx_file), folder / "model.xml", compress_to_fp16=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
