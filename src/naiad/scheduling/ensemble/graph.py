"""The graph of an ensemble, checked against the models of its steps.

Texts are those of the reference (``ensemble_utils.cc``), which checks in this order.

A step whose model is decoupled may answer any number of times. What depends on its answers runs once for each of them:
in a *scope* of its own inside the scope of the step. Scope 0 is that of the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NoReturn

from naiad.config.ensemble import UNLESS, WHEN, EnsembleSpec, StepSpec
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import ModelSpec, TensorSpec

MAX_DEPTH: Final = 17
"""How far scopes may lie inside each other, the first one included."""
MAX_ENSEMBLES: Final = 32
"""How far ensembles may lie inside each other: each calls the next, and the stack of the interpreter is bounded."""


class EnsembleError(ModelLoadError):
    """The graph of an ensemble cannot be run with the models that are there."""


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step of a graph. Tensors are numbers.

    Attributes:
        index, model: as in its configuration.
        inputs: for each the name in the model, the tensor, and whether the model does without.
        outputs: for each the name in the model and the tensor.
        conditions: tensors with what each must be for the step to run.
        scope: where it runs, and ``gives`` where its outputs are: one further in for a decoupled model.
    """

    index: int
    model: str
    inputs: tuple[tuple[str, int, bool], ...]
    outputs: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[int, bool], ...] = ()
    scope: int = 0
    gives: int = 0

    @property
    def is_decoupled(self) -> bool:
        """It may answer any number of times."""
        return self.gives != self.scope

    @property
    def reads(self) -> frozenset[int]:
        """The tensors that have to be settled before it is its turn."""
        return frozenset([t for _, t, _ in self.inputs] + [t for t, _ in self.conditions])


