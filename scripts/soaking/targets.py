"""The models under load: how each is written, and who calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import models, python_models
from benchmarks.models import Array

from .callers import Caller, Checked, Inputs, SequenceCaller, StreamCaller, UnaryCaller

SHORTEST, LONGEST = 2, 20
"""Requests of a sequence."""
IDLE_S = 120
"""Longer than any caller rests within a sequence."""
RESPONSES = 10
"""The most of a stream."""
SIZES = np.unique(np.geomspace(16, 50_000, 100).astype(int))
"""Of the rows of models that take any: so few that what the server remembers of each is there soon."""
ABANDONED = 0.1
"""The part of the streams that their callers leave."""


@dataclass(frozen=True, slots=True)
class Target:
    """One model under load.

    Attributes:
        name: of the model, and of the target on the command line.
        write: writes the model, and the models that it runs, into a repository.
        caller: makes one that draws from a generator of random numbers.
        needs: modules without which the model is left out.
        members: other models that are written with it; they are reloaded too.
        protocols: over which it is called.
    """

    name: str
    write: Callable[[Path], object]
    caller: Callable[[np.random.Generator], Caller]
    needs: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ("http", "grpc")

    def lacking(self) -> str:
        """The first module that is not there; "" when nothing lacks."""
        return next((name for name in self.needs if find_spec(name) is None), "")


def execution(way: str) -> str:
    """The field that says where a framework runs."""
    return f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}'


def small_targets() -> list[Target]:
    """Models that are written and loaded in a moment."""
    return [
        Target("mlp", models.add_mlp, lambda random: UnaryCaller("mlp", lambda: mlp_rows(random)), ("onnx",)),
        _mlp_in("process"),
        _mlp_in("shared"),
        Target("identity", _add_identity, lambda random: UnaryCaller("identity", lambda: _same(random))),
        Target(
            "python_identity",
            python_models.add_python_identity,
            lambda random: UnaryCaller("python_identity", lambda: _same(random)),
        ),
        Target(
            "ensemble",
            lambda repository: python_models.add_python_ensemble(repository, "ensemble"),
            lambda random: UnaryCaller("ensemble", lambda: _increased(random)),
            members=("ensemble_add", "ensemble_double"),
        ),
        *(_sequence(name) for name in ("sequence_direct", "sequence_oldest")),
        Target(
            "decoupled",
            lambda repository: python_models.add_decoupled(repository, "decoupled"),
            lambda random: StreamCaller("decoupled", lambda: _counted(random), lambda: random.random() < ABANDONED),
            protocols=("grpc",),
        ),
        Target(
            "square",
            lambda repository: python_models.add_square(repository, "square"),
            lambda random: StreamCaller("square", lambda: _squared(random), lambda: random.random() < ABANDONED),
            protocols=("grpc",),
        ),
    ]


def select(targets: Sequence[Target], names: Sequence[str] = ()) -> tuple[list[Target], list[str]]:
    """The targets of these names, of all for none, and why others are left out."""
    wanted = [target for target in targets if not names or target.name in names]
    lacking = {target.name: target.lacking() for target in wanted}
    left_out = [f"{name} is left out: there is no {module}" for name, module in lacking.items() if module]
    return [target for target in wanted if not lacking[target.name]], left_out


# ---- the models


def _mlp_in(way: str) -> Target:
    name = f"mlp_{way}"

    def write(repository: Path) -> None:
        models.add_mlp(repository, name)
        config = repository / name / "config.pbtxt"
        config.write_text(config.read_text() + execution(way) + "\n")

    return Target(name, write, lambda random: UnaryCaller(name, lambda: mlp_rows(random)), ("onnx",))


def _add_identity(repository: Path) -> None:
    models.add_identity(repository, "identity", [-1], 64)


def _sequence(name: str) -> Target:
    def write(repository: Path) -> None:
        python_models.add_totals(repository, (name,), IDLE_S)

    def caller(random: np.random.Generator) -> Caller:
        return SequenceCaller(name, lambda: int(random.integers(SHORTEST, LONGEST + 1)))

    return Target(name, write, caller)


# ---- their requests


def mlp_rows(random: np.random.Generator) -> Checked:
    """One to eight rows for the small network."""
    x = random.random((int(random.integers(1, 9)), 16), np.float32)
    return {"x": x}, "y", models.mlp_by_hand(x)


def _values(random: np.random.Generator) -> Array:
    """A row of 16 to 50,000 numbers: some go through shared memory to a worker."""
    return random.random((1, int(random.choice(SIZES))), np.float32)


def _same(random: np.random.Generator) -> Checked:
    x = _values(random)
    return {"INPUT0": x}, "OUTPUT0", x


def _increased(random: np.random.Generator) -> Checked:
    x = _values(random)
    return {"INPUT0": x}, "OUTPUT0", (x + 1) * 2


def _counted(random: np.random.Generator) -> tuple[Inputs, str, list[Any]]:
    count = int(random.integers(1, RESPONSES + 1))
    return {"COUNT": np.array([count], np.int32)}, "NUMBER", [np.array([n], np.int32) for n in range(count)]


def _squared(random: np.random.Generator) -> tuple[Inputs, str, list[Any]]:
    count = int(random.integers(1, RESPONSES + 1))
    return {"IN": np.array([count], np.int32)}, "OUT", [np.array([count], np.int32)] * count
