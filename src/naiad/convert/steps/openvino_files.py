"""OpenVINO's intermediate representation, from ONNX, torch.export or a SavedModel; FP32, FP16 and INT8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from naiad.convert.errors import StepError
from naiad.convert.samples import load_samples
from naiad.convert.signature import SourceSignature


def convert(parent: str, signature: dict[str, Any], file: str, half: bool, names: dict[str, Any]) -> dict[str, Any]:
    """FP32, or FP16 weights with ``half``."""
    import openvino

    known = SourceSignature.from_json(signature)
    if parent.endswith(".pt2"):
        import torch

        model = openvino.convert_model(torch.export.load(parent))
    else:
        model = openvino.convert_model(parent)
    _name_ports(model, known, names)
    openvino.save_model(model, file, compress_to_fp16=half)
    return _made(file, known)


def quantize(parent: str, samples: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """INT8 by NNCF, with ranges from the samples."""
    import nncf
    import openvino

    known = SourceSignature.from_json(signature)
    model = openvino.Core().read_model(parent)
    inputs = [{port.any_name: sample[port.any_name] for port in model.inputs} for sample in load_samples(samples)]
    made = nncf.quantize(model, nncf.Dataset(inputs), subset_size=len(inputs))
    openvino.save_model(made, file)
    notes = ["ranges are those of the samples: give those that the model will see"]
    return {**_made(file, known), "notes": notes}


def _name_ports(model: Any, signature: SourceSignature, names: dict[str, Any]) -> None:
    """Give inputs and outputs the signature's names. Ports are found by the parent's names, or else by their order."""
    for ports, wanted, given in (
        (model.inputs, signature.inputs, names["inputs"]),
        (model.outputs, signature.outputs, names["outputs"]),
    ):
        if len(ports) != len(wanted):
            raise StepError(f"the model has {len(ports)} tensors after the conversion, and {len(wanted)} before")
        by_name = {name: port for port in ports for name in port.get_names()}
        ordered = [by_name[name] for name in given] if set(given) <= set(by_name) else ports
        for port, tensor in zip(ordered, wanted, strict=True):
            port.get_tensor().set_names({tensor.name})


def _made(file: str, signature: SourceSignature) -> dict[str, Any]:
    assert Path(file).with_suffix(".bin").exists()
    inputs, outputs = [t.name for t in signature.inputs], [t.name for t in signature.outputs]
    return {"file": file, "inputs": inputs, "outputs": outputs, "notes": []}