@dataclass(frozen=True, slots=True)
class Graph:
    """All steps, in an order in which each comes after those that it depends on.

    Attributes:
        tensors: their names by number; the inputs of the ensemble come first.
        inputs, outputs: the ensemble's own, by name.
        steps: by their index in the configuration.
        order: indices of steps.
        scopes: of each tensor.
        parents: of each scope, the one around it; -1 for the first.
        depth: of ensembles inside each other, this one included.
    """

    tensors: tuple[str, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    steps: tuple[EnsembleStep, ...]
    order: tuple[int, ...]
    scopes: tuple[int, ...]
    parents: tuple[int, ...]
    depth: int = 1

    @property
    def is_decoupled(self) -> bool:
        """A request may get any number of responses."""
        return len(self.parents) > 1


@dataclass(slots=True)
class _Known:
    """What a model says of a tensor of the ensemble."""

    model: str
    tensor: TensorSpec
    batches: bool

    @property
    def dims(self) -> tuple[int, ...]:
        return self.tensor.dims

    @property
    def full_dims(self) -> tuple[int, ...]:
        return (-1, *self.dims) if self.batches else self.dims


def build(spec: ModelSpec, members: Mapping[str, ModelSpec] | Sequence[ModelSpec]) -> Graph:
    """The graph of the ensemble ``spec``, whose steps run ``members``: by the name of the model, or for each step.

    Raises:
        EnsembleError: they do not fit together.
    """
    ensemble = spec.ensemble
    if ensemble is None:
        raise EnsembleError(f"model '{spec.name}' is no ensemble")
    models = [members[s.model] for s in ensemble.steps] if isinstance(members, Mapping) else list(members)
    _Checks(spec).check(ensemble.steps, models)
    return _Builder(spec, ensemble, models).graph()


@dataclass(slots=True)
class _Checks:
    """Names, datatypes, shapes and batch sizes."""

    spec: ModelSpec
    known: dict[str, _Known] = field(default_factory=dict)

    def check(self, steps: Sequence[StepSpec], models: Sequence[ModelSpec]) -> None:
        spec = self.spec
        for tensor in (*spec.inputs.values(), *spec.outputs.values()):
            inside = tensor if tensor.reshape is None else replace(tensor, dims=tensor.reshape)
            self.known[tensor.name] = _Known(spec.name, inside, spec.max_batch_size > 0)
        for step, model in zip(steps, models, strict=True):
            if 0 < model.max_batch_size < spec.max_batch_size:
                raise EnsembleError(
                    f"ensemble {spec.name} allows maximum batch size {spec.max_batch_size}, but it contains model "
                    f"{model.name} which only allows maximum batch size to be {model.max_batch_size}"
                )
            self._check_inputs(step, model)
            self._check_outputs(step, model)
        # Once it is known what writes them.
        for step, model in zip(steps, models, strict=True):
            self._check_conditions(step, model)

    def _check_inputs(self, step: StepSpec, model: ModelSpec) -> None:
        inside = f"in ensemble {self.spec.name}, "
        mapped = dict(step.inputs)
        for name, tensor in step.inputs:
            if name not in model.inputs and name not in (WHEN, UNLESS):
                raise EnsembleError(
                    f"{inside}ensemble tensor {tensor} is mapping to non-existing input {name} in model {step.model}"
                )
        for given in model.inputs.values():
            if given.name in mapped:
                self._check_same(mapped[given.name], _Known(step.model, given, model.max_batch_size > 0))
            elif not given.optional:
                raise EnsembleError(
                    f"{inside}input {given.name} in model {step.model} is not mapped to any ensemble tensors"
                )

    def _check_outputs(self, step: StepSpec, model: ModelSpec) -> None:
        for name, tensor in step.outputs:
            made = model.outputs.get(name)
            if made is None:
                raise EnsembleError(
                    f"in ensemble {self.spec.name}, ensemble tensor {tensor} is mapped from non-existing output {name} "
                    f"in model {step.model}"
                )
            self._check_same(tensor, _Known(step.model, made, model.max_batch_size > 0))

    def _check_conditions(self, step: StepSpec, model: ModelSpec) -> None:
        for name, tensor in step.inputs:
            known = self.known.get(tensor)
            if name in model.inputs or known is None or known.tensor.dtype.wire == "BOOL":
                continue
            raise EnsembleError(
                f"in ensemble {self.spec.name}, step {step.index} (model '{step.model}') runs {name} '{tensor}' is "
                f"true, but model {known.model} says that it is {known.tensor.dtype.config}: it has to be TYPE_BOOL"
            )

    def _check_same(self, tensor: str, found: _Known) -> None:
        known = self.known.setdefault(tensor, found)
        if known is found:
            return
        where = f"in ensemble {self.spec.name}, ensemble tensor {tensor}: "
        if known.tensor.dtype is not found.tensor.dtype:
            raise EnsembleError(
                f"{where}inconsistent data type: {known.tensor.dtype.config} is inferred from model {known.model} "
                f"while {found.tensor.dtype.config} is inferred from model {found.model}"
            )
        if not _agree(known.dims, found.dims) and not _agree(known.full_dims, found.full_dims):
            raise EnsembleError(
                f"{where}inconsistent shape: {_text(known.full_dims)} is inferred from model {known.model} while "
                f"{_text(found.full_dims)} is inferred from model {found.model}"
            )


class _Builder:
    """Numbers the tensors, puts the steps into an order and finds their scopes."""

    def __init__(self, spec: ModelSpec, ensemble: EnsembleSpec, models: Sequence[ModelSpec]) -> None:
        self._spec = spec
        self._steps = ensemble.steps
        self._models = models
        names = dict.fromkeys(spec.inputs)
        for step in ensemble.steps:
            names.update(dict.fromkeys(tensor for _, tensor in step.outputs))
        self._numbers = {name: number for number, name in enumerate(names)}
        self._scopes = [0] * len(names)
        self._parents = [-1]
        self._written: dict[int, int] = {}

    def graph(self) -> Graph:
        spec, numbers = self._spec, self._numbers
        order = self._sorted()
        built = {index: self._step(index) for index in order}
        outputs = {name: numbers[name] for name in spec.outputs}
        self._one_chain((self._scopes[number] for number in outputs.values()), spec.name)
        return Graph(
            tensors=tuple(numbers),
            inputs={name: numbers[name] for name in spec.inputs},
            outputs=outputs,
            steps=tuple(built[index] for index in range(len(self._steps))),
            order=tuple(order),
            scopes=tuple(self._scopes),
            parents=tuple(self._parents),
            depth=depth(spec, self._models),
        )

    def _sorted(self) -> list[int]:
        """Steps after those that write what they read. Circles were refused before, by the rules of configurations."""
        unwritten: dict[str, int] = {}
        for step in self._steps:
            for _, tensor in step.outputs:
                unwritten[tensor] = unwritten.get(tensor, 0) + 1
        order: list[int] = []
        waiting = list(self._steps)
        while waiting:
            able = [s for s in waiting if not any(unwritten.get(tensor) for _, tensor in s.inputs)]
            if not able:
                raise EnsembleError(f"ensemble '{self._spec.name}' has steps that depend on each other in a circle")
            for step in able:
                order.append(step.index)
                for _, tensor in step.outputs:
                    unwritten[tensor] -= 1
            taken = {step.index for step in able}
            waiting = [step for step in waiting if step.index not in taken]
        return order

    def _step(self, index: int) -> EnsembleStep:
        """Called in the order of the steps: the scopes of what it reads are known."""
        step, model, numbers = self._steps[index], self._models[index], self._numbers
        inputs = tuple((n, numbers[t], model.inputs[n].optional) for n, t in step.inputs if n in model.inputs)
        conditions = tuple((numbers[t], n == WHEN) for n, t in step.inputs if n not in model.inputs)
        read = [self._scopes[tensor] for _, tensor, _ in inputs] + [self._scopes[tensor] for tensor, _ in conditions]
        scope = self._one_chain(read, step.model)
        gives = scope
        if model.decoupled:
            gives = len(self._parents)
            self._parents.append(scope)
            if len(self._chain(gives)) > MAX_DEPTH:
                raise EnsembleError(
                    f"ensemble {self._spec.name} has more than {MAX_DEPTH - 1} decoupled models one behind the other"
                )
        outputs = tuple((name, numbers[tensor]) for name, tensor in step.outputs)
        for _, number in outputs:
            # Two steps of which one or the other runs may write the same, where it counts as the same to its readers.
            if self._written.setdefault(number, gives) != gives:
                self._refuse(step.model)
            self._scopes[number] = gives
        return EnsembleStep(index, step.model, inputs, outputs, conditions, scope, gives)

    def _one_chain(self, scopes: Iterable[int], model: str) -> int:
        """The innermost of some scopes, which must lie inside each other."""
        innermost, around = 0, {0}
        for scope in scopes:
            if scope in around:
                continue
            chain = self._chain(scope)
            if innermost not in chain:
                self._refuse(model)
            innermost, around = scope, chain
        return innermost

    def _chain(self, scope: int) -> set[int]:
        found = set()
        while scope >= 0:
            found.add(scope)
            scope = self._parents[scope]
        return found

    def _refuse(self, model: str) -> NoReturn:
        raise EnsembleError(
            f"in ensemble {self._spec.name}, step of model '{model}' receives inputs originated from different "
            "decoupled models"
        )


def depth(spec: ModelSpec, models: Iterable[ModelSpec]) -> int:
    """How far ensembles lie inside each other in ``spec``, which is made of ``models``.

    Raises:
        EnsembleError: too far.
    """
    found = 1 + max((model.depth for model in models), default=0)
    if found > MAX_ENSEMBLES:
        raise EnsembleError(
            f"ensemble {spec.name} has {found} ensembles inside each other, itself included; at most {MAX_ENSEMBLES} "
            "are possible"
        )
    return found


def _agree(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _text(dims: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"
