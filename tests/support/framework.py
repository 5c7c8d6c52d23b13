"""The description of a framework that the contract suite of framework backends runs on.

A backend gets the whole suite with one file, ``tests/backends/frameworks/test_<name>.py``:

```python
import pytest

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

from backends.contract import FrameworkContract, InstanceContract
from support.framework import Framework, Pair, Signature, Tensor, damaged


class TestContract(FrameworkContract):
    framework = Framework(name="onnxruntime", ...)


class TestInstance(InstanceContract):
    framework = TestContract.framework
```

``FrameworkContract`` serves models from real servers, one for each of the modes thread, process and shared
(``--backend-config=<name>,execution=<mode>``). ``InstanceContract`` runs instances in the test's own process, and needs
``identity``. The functions below write tiny models with the framework itself. A function gets the path of the model
file or folder (``<repository>/<model>/1/<file>``, whose parent exists), writes it, and returns its ``Signature``, from
which the suite writes the configuration. Weights must depend on the arguments alone, so that a model that is written
twice gives the same results.

What a framework cannot do is in ``lacks``, with the reason, and is skipped with that reason. An optional part that is
neither given nor lacking is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from naiad.backend_api.backend import Arrays
from naiad.tensor.dtypes import BY_WIRE

MODES = ("thread", "process", "shared")
PARTS = (
    "identity",
    "odd_names",
    "zero_size",
    "scalar",
    "ragged",
    "failing",
    "memory",
    "wrong_name",
    "wrong_datatype",
    "wrong_dims",
)
"""What a framework may lack."""
FAILING_INDEX = 99
"""The index at which a run of the ``failing`` model fails."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a configuration.

    ``dims`` are without the batch dimension where the model batches; ``more`` is further text of its entry, such as
    ``reshape { shape: [ ] }``.
    """

    name: str
    wire: str
    dims: tuple[int, ...]
    more: str = ""

    def text(self) -> str:
        """The entry in a configuration."""
        dims = ", ".join(map(str, self.dims))
        return f'{{ name: "{self.name}" data_type: {BY_WIRE[self.wire].config} dims: [ {dims} ] {self.more} }}'


@dataclass(frozen=True)
class Signature:
    """The tensors of a model, and further text of its configuration (``parameters { ... }``)."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int = 8
    more: str = ""

    def text(self) -> str:
        """The part of the configuration that auto-complete can find out, and what it cannot."""
        inputs, outputs = (", ".join(t.text() for t in tensors) for tensors in (self.inputs, self.outputs))
        return f"max_batch_size: {self.max_batch_size}\ninput [ {inputs} ]\noutput [ {outputs} ]\n{self.more}\n"


@dataclass(frozen=True)
class Pair:
    """An input and the output that equals it."""

    input: str
    output: str
    wire: str


@dataclass(frozen=True)
class Damage:
    """A change to a written model after which it cannot be loaded.

    ``apply`` gets the path that a writer got. ``words`` is a regular expression that the load error must match: the
    path or what is wrong with it, not only that it failed.
    """

    apply: Callable[[Path], object]
    words: str


