"""What every backend must do, run against real models by each backend's own test file."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from google.protobuf import text_format

from naiad.backend_api.backend import Arrays, Backend, BackendContext, Instance
from naiad.backends import registry
from naiad.config.freeze import freeze
from naiad.config.messages import ModelConfig
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.errors import BackendError
from naiad.tensor.dtypes import BY_WIRE

ONE_CPU = 'instance_group [ { name: "m" kind: KIND_CPU count: 1 } ]'


def config(text: str) -> Any:
    """A ``ModelConfig`` from its text form."""
    return text_format.Parse('name: "m" ' + text, ModelConfig())


def spec(text: str) -> ModelSpec:
    """The frozen form of a configuration text, with one instance on the processor unless it says otherwise."""
    return freeze(config(text if "instance_group" in text else text + ONE_CPU))


def context(path: Path, cores: int = 1, **settings: str) -> BackendContext:
    """A model file loaded with ``--backend-config`` settings (``_`` in a name stands for ``-``)."""
    values = {key.replace("_", "-"): value for key, value in settings.items()}
    return BackendContext("m", 1, path, path.parent, values, cores)


@contextmanager
def started(name: str, at: BackendContext, model: ModelSpec) -> Iterator[Backend]:
    """A backend from its start to its close."""
    backend = registry.create(name, at)
    try:
        backend.start(model)
        yield backend
    finally:
        backend.close()


def group(model: ModelSpec) -> InstanceGroupSpec:
    return model.instance_groups[0]


@contextmanager
def running(name: str, at: BackendContext, model: ModelSpec) -> Iterator[Instance]:
    """One instance of a started backend."""
    with started(name, at, model) as backend:
        instance = backend.create_instance(group(model), 0)
        try:
            yield instance
        finally:
            instance.close()


@dataclass(frozen=True)
class Case:
    """A model on disk, its configuration, an input and the outputs that belong to it."""

    at: BackendContext
    model: ModelSpec
    inputs: Arrays
    expected: Mapping[str, np.ndarray]


def values(wire: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Values that every type of the protocol can hold."""
    numbers = np.random.default_rng(seed).integers(0, 50, shape)
    if wire == "BYTES":
        strings = np.empty(numbers.size, np.object_)
        strings[:] = [f"text {n} é".encode() for n in numbers.ravel()]
        return strings.reshape(shape)
    return (numbers % 2 if wire == "BOOL" else numbers).astype(BY_WIRE[wire].numpy)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal in type, shape and every element."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


class Executes(Protocol):
    """An instance, or what stands for one."""

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """As ``Instance.execute``."""


class BackendContract(ABC):
    """The suite; a subclass says how to make the models."""

    name: str
    wires: tuple[str, ...]

    @abstractmethod
    def echo(self, folder: Path, wire: str, rows: int) -> Case:
        """A batching model of one type with inputs A, B and outputs X (= A) and Y (= B), and ``rows`` rows of input."""

    def running(self, at: BackendContext, model: ModelSpec) -> AbstractContextManager[Executes]:
        """One instance of a started backend."""
        return running(self.name, at, model)

    @pytest.fixture(params=("numeric", "BYTES"))
    def case(self, request: pytest.FixtureRequest, tmp_path: Path) -> Case:
        return self.echo(tmp_path, "FP32" if request.param == "numeric" else "BYTES", 3)

    def test_every_type_keeps_its_dtype_and_values(self, tmp_path: Path) -> None:
        for wire in self.wires:
            folder = tmp_path / wire
            folder.mkdir()
            case = self.echo(folder, wire, 2)
            with self.running(case.at, case.model) as instance:
                result = instance.execute(case.inputs, tuple(case.expected))
                for name, array in case.expected.items():
                    assert_same(result[name], array)

    @pytest.mark.parametrize("rows", [1, 2, 5, 8])
    def test_rows_of_a_batch_are_kept(self, tmp_path: Path, rows: int) -> None:
        case = self.echo(tmp_path, "FP32", rows)
        with self.running(case.at, case.model) as instance:
            assert_same(instance.execute(case.inputs, ("X",))["X"], case.expected["X"])

    def test_wanted_outputs_come_in_any_order_and_number(self, case: Case) -> None:
        with self.running(case.at, case.model) as instance:
            for wanted in (("X",), ("Y",), ("Y", "X"), ("X", "Y"), ("X",)):
                result = instance.execute(case.inputs, wanted)
                assert set(wanted) <= set(result)
                for name in wanted:
                    assert_same(result[name], case.expected[name])

    def test_read_only_inputs_are_taken_and_left_alone(self, case: Case) -> None:
        frozen = {name: array.copy() for name, array in case.inputs.items()}
        for array in frozen.values():
            array.flags.writeable = False
        with self.running(case.at, case.model) as instance:
            result = instance.execute(frozen, ("X", "Y"))
            assert_same(result["X"], case.expected["X"])
            assert_same(result["Y"], case.expected["Y"])
        for name, array in case.inputs.items():
            assert_same(frozen[name], array)

    def test_strided_inputs_are_taken(self, case: Case) -> None:
        wide = {name: np.repeat(array, 2, axis=1)[:, ::2] for name, array in case.inputs.items()}
        with self.running(case.at, case.model) as instance:
            assert_same(instance.execute(wide, ("X",))["X"], case.expected["X"])

    def test_a_failed_run_leaves_the_instance_usable(self, case: Case) -> None:
        with self.running(case.at, case.model) as instance:
            for _ in range(2):
                with pytest.raises(BackendError):
                    instance.execute({}, ("X",))
                assert_same(instance.execute(case.inputs, ("X",))["X"], case.expected["X"])

    def test_results_survive_later_runs_and_the_close(self, tmp_path: Path) -> None:
        case = self.echo(tmp_path, "FP32", 3)
        other = {name: array + 1 for name, array in case.inputs.items()}
        with self.running(case.at, case.model) as instance:
            first = instance.execute(case.inputs, ("X", "Y"))
            for _ in range(3):
                instance.execute(other, ("X", "Y"))
        assert_same(first["X"], case.expected["X"])
        assert_same(first["Y"], case.expected["Y"])

    def test_instances_in_threads_do_not_mix(self, tmp_path: Path) -> None:
        case = self.echo(tmp_path, "FP32", 3)
        model = replace(case.model, instance_groups=(replace(group(case.model), count=3),))
        failures: list[BaseException] = []
        with started(self.name, case.at, model) as backend:
            threads = [threading.Thread(target=self._hammer, args=(backend, model, i, failures)) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()
        assert failures == []

    def _hammer(self, backend: Backend, model: ModelSpec, index: int, failures: list[BaseException]) -> None:
        try:
            instance = backend.create_instance(group(model), index)
            a, b = (np.full((2, 3), index, np.float32), np.full((2, 3), -index, np.float32))
            for _ in range(200):
                result = instance.execute({"A": a, "B": b}, ("X", "Y"))
                assert_same(result["X"], a)
                assert_same(result["Y"], b)
            instance.close()
        except BaseException as error:
            failures.append(error)
