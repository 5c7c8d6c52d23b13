"""Packages of AOTInductor: loading them, and what they say of their inputs.

Compiled code reads its inputs without looking at their types or sizes, so both must be known before it runs. A package
names no types; its generated source, which it contains, does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import zipfile
from typing import TYPE_CHECKING, Any

from naiad.backends.torch.archive import check_file
from naiad.backends.torch.compiled_code import code_of
from naiad.backends.torch.extracted import extracted_only_while_loading
from naiad.backends.torch.flat_signature import FlatSignature, FlatTensor, input_places, places
from naiad.errors import ModelLoadError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger("naiad")

_INPUT = re.compile(r"auto (\w+) = std::move\(inputs\[(\d+)\]\);")
_COUNT = re.compile(r"steal_from_raw_handles_to_raii_handles\(input_handles, (\d+)\)")
_DTYPE = re.compile(r"int32_t (\w+)_expected_dtype = aoti_torch_dtype_(\w+)\(\);")
_FIXED = re.compile(r"if \((\d+) != (\w+)_size\[(\d+)\]\)")
_AXIS = re.compile(r"\b(\w+)_(?:size|stride)\[(\d+)\]")
_SIZES = re.compile(r'assert_size_stride\((\w+), \{([^}]*)\}, \{[^}]*\}, "input"\)')
_SYMBOL = re.compile(r"[a-z]\w*")
_CAPABILITIES = {"AVX2": "avx2", "AVX512": "avx512_f", "AVX512_VNNI": "avx512_vnni", "AMX": "amx_tile"}


def load_package(model: str, path: Path, device: str | None, runs_at_once: int) -> Any:
    """The loader of the package in ``path``, for ``device`` (None: the processor, or the GPU that it was made for).

    Raises:
        ModelLoadError: it cannot be loaded, or was compiled for another device or processor.
    """
    import torch

    check_file(model, path)
    _check_device(model, path, device)
    index = int(device.partition(":")[2] or 0) if device is not None and device != "cpu" else -1
    is_for_gpu = index >= 0 or made_for(model, path) not in ("", "cpu")
    try:
        with contextlib.nullcontext() if is_for_gpu else extracted_only_while_loading():
            # Without the public function, which also loads exported programs beside the code, with their pickles.
            return torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, runs_at_once, index)
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': torch {torch.__version__} cannot load the package {path}: {first_line(error)}; copy it "
            f"again, or compile it again with torch {torch.__version__} on a machine like this one"
        ) from error


def load_runner(model: str, path: Path, device: str | None, runs_at_once: int) -> Callable[[list[Any]], Sequence[Any]]:
    """A function from the list of input tensors, which it empties, to the list of returned ones.

    Arguments and errors as ``load_package``.
    """
    check_file(model, path)
    _check_device(model, path, device)
    if (device or made_for(model, path)).startswith("cpu"):
        code = code_of(path, runs_at_once)
        if code is not None:
            return code
        log.info(
            "model '%s': %s runs through torch's own loader, beside which nothing else in the process can run; write "
            "execution=process if it takes long",
            *(model, path),
        )
    run: Callable[[list[Any]], Sequence[Any]] = load_package(model, path, device, runs_at_once).boxed_run
    return run


def made_for(model: str, path: Path) -> str:
    """The device that a package was compiled for, such as ``cuda``; "" where it does not say.

    Raises:
        ModelLoadError: it cannot be read.
    """
    return _metadata(model, path).get("AOTI_DEVICE_KEY", "")


def package_signature(model: str, path: Path, loader: Any) -> FlatSignature:
    """The tensors of a loaded package; types and shapes of outputs are not known."""
    import torch.utils._pytree as pytree

    in_spec, out_spec = (pytree.treespec_loads(text) for text in loader.get_call_spec())
    named = input_places(in_spec, pytree)
    declared = _declared_inputs(path)
    if not declared:
        declared = [FlatTensor("", "", index) for index in range(len(named))]
    # Constants among the arguments are places without a tensor, and the package does not say which.
    at = named if len(named) == len(declared) else [""] * len(declared)
    inputs = [FlatTensor(at[i], "", i, t.type_text, t.axes) for i, t in enumerate(declared)]
    outputs = [FlatTensor(place, "", i) for i, place in enumerate(places("RESULT", out_spec, pytree))]
    return FlatSignature(tuple(inputs), tuple(outputs))


def shape_guard(inputs: Sequence[FlatTensor]) -> Callable[..., None] | None:
    """A function of the input tensors that raises AssertionError where sizes do not fit; None when nothing is known."""
    fixed: list[tuple[int, int, int]] = []
    first: dict[str, tuple[int, int]] = {}
    equal: list[tuple[int, int, int, int]] = []
    for number, tensor in enumerate(inputs):
        for axis, size in enumerate(tensor.axes or ()):
            if isinstance(size, int):
                fixed.append((number, axis, size))
            elif size in first:
                equal.append((*first[size], number, axis))
            elif size:
                first[size] = (number, axis)
    ranks = [(number, len(tensor.axes)) for number, tensor in enumerate(inputs) if tensor.axes is not None]

    def check(*tensors: Any) -> None:
        for number, rank in ranks:
            if tensors[number].dim() != rank:
                raise AssertionError(f"Guard failed: {rank} axes of INPUT__{number}")
        for number, axis, size in fixed:
            if tensors[number].size(axis) != size:
                raise AssertionError(f"Guard failed: size {size} of axis {axis} of INPUT__{number}")
        for number, axis, other, other_axis in equal:
            if tensors[number].size(axis) != tensors[other].size(other_axis):
                raise AssertionError(
                    f"Guard failed: equal sizes of axis {axis} of INPUT__{number} and axis {other_axis} of "
                    f"INPUT__{other}"
                )

    return check if ranks else None


def _declared_inputs(path: Path) -> list[FlatTensor]:
    """The inputs by the generated source; none when the package has no source, or one of another make."""
    source = _source(path)
    count = _COUNT.search(source)
    names = {int(index): name for name, index in _INPUT.findall(source)}
    if count is None or sorted(names) != list(range(int(count[1]))):
        return []
    types = dict(_DTYPE.findall(source))
    if any(name not in types for name in names.values()):
        return []
    axes = {name: _axes(name, source) for name in names.values()}
    return [FlatTensor("", "", i, f"torch.{types[name]}", axes[name]) for i, name in sorted(names.items())]


def _axes(name: str, source: str) -> tuple[int | str, ...]:
    """The sizes of an input; a variable one that is not the same as another is an empty text."""
    rank = max((int(axis) + 1 for found, axis in _AXIS.findall(source) if found == name), default=0)
    sizes: list[int | str] = [""] * rank
    for size, found, axis in _FIXED.findall(source):
        if found == name:
            sizes[int(axis)] = int(size)
    symbols = next((text for found, text in _SIZES.findall(source) if found == name), "")
    for axis, text in enumerate(part.strip() for part in symbols.split(",") if part.strip()):
        if axis < rank and not sizes[axis] and _SYMBOL.fullmatch(text):
            sizes[axis] = text
    return tuple(sizes)


def _source(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        name = next((n for n in archive.namelist() if n.endswith(".wrapper.cpp")), None)
        return archive.read(name).decode(errors="replace") if name else ""


def _check_device(model: str, path: Path, device: str | None) -> None:
    """Refuse a package for another device, or for a processor with instructions that this one lacks."""
    import torch

    made_for = _metadata(model, path)
    kind = made_for.get("AOTI_DEVICE_KEY", "")
    wanted = (device or kind).partition(":")[0]
    if kind and kind != wanted:
        raise ModelLoadError(
            f"model '{model}': {path} was compiled for the device '{kind}', and its instance group is on '{wanted}'; "
            f"compile it for '{wanted}', or write kind: {'KIND_GPU' if kind == 'cuda' else 'KIND_CPU'}"
        )
    read = getattr(torch.cpu, "get_capabilities", None)
    has = read() if read else {}
    words = made_for.get("AOTI_CPU_ISA", "").split()
    lacking = [word for word in words if has.get(_CAPABILITIES.get(word, ""), True) is False]
    if lacking:
        raise ModelLoadError(
            f"model '{model}': {path} was compiled for a processor with {' '.join(words)}, and this one lacks "
            f"{', '.join(lacking)}; compile it on a machine like this one, or give the archive of torch.export instead"
        )


def _metadata(model: str, path: Path) -> dict[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} has a wrong checksum")
            name = next((n for n in archive.namelist() if n.endswith("wrapper_metadata.json")), None)
            found: dict[str, str] = json.loads(archive.read(name)) if name else {}
            return found
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelLoadError(
            f"model '{model}': {path} cannot be read as a package of AOTInductor: {first_line(error)}; it is damaged "
            f"or cut short, copy or compile it again"
        ) from error
