"""ONNX from torch, TensorFlow, scikit-learn, XGBoost and LightGBM, simplified and checked."""

from __future__ import annotations

import gc
import importlib.util
import runpy
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.signature import SourceSignature
from naiad.convert.source import SourceKind, load_source
from naiad.convert.steps.torch_module import (
    dynamic_axes,
    dynamic_shapes,
    example,
    example_sample,
    flat_module,
    input_names,
    output_names,
    torch_program,
    weight_bytes,
)

_LARGE: Final = 1_800_000_000
"""A protobuf file ends at 2 GiB; from here on the weights are external data."""


def from_torch(model: str, samples: str, signature: dict[str, Any], file: str, opset: int) -> dict[str, Any]:
    """By the exporter that stands on ``torch.export``."""
    import onnxscript  # noqa: F401  # named when it is missing

    known = SourceSignature.from_json(signature)
    return finished(file, known, is_large=_exported(torch_program(model), samples, known, file, opset))


def _exported(program: Any, samples: str, known: SourceSignature, file: str, opset: int) -> bool:
    """Export a module or a program; whether its weights are external data."""
    import torch

    is_program = isinstance(program, torch.export.ExportedProgram)
    if isinstance(program, torch.jit.ScriptModule):
        raise StepError("this exporter takes no TorchScript", "use onnx-trace, or give the module's own code")
    size = weight_bytes(program)
    arguments: dict[str, Any] = {} if not opset else {"opset_version": opset}
    if not is_program:
        arguments["dynamic_shapes"] = dynamic_shapes(known)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            program if is_program else flat_module(program, known),
            example(samples, known),
            file,
            dynamo=True,
            input_names=input_names(known),
            output_names=output_names(known),
            external_data=size > _LARGE,
            verbose=False,
            **arguments,
        )
    return size > _LARGE


def from_torch_traced(model: str, samples: str, signature: dict[str, Any], file: str, opset: int) -> dict[str, Any]:
    """By the older exporter, which stands on TorchScript's tracing."""
    import onnx  # noqa: F401  # named when it is missing

    known = SourceSignature.from_json(signature)
    found = finished(file, known, is_large=_traced(torch_program(model), samples, known, file, opset))
    _restore_inputs(file, known)
    return found


def _traced(program: Any, samples: str, known: SourceSignature, file: str, opset: int) -> bool:
    """Export by tracing; whether the weights are external data."""
    import torch

    if isinstance(program, torch.export.ExportedProgram):
        raise StepError("this exporter takes no exported program", "use onnx, or give the module's own code")
    is_large = weight_bytes(program) > _LARGE
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            program if isinstance(program, torch.jit.ScriptModule) else flat_module(program, known),
            example(samples, known),
            file,
            dynamo=False,
            input_names=input_names(known),
            output_names=output_names(known),
            dynamic_axes=dynamic_axes(known),
            opset_version=opset or 18,
            do_constant_folding=True,
        )
    return is_large


def _restore_inputs(file: str, signature: SourceSignature) -> None:
    """Add the inputs that nothing reads, which this exporter drops: callers send them all the same."""
    import onnx

    model = onnx.load(file, load_external_data=False)
    graph, axes = model.graph, dynamic_axes(signature)
    found = {one.name: one for one in graph.input}
    if all(tensor.name in found for tensor in signature.inputs):
        return
    for tensor in signature.inputs:
        if tensor.name not in found:
            names = axes.get(tensor.name, {})
            shape = [names.get(axis, size) for axis, size in enumerate(tensor.shape)]
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
            found[tensor.name] = onnx.helper.make_tensor_value_info(tensor.name, kind, shape)
    inputs = [found[tensor.name] for tensor in signature.inputs]
    del graph.input[:]
    graph.input.extend(inputs)
    onnx.save(model, file)


def from_saved_model(parent: str, signature: dict[str, Any], file: str, opset: int, names: dict[str, Any]) -> Any:
    """By tf2onnx, which converts graphs of TensorFlow."""
    if importlib.util.find_spec("tf2onnx") is None:
        raise ModuleNotFoundError("No module named 'tf2onnx'", name="tf2onnx")
    words = ["tf2onnx", "--saved-model", parent, "--output", file, "--opset", str(opset or 18)]
    before, sys.argv = sys.argv, words
    try:
        runpy.run_module("tf2onnx.convert", run_name="__main__")
    except SystemExit as ending:
        if ending.code:
            raise StepError(f"tf2onnx ended with {ending.code}", "its log names the operator") from None
    finally:
        sys.argv = before
    found = finished(file, SourceSignature.from_json(signature), is_large=False)
    return {**found, "inputs": names["inputs"], "outputs": names["outputs"]}


