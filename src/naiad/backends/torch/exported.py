"""Archives of ``torch.export``: reading them without running pickles, their signature, and running them as they are."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.import_lock import IMPORT_LOCK
from naiad.backends.torch.archive import check_file, kind_of
from naiad.backends.torch.flat_signature import FlatSignature, FlatTensor, input_places, places
from naiad.errors import ModelLoadError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_SAMPLES = "data/sample_inputs/"
_OPAQUE = "opaque_obj"
_NODE: Final = re.compile(r"Failed deserializing node Node\(target='(?:torch\.ops\.)?([\w.]+?)(?:\.default)?'")
_LOST_PART: Final = re.compile(r"failed locating file (\S+): file not found")


@dataclass(frozen=True, slots=True)
class ExportedProgram:
    """A loaded archive.

    Attributes:
        program: torch's own object.
        module: its ``module()``, which checks its inputs itself.
        guard: checks the shapes of a list of inputs and raises AssertionError; None in a torch that has none.
        mutates: whether a run may write to its inputs or to buffers of the model.
        uncompilable: why it must run as it is; "" when it can be compiled.
    """

    program: Any
    module: Any
    signature: FlatSignature
    guard: Callable[..., Any] | None
    mutates: bool
    uncompilable: str

    def runner(self, model: str, device: str | None) -> Callable[[list[Any]], Sequence[Any]]:
        """A function from the list of input tensors to the list of returned values.

        ``device`` is where the program goes, and where its inputs are; None leaves it where it was exported.

        Raises:
            ModelLoadError: it cannot be moved there.
        """
        import torch.utils._pytree as pytree

        structure, module = self.program.call_spec.in_spec, self.module
        if is_elsewhere(self.program, device):
            module = moved(model, self.program, device).module()
        arguments = _arguments(self.program)
        tree_unflatten, tree_leaves = pytree.tree_unflatten, pytree.tree_leaves

        def run(tensors: list[Any]) -> Sequence[Any]:
            given = iter(tensors)
            leaves = [next(given) if is_tensor else value for is_tensor, value in arguments]
            args, kwargs = tree_unflatten(leaves, structure)
            returned: Sequence[Any] = tree_leaves(module(*args, **kwargs))
            return returned

        return run


def load_exported(model: str, path: Path) -> ExportedProgram:
    """The program in ``path``.

    Raises:
        ModelLoadError: it is no such archive, damaged, of another version of torch, or needs pickles to be run.
    """
    import torch

    check_file(model, path)
    # torch 2.11 says so of every archive, and nobody could do anything about it.
    warnings.filterwarnings("ignore", message="The given buffer is not writable", category=UserWarning)
    written_by = _inspect(model, path)
    warned: list[BaseException] = []
    try:
        # torch keeps the state of a load in a global variable, and imports parts of itself.
        with IMPORT_LOCK, _warnings_in(warned):
            program = torch.export.load(str(path))
            module = program.module()
    except Exception as error:
        cause = warned[0] if warned else error.__cause__ or error.__context__ or error
        raise ModelLoadError(
            f"model '{model}': torch {torch.__version__} cannot load {path}, which torch {written_by} has written: "
            f"{_problem(cause, torch.__version__, written_by)}"
        ) from error
    return _described(program, module)


def is_elsewhere(program: Any, device: str | None) -> bool:
    """Whether a program has tensors on another device, or makes them there; never for None."""
    import torch

    if device is None:
        return False
    wanted = torch.device(device)
    held = [*program.state_dict.values(), *program.constants.values()]
    held += [node.meta.get("val") for node in program.graph.nodes]
    return any(isinstance(value, torch.Tensor) and value.device != wanted for value in held)


def moved(model: str, program: Any, device: str | None) -> Any:
    """The program itself, with its weights, its constants and the tensors that it makes moved to ``device``.

    Raises:
        ModelLoadError: this version of torch cannot, or the program does not allow it.
    """
    import torch

    try:
        from torch.export.passes import move_to_device_pass

        return move_to_device_pass(program, device)
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': torch {torch.__version__} cannot move the program to {device}: {first_line(error)}; "
            f"export the model on that device, or write kind: KIND_CPU"
        ) from error


@contextmanager
def _warnings_in(errors: list[BaseException]) -> Iterator[None]:
    """Keep torch's warnings out of the log, and the errors that they report, which torch's own error leaves out."""

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            errors.append(record.exc_info[1])
        return False

    logger = logging.getLogger("torch.export")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def _problem(error: BaseException, here: str, written_by: str) -> str:
    """The reason of a failed load, and a remedy."""
    text = first_line(error)
    if part := _LOST_PART.search(text):
        return f"it has no part {part[1]}; the file is incomplete, copy or export it again"
    other = f"install torch {written_by}, or " if written_by != here else ""
    if operator := _NODE.search(text):
        return (
            f"this torch has no operator {operator[1]}; {other}export the model without it. Operators of other "
            f"packages are not imported"
        )
    return f"{text}; {other}export the model again with torch {here}"


def _inspect(model: str, path: Path) -> str:
    """Refuse an archive that needs pickles; the version of torch that has written it."""
    try:
        with zipfile.ZipFile(path) as archive:
            by_name = {name.partition("/")[2]: name for name in archive.namelist()}
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} has a wrong checksum")
            programs = [json.loads(archive.read(full)) for name, full in by_name.items() if _is_program(name)]
            pickles = list(_pickles(archive, by_name))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ModelLoadError(
            f"model '{model}': {path} cannot be read as an archive of torch.export: {first_line(error)}; it is damaged "
            f"or cut short, copy or export it again"
        ) from error
    if not programs:
        raise ModelLoadError(
            f"model '{model}': {path} is {kind_of(path).value} without a program that this torch can read; write it "
            f"again with torch.export.save() of a current torch"
        )
    if pickles:
        raise ModelLoadError(
            f"model '{model}': {path} holds Python objects as pickles ({', '.join(pickles)}), which can run any code; "
            f"Naiad loads weights only. Export the model with plain dense tensors as weights, constants and examples"
        )
    return str(programs[0].get("torch_version", "of an unknown version"))


def _is_program(name: str) -> bool:
    return name.startswith("models/") and name.endswith(".json")


def _pickles(archive: zipfile.ZipFile, by_name: dict[str, str]) -> Iterator[str]:
    """The parts of an archive that torch would unpickle without any limit."""
    import torch

    for name, full in by_name.items():
        if name.endswith("_config.json"):
            entries = json.loads(archive.read(full)).get("config", {})
            yield from (key for key, entry in entries.items() if entry.get("use_pickle"))
        elif _OPAQUE in name or (name.startswith(("data/weights/", "data/constants/")) and name.endswith(".pt")):
            yield name
        elif name.startswith(_SAMPLES):
            try:
                # torch does the same, and falls back to running the pickle when it fails.
                torch.load(io.BytesIO(archive.read(full)), weights_only=True)
            except Exception:
                yield name


def _described(program: Any, module: Any) -> ExportedProgram:
    mutates = _mutates(program)
    guard = getattr(module, "_guards_fn", None)
    return ExportedProgram(
        program,
        module,
        read_signature(program),
        None if guard is None else guard.forward,
        mutates,
        _uncompilable(program, guard),
    )


def _mutates(program: Any) -> bool:
    """True also for a program that writes to its own temporary tensors alone, as the graph does not tell them apart."""
    kinds = {spec.kind.name for spec in program.graph_signature.output_specs}
    operators = (getattr(node.target, "_schema", None) for node in program.graph.nodes if node.op == "call_function")
    return bool(kinds & {"USER_INPUT_MUTATION", "BUFFER_MUTATION"}) or any(s and s.is_mutable for s in operators)


def read_signature(program: Any) -> FlatSignature:
    """The tensors that a program takes and returns; constants among them have no names."""
    import torch.utils._pytree as pytree

    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    outputs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name.startswith("USER_OUTPUT")]
    return FlatSignature(
        tuple(_tensors(inputs, input_places(program.call_spec.in_spec, pytree), values, True)),
        tuple(_tensors(outputs, places("RESULT", program.call_spec.out_spec, pytree), values, False)),
        _batch_limit(program, inputs, values),
    )


def _tensors(
    arguments: Sequence[Any], at: Sequence[str], values: dict[str, Any], is_input: bool
) -> Iterator[FlatTensor]:
    count = 0
    for index, (argument, place) in enumerate(zip(arguments, at, strict=True)):
        if not _is_tensor(argument):
            continue
        value = values[argument.name]
        # A program takes its tensors alone, but returns constants as well.
        position = count if is_input else index
        axes = tuple(axis if isinstance(axis, int) else str(axis) for axis in value.shape)
        yield FlatTensor(place, argument.name if is_input else "", position, str(value.dtype), axes)
        count += 1


def _batch_limit(program: Any, inputs: Sequence[Any], values: dict[str, Any]) -> int | None:
    shapes = [values[argument.name].shape for argument in inputs if _is_tensor(argument)]
    symbols = {str(shape[0]) for shape in shapes if len(shape) and not isinstance(shape[0], int)}
    limits = [bounds.upper for symbol, bounds in program.range_constraints.items() if str(symbol) in symbols]
    return min((int(limit) for limit in limits if limit.is_Integer), default=None)


def _arguments(program: Any) -> list[tuple[bool, Any]]:
    """For each leaf of the call: whether it is a tensor, and its value when it is a constant."""
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    return [(_is_tensor(argument), getattr(argument, "value", None)) for argument in specs]


def _is_tensor(argument: Any) -> bool:
    return type(argument).__name__ == "TensorArgument"


def _uncompilable(program: Any, guard: Any) -> str:
    """Why compiled code would be unsafe or wrong for inputs as they come: it reads memory as the example lay there."""
    if guard is None:
        return "this version of torch does not export the checks of its input shapes"
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.name in names and hasattr(value, "is_contiguous") and not value.is_contiguous():
            return f"its example of the argument '{node.name}' was not contiguous in memory, as all inputs here are"
    return ""
