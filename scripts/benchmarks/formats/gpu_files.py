"""The networks on a GPU: ONNX Runtime with CUDA, TensorRT and torch, each in single and half precision.

Inputs and outputs are those of single precision in all of them: a half one converts inside the network, so that clients
send the same. TensorRT was never run.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .form import Array, Caller, Format
from .subjects import Subject

ROWS = 8
NETWORKS = ("resnet50", "bert_base")
GPU_SUBJECTS = (
    Subject("resnet50", (ROWS, 3, 224, 224), (ROWS, 1000)),
    Subject("bert_base", (ROWS, 128), (ROWS, 128, 768), below=30_000),
)


def _on_gpu(network: str, is_half: bool) -> tuple[Any, Any]:
    """The module and a sample, both on the first GPU."""
    import torch

    from . import networks

    (sample,) = (torch.from_numpy(s.sample(ONNX_FP32)).cuda() for s in GPU_SUBJECTS if s.name == network)
    module = networks.make(network).cuda()
    if not is_half:
        return module, sample

    class Halved(torch.nn.Module):
        """The network in half precision, between tensors of single precision."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module.half()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.inner(x.half() if x.is_floating_point() else x)
            return answer.float()

    return Halved().eval(), sample


def _write_onnx(is_half: bool, network: str, path: Path) -> None:
    import torch

    module, sample = _on_gpu(network, is_half)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (sample,), str(path), dynamo=False, input_names=["x"], output_names=["y"])


def _write_script(is_half: bool, network: str, path: Path) -> None:
    import torch

    module, sample = _on_gpu(network, is_half)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(module, sample), path)


def _write_plan(is_half: bool, network: str, path: Path) -> None:
    """Built from the ONNX file. Its types are those of the plan."""
    import tensorrt

    source = path.with_suffix(".onnx")
    _write_onnx(is_half, network, source)
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    builder = tensorrt.Builder(logger)
    flags = tensorrt.NetworkDefinitionCreationFlag
    graph = builder.create_network(1 << int(flags.STRONGLY_TYPED))
    parser = tensorrt.OnnxParser(graph, logger)
    if not parser.parse_from_file(str(source)):
        raise RuntimeError("; ".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    plan = builder.build_serialized_network(graph, builder.create_builder_config())
    if plan is None:
        raise RuntimeError(f"TensorRT cannot build {source}")
    path.write_bytes(plan)
    source.unlink()


def _load_onnx(path: Path, threads: int) -> Caller:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])

    def call(x: Array) -> Array:
        answer: Array = session.run(None, {"x": x})[0]
        return answer

    return call


def _load_script(path: Path, threads: int) -> Caller:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.load(path, "cuda:0").eval()

    def call(x: Array) -> Array:
        with torch.inference_mode():
            answer: Array = module(torch.from_numpy(x).cuda()).cpu().numpy()
        return answer

    return call


def _load_plan(path: Path, threads: int) -> Caller:
    """TensorRT with torch's memory and stream, as its own examples have it."""
    import tensorrt
    import torch

    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    engine = tensorrt.Runtime(logger).deserialize_cuda_engine(path.read_bytes())
    context = engine.create_execution_context()
    stream = torch.cuda.Stream()
    target = torch.empty(tuple(engine.get_tensor_shape("y")), device="cuda:0")
    context.set_tensor_address("y", target.data_ptr())

    def call(x: Array) -> Array:
        with torch.cuda.stream(stream):
            source = torch.from_numpy(x).cuda()
            context.set_tensor_address("x", source.data_ptr())
            context.execute_async_v3(stream.cuda_stream)
            answer: Array = target.cpu().numpy()
        return answer

    return call


def _form(
    name: str,
    needs: tuple[str, ...],
    file: str,
    backend: str,
    write: Callable[[bool, str, Path], None],
    load: Callable[[Path, int], Caller],
) -> tuple[Format, Format]:
    """The format in single and in half precision."""
    made = [
        Format(f"{name}_{kind}", ("torch", *needs), file, backend, "", NETWORKS, partial(write, is_half), load)
        for kind, is_half in (("fp32", False), ("fp16", True))
    ]
    return made[0], made[1]


ONNX_FP32, ONNX_FP16 = _form("onnx", ("onnx", "onnxruntime"), "model.onnx", "onnxruntime", _write_onnx, _load_onnx)
GPU_FORMATS = (
    *(ONNX_FP32, ONNX_FP16),
    *_form("tensorrt", ("onnx", "tensorrt", "cuda.bindings"), "model.plan", "tensorrt", _write_plan, _load_plan),
    *_form("torch", (), "model.pt", "pytorch", _write_script, _load_script),
)
