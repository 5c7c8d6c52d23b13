"""A plan of TensorRT from ONNX, where its package and a GPU are. This has not run on a GPU yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from naiad.convert.errors import StepError
from naiad.convert.samples import load_samples
from naiad.convert.signature import SourceSignature


def plan(parent: str, samples: str, signature: dict[str, Any], file: str, names: dict[str, Any]) -> dict[str, Any]:
    """Build the engine with one profile that spans the samples' shapes.

    Raises:
        StepError: the parser or the builder refuses the model; the text has their errors.
    """
    import tensorrt

    logger = tensorrt.Logger(tensorrt.Logger.WARNING)
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(parent):
        errors = "; ".join(str(parser.get_error(index).desc()) for index in range(parser.num_errors))
        raise StepError(f"TensorRT's parser refuses the model: {errors}", "simplify the model, or try another opset")
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    arrays = load_samples(samples)
    known = SourceSignature.from_json(signature)
    for tensor, name in zip(known.inputs, names["inputs"], strict=True):
        shapes = [sample[tensor.name].shape for sample in arrays]
        least = tuple(min(sizes) for sizes in zip(*shapes, strict=True))
        most = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        profile.set_shape(name, least, shapes[0], most)
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise StepError("TensorRT builds no engine for the model", "the step's log has the builder's own words")
    Path(file).write_bytes(bytes(engine))
    return {"file": file, "inputs": names["inputs"], "outputs": names["outputs"], "notes": ["never run on a GPU here"]}
