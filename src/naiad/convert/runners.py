"""Converted models run by their own frameworks, without Naiad: what verification compares."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.outputs import Arrays, as_arrays
from naiad.convert.signature import SourceSignature
from naiad.convert.source import torch_tensors

Sample = Mapping[str, np.ndarray[Any, Any]]
Runner = Callable[[Sample], Arrays]


def open_runner(target: str, made: Mapping[str, Any], signature: SourceSignature) -> Runner:
    """A function from a sample to the outputs, with the signature's names.

    Args:
        target: the format's name.
        made: what the step returned that made the file.

    Raises:
        StepError: nothing here runs the format.
    """
    opener = _OPENERS.get(target.partition("-int8")[0])
    if opener is None:
        raise StepError(f"nothing here runs {target}")
    outputs = [tensor.name for tensor in signature.outputs]
    call = opener(str(made.get("callable", made["file"])), made["inputs"], made["outputs"], signature)
    return lambda sample: as_arrays(call(sample), outputs)


def _torchscript(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    import torch

    with warnings.catch_warnings():
        # torch has deprecated TorchScript, which the caller knows.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(file, map_location="cpu").eval()

    def call(sample: Sample) -> Any:
        with torch.inference_mode():
            return module(*torch_tensors(sample))

    return call


def _exported(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    import torch

    module = torch.export.load(file).module()

    def call(sample: Sample) -> Any:
        with torch.inference_mode():
            return module(*torch_tensors(sample))

    return call


def _compiled(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    import torch
    from torch._inductor import aoti_load_package

    module = aoti_load_package(file)

    def call(sample: Sample) -> Any:
        with torch.inference_mode():
            return module(*torch_tensors(sample))

    return call


def _onnx(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    known = {one.name for one in session.get_inputs()}

    def call(sample: Sample) -> Any:
        # An exporter leaves out an input that nothing reads.
        given = {name: array for name, array in zip(inputs, sample.values(), strict=True) if name in known}
        return list(session.run(list(outputs), given))

    return call


def _openvino(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    import openvino

    core = openvino.Core()
    # On processors with bfloat16 it would be the default.
    compiled = core.compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()

    def call(sample: Sample) -> Any:
        found = request.infer(dict(zip(inputs, sample.values(), strict=True)))
        return [np.array(found[name]) for name in outputs]

    return call


def _saved_model(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    import tensorflow as tf

    loaded = tf.saved_model.load(file)
    function = loaded.signatures[
        "serving_default" if "serving_default" in loaded.signatures else next(iter(loaded.signatures))
    ]

    def call(sample: Sample) -> Any:
        given = {name: tf.constant(array) for name, array in zip(inputs, sample.values(), strict=True)}
        found = function(**given)
        return [found[name] for name in outputs] if loaded is not None else None

    return call


def _forest(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    import treelite

    forest = treelite.Model.deserialize(file)
    wanted = signature.outputs[0].shape

    def call(sample: Sample) -> Any:
        rows = next(iter(sample.values())).astype(np.float32)
        found = np.asarray(treelite.gtil.predict(forest, rows))
        found = found.reshape(len(rows), -1)
        # The probability of class 1, where the source returns both.
        if found.shape[1] == 1 and len(wanted) == 2 and wanted[1] == 2:
            found = np.concatenate([1 - found, found], axis=1)
        return [found]

    return call


def _python(file: str, inputs: Sequence[str], outputs: Sequence[str], signature: SourceSignature) -> Any:
    from naiad.convert.source import load_source

    return load_source(file).call


_OPENERS: Final[Mapping[str, Callable[..., Any]]] = {
    "torchscript-trace": _torchscript,
    "torchscript-script": _torchscript,
    "torch-export": _exported,
    "aotinductor": _compiled,
    "onnx": _onnx,
    "onnx-trace": _onnx,
    "openvino": _openvino,
    "openvino-fp16": _openvino,
    "savedmodel": _saved_model,
    "treelite": _forest,
    "python": _python,
}
