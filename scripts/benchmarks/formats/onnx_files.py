"""ONNX files of the networks, and what reads them: onnxruntime and OpenVINO."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

from .form import Array, Caller, Format
from .subjects import DENSENET, SUBJECTS


def write_onnx(network: str, path: Path) -> None:
    """By torch's exporter that traces, which needs no further package."""
    import torch

    from . import networks

    (sample,) = (torch.from_numpy(s.sample(ONNX)) for s in (*SUBJECTS, DENSENET) if s.name == network)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        module = networks.make(network)
        torch.onnx.export(module, (sample,), str(path), dynamo=False, input_names=["x"], output_names=["y"])


def load_onnx(path: Path, threads: int) -> Caller:
    """A session as an application makes it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def call(x: Array) -> Array:
        answer: Array = session.run(None, {"x": x})[0]
        return answer

    return call


def write_ir(network: str, path: Path) -> None:
    """Converted from the ONNX file, weights in full precision."""
    import openvino

    source = path.with_suffix(".onnx")
    write_onnx(network, source)
    openvino.save_model(openvino.convert_model(source), path, compress_to_fp16=False)
    source.unlink()


def load_ir(path: Path, threads: int) -> Caller:
    """Compiled for one stream."""
    import openvino

    properties = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": "1", "ENABLE_CPU_PINNING": False}
    compiled = openvino.Core().compile_model(str(path), "CPU", properties)

    def call(x: Array) -> Array:
        answer: Array = compiled(x)[0]
        return answer

    return call


ONNX = Format(
    "onnx",
    needs=("torch", "onnx", "onnxruntime"),
    file="model.onnx",
    backend="onnxruntime",
    threads="intra_op_thread_count",
    networks=("resnet50", "dense", "bert_tiny"),
    write=write_onnx,
    load=load_onnx,
)
OPENVINO = Format(
    "openvino",
    needs=("torch", "onnx", "openvino", "naiad.backends.openvino.backend"),
    file="model.xml",
    backend="openvino",
    threads="INFERENCE_NUM_THREADS",
    networks=("resnet50", "dense", "bert_tiny"),
    write=write_ir,
    load=load_ir,
)
