"""Torch's own formats: TorchScript, archives of ``torch.export``, packages of AOTInductor."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from naiad.convert.errors import StepError
from naiad.convert.signature import SourceSignature
from naiad.convert.steps.torch_module import (
    dynamic_shapes,
    example,
    flat_module,
    input_names,
    output_names,
    torch_program,
)


def trace(model: str, samples: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """TorchScript by tracing."""
    import torch

    known = SourceSignature.from_json(signature)
    module = flat_module(torch_program(model), known)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, example(samples, known), check_trace=False, strict=False)
        torch.jit.freeze(traced).save(file)
    return _made(file, known)


def script(model: str, samples: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """TorchScript by compiling the source. The module keeps its own signature, so it has to return plain tensors."""
    import torch

    known = SourceSignature.from_json(signature)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(torch_program(model))
        returned = scripted(*example(samples, known))
        plain = isinstance(returned, torch.Tensor) or all(isinstance(one, torch.Tensor) for one in returned)
        if not plain:
            raise StepError(
                "the scripted model returns something else than a tensor or a tuple of tensors",
                "return these alone, or use torchscript-trace",
            )
        torch.jit.freeze(scripted.eval()).save(file)
    return _made(file, known)


def export(model: str, samples: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """An archive of ``torch.export``."""
    import torch

    known = SourceSignature.from_json(signature)
    found = torch_program(model)
    program = found if isinstance(found, torch.export.ExportedProgram) else exported(found, samples, known)
    torch.export.save(program, file)
    return _made(file, known)


def exported(module: Any, samples: str, signature: SourceSignature) -> Any:
    """The exported program of a module, with the dimensions that vary."""
    import torch

    with torch.no_grad():
        return torch.export.export(
            flat_module(module, signature),
            example(samples, signature),
            dynamic_shapes=_by_name(signature),
        )


def compile_package(parent: str, samples: str, signature: dict[str, Any], file: str) -> dict[str, Any]:
    """A package of AOTInductor from an archive of ``torch.export``.

    It is compiled as the server compiles an archive, and kept where the server looks. ``torch-export``, which is
    measured as it is served, is then not compiled a second time.
    """
    from naiad.backends.torch.compile_cache import PROCESSOR, keep
    from naiad.backends.torch.compile_main import compile_archive
    from naiad.cache_folder import cache_folder

    # Read when torch is imported.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path("inductor").resolve())
    try:
        compile_archive(parent, file, PROCESSOR)
    finally:
        shutil.rmtree("inductor", ignore_errors=True)
    with contextlib.suppress(OSError):
        keep(Path(parent), Path(file), cache_folder("compiled"))
    known = SourceSignature.from_json(signature)
    count = len(known.outputs)
    return {
        "file": file,
        "inputs": [f"INPUT__{i}" for i in range(len(known.inputs))],
        "outputs": [f"OUTPUT__{i}" for i in range(count)],
        "notes": [],
    }


def _by_name(signature: SourceSignature) -> Any:
    """One entry for the variable arguments of the flat forward, which hold all inputs."""
    return dynamic_shapes(signature)


def _made(file: str, signature: SourceSignature) -> dict[str, Any]:
    assert Path(file).exists()
    return {"file": file, "inputs": input_names(signature), "outputs": output_names(signature), "notes": []}