def from_estimator(model: str, samples: str, signature: dict[str, Any], file: str, opset: int) -> dict[str, Any]:
    """By skl2onnx, and by onnxmltools for XGBoost and LightGBM."""
    known = SourceSignature.from_json(signature)
    source = load_source(model)
    rows = next(iter(example_sample(samples, known).values()))
    if source.kind is SourceKind.SKLEARN:
        import skl2onnx

        is_classifier = hasattr(source.model, "predict_proba")
        options = {id(source.model): {"zipmap": False}} if is_classifier else None
        made = skl2onnx.to_onnx(source.model, rows[:1], options=options, target_opset=opset or None)
    else:
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [(known.inputs[0].name, FloatTensorType([None, rows.shape[1]]))]
        convert = onnxmltools.convert_xgboost if source.kind is SourceKind.XGBOOST else onnxmltools.convert_lightgbm
        arguments = {"zipmap": False} if source.kind is SourceKind.LIGHTGBM else {}
        made = convert(source.model, initial_types=types, **arguments)
    _keep_scores(made, known)
    Path(file).write_bytes(made.SerializeToString())
    return finished(file, known, is_large=False)


def copied(model: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """The source file as it is, with its external data."""
    import onnx

    source = Path(model)
    shutil.copyfile(source, file)
    loaded = onnx.load(model, load_external_data=False)
    external = {
        entry.value for tensor in loaded.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    for name in external:
        # A path of the model's own must not lead out of its folder.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise StepError(f"{model} has external data at '{name}'", "keep it in the model's own folder")
        (Path(file).parent / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / name, Path(file).parent / name)
    known = SourceSignature.from_json(signature)
    return {"file": file, "inputs": input_names(known), "outputs": output_names(known), "notes": []}


def finished(file: str, signature: SourceSignature, *, is_large: bool) -> dict[str, Any]:
    """Simplify a model where a simplifier is installed, and check it by ONNX's own rules."""
    import onnx

    # The module and what the exporter made of it go before the file is loaded.
    gc.collect()
    notes = ["above 2 GB: the weights are external data"] if is_large else [_simplified(Path(file))]
    onnx.checker.check_model(file)
    return {"file": file, "inputs": input_names(signature), "outputs": output_names(signature), "notes": notes}


def _simplified(path: Path) -> str:
    """Replace a model by a simpler one; what was done, in one line. A simplifier that fails costs nothing."""
    import onnx

    tool = next((name for name in ("onnxslim", "onnxsim") if importlib.util.find_spec(name)), "")
    if not tool:
        return "not simplified: neither onnxslim nor onnxsim is installed"
    simple = path.with_name("simplified.onnx")
    try:
        counts = _simplify(tool, path, simple)
        # Files are checked in half of the memory that models take.
        onnx.checker.check_model(simple, full_check=True)
        simple.replace(path)
    except StepError as error:
        return f"not simplified: {error}"
    except Exception as error:
        return f"not simplified: {tool} failed with {type(error).__name__}: {str(error)[:120]}"
    finally:
        simple.unlink(missing_ok=True)
    return f"simplified by {tool} from {counts[0]} to {counts[1]} nodes"


def _simplify(tool: str, path: Path, simple: Path) -> tuple[int, int]:
    """Write the simpler model; the numbers of nodes before and after.

    Raises:
        StepError: it is another model.
    """
    import onnx

    before = onnx.load(path)
    count, outputs = len(before.graph.node), [one.name for one in before.graph.output]
    if tool == "onnxslim":
        import onnxslim

        made = onnxslim.slim(before)
    else:
        import onnxsim

        made, is_right = onnxsim.simplify(before)
        if not is_right:
            raise StepError("the simplified model gives other outputs")
    if [one.name for one in made.graph.output] != outputs:
        raise StepError(f"{tool} changed the outputs")
    del before
    onnx.save(made, simple)
    return count, len(made.graph.node)


def _keep_scores(model: Any, signature: SourceSignature) -> None:
    """Drop the predicted classes beside probabilities, and give tensors the signature's names."""
    graph = model.graph
    kept = [one for one in graph.output if "label" not in one.name.lower()]
    if len(kept) != len(signature.outputs):
        raise StepError(f"the converter made the outputs {', '.join(one.name for one in graph.output)}")
    renamed = dict(zip([one.name for one in kept], output_names(signature), strict=True))
    renamed |= dict(zip([one.name for one in graph.input], input_names(signature), strict=True))
    del graph.output[:]
    graph.output.extend(kept)
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = renamed.get(name, name)
    for one in (*graph.input, *graph.output):
        one.name = renamed[one.name]
