"""Models that are exported or compiled programs: ``model.pt2``, platform ``torch_aoti``."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.completion import complete
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.shared.signature import ModelTensor, check_signature
from naiad.backends.torch.aoti import load_package, load_runner, package_signature, shape_guard
from naiad.backends.torch.archive import FileKind, check_file, ends_on_bad_index, kind_of
from naiad.backends.torch.compile_cache import PROCESSOR, compiled_from, compiler
from naiad.backends.torch.exported import ExportedProgram, is_elsewhere, load_exported
from naiad.backends.torch.flat_instance import FlatInstance, FlatPlan
from naiad.backends.torch.flat_signature import FlatSignature, FlatTensor, bind_flat
from naiad.backends.torch.model import LoadedModules, TorchModel
from naiad.backends.torch.trial import check_outputs, zero_inputs
from naiad.cache_folder import cache_folder
from naiad.errors import BackendError, ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from naiad.backend_api.backend import BackendContext, Instance
    from naiad.config.spec import ModelSpec, TensorSpec

log = logging.getLogger("naiad")

CACHE_SETTING: Final = "compile-cache"
# All numbers of rows up to here are tried; a program that refuses one of them mostly refuses a small one.
_ROWS_TRIED: Final = 256
_DEFAULT_BATCH: Final = 4
_ENDS_ITS_PROCESS: Final = (
    "model '%s': the code in %s ends its process when an index is beyond a tensor, such as a token beyond a table; "
    "compile it with the inductor config cpp.threads=1, give the archive of torch.export instead, or write "
    "execution=process"
)


class FlatModel(TorchModel):
    """An archive of ``torch.export``, compiled on first use where that is possible, or a package of AOTInductor."""

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._exported: ExportedProgram | None = None
        self._unused: ExportedProgram | None = None
        self._package: Path | None = None
        self._signature: FlatSignature | None = None
        self._guard: Callable[..., Any] | None = None
        self._plan: FlatPlan | None = None
        self._spec: ModelSpec | None = None
        self._runs_at_once = 1
        self._loaded = LoadedModules(self._load)

    def complete(self, config: Any) -> None:
        """Fill the configuration in from the signature of an archive; a package has none."""
        signature = self._read()
        if self._exported is None:
            if not config.input or not config.output:
                raise _no_tensors(self._context.model, signature)
            return
        reader = ParameterReader(self._context.model, self._context.backend_config, "backend config setting")
        size = reader.integer("default-max-batch-size", _DEFAULT_BATCH) if signature.batches else 0
        if signature.batch_limit is not None:
            size = min(size, signature.batch_limit)
        complete(config, signature.graph(), size)

    def start(self, spec: ModelSpec, device: str | None) -> None:
        """Compile an archive if need be, load the first program, and fit the configuration to it."""
        reader = ParameterReader(spec.name, spec.parameters)
        signature = self._read()
        if not spec.inputs or not spec.outputs:
            raise _no_tensors(spec.name, signature)
        _check_optional(spec)
        inputs = bind_flat(spec.name, "input", list(spec.inputs), signature.inputs)
        outputs = bind_flat(spec.name, "output", list(spec.outputs), signature.outputs)
        check_signature(spec, _declared(inputs, spec.inputs), _declared(outputs, spec.outputs))
        self._loaded.share = reader.boolean("ENABLE_WEIGHT_SHARING", False)
        self._runs_at_once = max(1, spec.instance_count) if self._loaded.share else 1
        self._choose_code(spec, reader, device)
        self._plan = self._planned(spec, inputs, outputs, reader.boolean("INFERENCE_MODE", True))
        self._spec = spec
        self._loaded.first(device)

    def instance(self, device: str | None) -> Instance:
        """An instance with a program of its own, or the shared one."""
        if self._plan is None or self._spec is None:
            raise ModelLoadError(f"model '{self._context.model}': start() comes before instance()")
        on_gpu = device is not None and device != "cpu"
        instance = FlatInstance(self._loaded.take(device), self._plan, device if on_gpu else None)
        if self._exported is None:
            _check_outputs(instance, self._spec)
        return instance

    @property
    def settling_runs(self) -> int:
        """One, which prepares the operators, where runs change nothing; a package does not say so."""
        return 1 if self._exported is not None and not self._exported.mutates else 0

    def close(self) -> None:
        """Release the programs that the instances shared."""
        self._loaded.clear()
        self._exported = self._unused = self._guard = self._plan = None

    def _read(self) -> FlatSignature:
        """The signature; the file is read once."""
        if self._signature is not None:
            return self._signature
        model, path = self._context.model, self._context.model_path
        check_file(model, path)
        kind = kind_of(path)
        if kind is FileKind.COMPILED:
            self._package = path
            self._signature = package_signature(model, path, load_package(model, path, None, 1))
            self._guard = shape_guard(self._signature.inputs)
            if ends_on_bad_index(path):
                log.warning(_ENDS_ITS_PROCESS, model, path)
            if self._guard is None:
                log.warning("model '%s': %s does not say what inputs it takes, none are checked", model, path)
        else:
            self._exported = self._unused = load_exported(model, path)
            self._signature = self._exported.signature
            self._guard = self._exported.guard
        return self._signature

    def _choose_code(self, spec: ModelSpec, reader: ParameterReader, device: str | None) -> None:
        """Whether an archive runs compiled or as it is, and why."""
        target = PROCESSOR if device is None else device
        # A GPU runs most operators for longer than it takes to begin them, and compilation takes most of a minute.
        if self._exported is None or not reader.boolean("COMPILE", target == PROCESSOR):
            return
        reason = self._exported.uncompilable
        if not reason and compiler() is None:
            reason = "there is no C++ compiler; install one (apt-get install g++) to make it faster"
        if not reason and len({group.kind for group in spec.instance_groups}) > 1:
            reason = "its instance groups are of several kinds, and code is compiled for one of them"
        if not reason and device is None and is_elsewhere(self._exported.program, PROCESSOR):
            reason = "KIND_MODEL leaves it on the GPU that it was exported on"
        if reason:
            model, name = self._context.model, self._context.model_path.name
            log.warning("model '%s': %s runs as it is, not compiled: %s", model, name, reason)
            return
        kept = self._context.backend_config.get(CACHE_SETTING)
        cache = Path(kept).expanduser() if kept else cache_folder("compiled")
        try:
            self._package = compiled_from(self._context.model, self._context.model_path, cache, target)
        except ModelLoadError as error:
            if target == PROCESSOR:
                raise
            # Code for GPUs needs the headers of CUDA as well, which the packages of torch do not bring.
            log.warning("%s; it runs as it is, not compiled", error)
            return
        # The package has the weights as well.
        self._exported, self._unused = replace(self._exported, program=None, module=None), None

    def _load(self, device: str | None) -> Any:
        if self._package is not None:
            return load_runner(self._context.model, self._package, device, self._runs_at_once)
        # One that no other instance runs, since runs may change its buffers.
        exported, self._unused = self._unused, None
        model = self._context.model
        return (exported or load_exported(model, self._context.model_path)).runner(model, device)

    def _planned(
        self, spec: ModelSpec, inputs: Mapping[str, FlatTensor], outputs: Mapping[str, FlatTensor], inference: bool
    ) -> FlatPlan:
        ordered = tuple(sorted(inputs, key=lambda name: inputs[name].position))
        exported = self._exported
        return FlatPlan(
            inputs=ordered,
            outputs={name: tensor.position for name, tensor in outputs.items()},
            scalars=frozenset(name for name, t in (*inputs.items(), *outputs.items()) if t.is_scalar),
            # A package does not say what it writes to.
            copies_inputs=exported is None or exported.mutates,
            copies_outputs=exported is None or exported.mutates,
            guard=self._needed_guard(spec, ordered),
            inference_mode=inference,
        )

    def _needed_guard(self, spec: ModelSpec, names: Sequence[str]) -> Callable[..., Any] | None:
        """The check of each run. Where the configuration fixes all but the number of rows, it is done here, once.

        Raises:
            ModelLoadError: the program refuses such inputs.
        """
        if self._guard is None:
            return None
        tensors = [spec.inputs[name] for name in names]
        shapes = [t.dims if t.reshape is None else t.reshape for t in tensors]
        if any(-1 in shape for shape in shapes) or any(t.allow_ragged_batch for t in tensors):
            return self._guard
        for rows in _rows(spec.max_batch_size):
            _try_shapes(spec, self._guard, [(*rows, *shape) for shape in shapes], self._scalar_places(names))
        return None

    def _scalar_places(self, names: Sequence[str]) -> frozenset[int]:
        inputs = () if self._signature is None else self._signature.inputs
        return frozenset(tensor.position for tensor in inputs if tensor.is_scalar)


def _declared(bound: Mapping[str, FlatTensor], configured: Mapping[str, TensorSpec]) -> list[ModelTensor]:
    """The tensors under the names of the configuration; one of unknown type is as the configuration has it."""
    return [
        tensor.named(name) if tensor.type_text else ModelTensor(name, configured[name].dtype, "", None)
        for name, tensor in bound.items()
    ]


def _check_optional(spec: ModelSpec) -> None:
    for tensor in spec.inputs.values():
        if tensor.optional:
            raise ModelLoadError(
                f"model '{spec.name}': input '{tensor.name}' is optional, and an exported program takes all its "
                f"inputs; remove 'optional', or export the model without that argument"
            )


def _rows(max_batch_size: int) -> list[tuple[int, ...]]:
    if not max_batch_size:
        return [()]
    return [(n,) for n in (*range(1, min(max_batch_size, _ROWS_TRIED) + 1), max_batch_size)]


def _try_shapes(
    spec: ModelSpec, guard: Callable[..., Any], shapes: Sequence[tuple[int, ...]], scalars: frozenset[int]
) -> None:
    import torch

    fitted = [() if i in scalars and shape == (1,) else shape for i, shape in enumerate(shapes)]
    try:
        # Shapes without memory.
        guard(*[torch.empty(shape, device="meta") for shape in fitted])
    except AssertionError as error:
        text = str(error).removeprefix("Guard failed: ")
        raise ModelLoadError(
            f"model '{spec.name}': the configuration allows inputs of the shapes "
            f"{', '.join(str(list(shape)) for shape in shapes)} (max_batch_size: {spec.max_batch_size}), and the "
            f"program needs {text}; change max_batch_size or dims, or export the model with such a dynamic dimension"
        ) from None


def _no_tensors(model: str, signature: FlatSignature) -> ModelLoadError:
    inputs = ", ".join(
        f'{{ name: "INPUT__{i}" data_type: {_data_type(t)} dims: {_dims(t)} }}' for i, t in enumerate(signature.inputs)
    )
    outputs = ", ".join(
        f'{{ name: "OUTPUT__{i}" data_type: {_data_type(t)} dims: {_dims(t)} }}'
        for i, t in enumerate(signature.outputs)
    )
    return ModelLoadError(
        f"model '{model}': the configuration must list the inputs and outputs, as a package of AOTInductor does not "
        f"say all their types and shapes; write, with the right data_type and dims: "
        f"input [ {inputs} ] output [ {outputs} ]"
    )


def _entries(prefix: str, tensors: Sequence[FlatTensor]) -> str:
    return ", ".join(
        f'{{ name: "{prefix}__{i}" data_type: {_data_type(tensor)} dims: {_dims(tensor)} }}'
        for i, tensor in enumerate(tensors)
    )


def _data_type(tensor: FlatTensor) -> str:
    named = tensor.named("") if tensor.type_text else None
    return named.dtype.config if named is not None and named.dtype is not None else "TYPE_FP32"


def _dims(tensor: FlatTensor) -> str:
    sizes = [size if isinstance(size, int) else -1 for size in tensor.axes or ("",)]
    return "[ " + ", ".join(map(str, sizes)) + " ]"


def _check_outputs(instance: FlatInstance, spec: ModelSpec) -> None:
    """Run a package on zeros and compare what it returns with the configuration, as it does not say so itself."""
    zeros = zero_inputs(spec)
    if zeros is None:
        return
    try:
        returned = instance.execute(zeros, tuple(spec.outputs))
    except BackendError as error:
        log.info("model '%s' does not run on zeros, so its outputs are not checked: %s", spec.name, error)
        return
    check_outputs(spec, returned)
