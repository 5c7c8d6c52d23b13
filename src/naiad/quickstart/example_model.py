"""What a model of the quickstart is: its configuration, its files, and the packages that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from naiad.extras import how_to_install


@dataclass(frozen=True, slots=True)
class NeededPackage:
    """A package that builds or runs a model.

    Attributes:
        module: what is imported.
        extra: the extra of Naiad that installs it.
    """

    module: str
    extra: str

    @property
    def is_installed(self) -> bool:
        """Whether an import would find it; nothing is imported."""
        return find_spec(self.module) is not None

    @property
    def remedy(self) -> str:
        """That it is missing, and what installs it."""
        return f"the package '{self.module}' is not installed; run: {how_to_install(self.extra)}"


ONNX_BUILDER: Final = NeededPackage("onnx", "quickstart")
ONNX_RUNTIME: Final = NeededPackage("onnxruntime", "onnx")
PILLOW: Final = NeededPackage("PIL", "quickstart")
TENSORFLOW: Final = NeededPackage("tensorflow", "tensorflow")
TORCH: Final = NeededPackage("torch", "torch")
ONNX: Final = (ONNX_BUILDER, ONNX_RUNTIME)


def write_nothing(folder: Path) -> None:
    """Leave a version's folder empty: the backend needs no file."""


@dataclass(frozen=True, slots=True)
class ExampleModel:
    """One model of the repository.

    Attributes:
        name: its name, which is that of its folder.
        summary: one line about what it does.
        config: the text of ``config.pbtxt``.
        write: writes the model file into the folder of version 1. Raises what its packages raise, and ``OSError``.
        packages: what is needed to write it or to serve it.
        members: the models that it runs.
        files: further files of its folder, as texts by name, such as labels.
        request: the body of an inference request for ``curl``; empty where an image is sent instead.
    """

    name: str
    summary: str
    config: str
    write: Callable[[Path], None] = write_nothing
    packages: tuple[NeededPackage, ...] = ()
    members: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)


def tensor_request(**inputs: tuple[str, list[int], list[Any]]) -> dict[str, Any]:
    """The body of an inference request, from the datatype, the shape and the elements of each input."""
    return {
        "inputs": [
            {"name": name, "datatype": datatype, "shape": shape, "data": data}
            for name, (datatype, shape, data) in inputs.items()
        ]
    }


def tensor_field(side: str, name: str, datatype: str, dims: Sequence[int], labels: str = "") -> str:
    """A tensor in the text of a configuration.

    Args:
        side: ``input`` or ``output``.
        name: its name.
        datatype: without ``TYPE_``.
        dims: without the batch's; -1 is a free one.
        labels: the file with the labels of its classes; "" for none.
    """
    lines = [f'name: "{name}"', f"data_type: TYPE_{datatype}", f"dims: [ {', '.join(map(str, dims))} ]"]
    lines += [f'label_filename: "{labels}"'] if labels else []
    text = "".join(f"    {line}\n" for line in lines)
    return f"{side} [\n  {{\n{text}  }}\n]\n"


def tensors(side: str, datatype: str, dims: Sequence[int], *names: str) -> str:
    """Tensors of one datatype and shape."""
    return "".join(tensor_field(side, name, datatype, dims) for name in names)