def remove(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def empty(path: Path) -> None:
    """Leave nothing of a file's content."""
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    """Put text into a file that should hold a model."""
    path.write_bytes(b"this is no model at all\n" * 20)


def cut(path: Path) -> None:
    """Leave the first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES: Mapping[str, Callable[[Path], None]] = {"missing": remove, "empty": empty, "garbage": garbage, "cut": cut}
"""What every framework must report. For a model that is a folder, apply them to the file that matters."""


def damaged(inside: str = "", **words: str) -> dict[str, Damage]:
    """The four usual damages with the words of their errors; ``inside`` is the file inside a model's folder."""

    def at(act: Callable[[Path], None]) -> Callable[[Path], None]:
        return lambda path: act(path / inside if inside else path)

    return {name: Damage(at(act), words[name]) for name, act in DAMAGES.items()}


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What the suite needs to know of a backend.

    Attributes:
        name: of the backend, as ``--backend-config`` has it.
        config: the line of a configuration that chooses the backend, such as ``backend: "onnxruntime"``.
        file: the name of the model file or folder in a version's folder.
        network: writes a network Y = f(X) with one FP32 input and one output of fixed dims. ``seed`` chooses its
            weights, ``hidden`` its size: about 28 * hidden bytes of weights (4 inputs, a hidden layer, 3 outputs, in a
            framework of neural networks). It is the model of most tests.
        run: calls the framework directly with a network's path and one batch of inputs, and returns its outputs by
            name. It is called often: cache what it loads.
        tolerance: the largest relative difference between what is served and ``run``; 0 means equal bit by bit.
        tolerance_reason: why it is not 0.
        broken: damages to a network after which it does not load; those of ``DAMAGES`` and any others.
        auto_complete: "" where inputs, outputs and batching of a network are found in its file; otherwise what the
            error says when the configuration lacks them (a regular expression).
        completed_batch_size: the ``max_batch_size`` that auto-complete finds for a network.
        mismatches: "name", "datatype" and "dims", with what the error says (a regular expression) when the
            configuration of a network has another name, TYPE_INT32, or one element more for its input. Those that the
            framework cannot know are in ``lacks`` as "wrong_name" and so on.
        identity: writes a model whose outputs equal its inputs, in one batching model for all pairs, with dims [ -1 ]
            where that is possible.
        datatypes: all that the backend serves, in groups that fit into one model.
        strings: what BYTES are to the framework: "text" must be UTF-8, "bytes" may be anything; "" if it has none.
        odd_names: names of FP32 tensors with as unusual characters as the framework and the configuration allow; used
            for inputs, and with "_out" behind for outputs.
        scalar: writes a model Y = 2 X whose FP32 tensors are scalars in the framework, and have dims [ 1 ] in the
            configuration. Where the framework has none without a batch, a batch of them with "reshape { shape: [ ] }".
        ragged: writes a model with the inputs X (FP32 [n]) and I (INT32 [b]) and the outputs Y = 2 X (FP32 [n]) and
            C = I (INT32 [b, 1]). The suite writes its configuration, in which X is ragged and I is a ``batch_input``.
        failing: writes a model that looks up INDEX (INT64 [ 1 ]) in a table: VALUE (FP32 [ 1 ]) is 10 + INDEX for 0 to
            3, and the run fails at 99. Where an index outside of a table is no error, a shape that depends on INDEX
            and does not fit may do.
        failure: what the error of such a run says, as a regular expression.
        modes: in which it runs.
        slow_modes: in which all tests are slow; tests with models of their own are slow in process mode anyway.
        brief_modes: in which tests that load more models are left out. That is for frameworks whose import takes
            seconds in process mode, and with the others in a shared process, which runs the same code.
        others_not_in: in which tests of further files are left out, for the same reason: datatypes, names, shapes and
            what is wrong with a file do not depend on how many instances the process that reads it has. ONNX Runtime,
            OpenVINO and forests have them in all modes.
        variables: of the server's environment.
        reloads: the reloads before the memory is noted, and those after it, in threads and in shared processes. Fewer
            are for frameworks that load for long; their weights are larger, so that a leak of them shows all the same.
        process_reloads: the same where each reload starts a process. None where another framework has them: what a
            process leaves behind in the server does not depend on the framework that it has run.
        reloads_shared: whether models are reloaded in a shared process too. Not where that takes a quarter of a minute:
            what the framework leaves behind shows in threads, and what the process does shows with other frameworks.
        lacks: parts that the framework cannot have, each with the reason.
        pool_parameter: the parameter for the number of threads of an instance; "" without such threads.
        kind: of the instances.
    """

    name: str
    config: str
    file: str
    network: Callable[[Path, int, int], Signature]
    run: Callable[[Path, Arrays], Arrays]
    broken: Mapping[str, Damage]
    tolerance: float = 0.0
    tolerance_reason: str = ""
    auto_complete: str = ""
    completed_batch_size: int = 4
    mismatches: Mapping[str, str] = field(default_factory=dict)
    identity: Callable[[Path, Sequence[Pair]], Signature] | None = None
    datatypes: tuple[tuple[str, ...], ...] = ()
    strings: Literal["", "text", "bytes"] = ""
    odd_names: tuple[str, ...] = ()
    scalar: Callable[[Path], Signature] | None = None
    ragged: Callable[[Path], None] | None = None
    failing: Callable[[Path], Signature] | None = None
    failure: str = ""
    modes: tuple[str, ...] = MODES
    slow_modes: tuple[str, ...] = ()
    brief_modes: tuple[str, ...] = ()
    others_not_in: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    reloads: tuple[int, int] = (20, 100)
    process_reloads: tuple[int, int] | None = None
    reloads_shared: bool = True
    lacks: Mapping[str, str] = field(default_factory=dict)
    pool_parameter: str = ""
    kind: Literal["KIND_CPU", "KIND_GPU"] = "KIND_CPU"

    def __post_init__(self) -> None:
        """Refuse a description with gaps: a part that nobody mentions would be a test that nobody misses."""
        given = {
            **{part: getattr(self, part) for part in ("identity", "odd_names", "scalar", "ragged", "failing")},
            **{f"wrong_{what}": self.mismatches.get(what) for what in ("name", "datatype", "dims")},
        }
        gaps = [part for part, value in given.items() if not value and not self.lacks.get(part)]
        both = [part for part, value in given.items() if value and part in self.lacks]
        unknown = set(self.lacks) - set(PARTS)
        assert not gaps, f"{self.name}: neither given nor in 'lacks': {gaps}"
        assert not both and not unknown, f"{self.name}: 'lacks' has {both or unknown}"
        assert set(self.broken) >= set(DAMAGES), f"{self.name}: 'broken' lacks {set(DAMAGES) - set(self.broken)}"
        assert (self.tolerance == 0) == (not self.tolerance_reason), f"{self.name}: a tolerance has a reason"
        assert ("BYTES" in self.wires) == bool(self.strings), f"{self.name}: 'strings' says what BYTES are"
        assert bool(self.identity) == bool(self.datatypes), f"{self.name}: 'identity' and 'datatypes' belong together"
        assert bool(self.failing) == bool(self.failure), f"{self.name}: 'failing' and 'failure' belong together"

    @property
    def wires(self) -> tuple[str, ...]:
        """All datatypes, in order."""
        return tuple(wire for group in self.datatypes for wire in group)
