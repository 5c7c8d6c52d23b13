"""Ensembles for tests, written into a model repository as a user would write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.served_models import identity, tensor, write_model

NUMBERS = {"IN": "TYPE_INT32 -1"}
OUT = {"OUT": "TYPE_INT32 -1"}
I_TO_O = ({"INPUT0": "IN"}, {"OUTPUT0": "OUT"})


def step(model: str, inputs: Mapping[str, str], outputs: Mapping[str, str], version: int = -1) -> str:
    """One step of a configuration."""
    maps = [f'input_map {{ key: "{name}" value: "{t}" }}' for name, t in inputs.items()]
    maps += [f'output_map {{ key: "{name}" value: "{t}" }}' for name, t in outputs.items()]
    return f'{{ model_name: "{model}" model_version: {version} {" ".join(maps)} }}'


def tensors(found: Mapping[str, str]) -> str:
    """Tensors of a configuration, such as "TYPE_FP32 -1 optional: true" by name."""
    made = []
    for name, text in found.items():
        kind, dims, *more = text.split(maxsplit=2)
        made.append(tensor(name, kind, dims, *more))
    return "[ " + ", ".join(made) + " ]"


def write_ensemble(
    repository: Path,
    name: str,
    *steps: str,
    inputs: Mapping[str, str] = NUMBERS,
    outputs: Mapping[str, str] = OUT,
    batch: int = 8,
    extra: str = "",
    scheduling: str = "",
) -> Path:
    """Write an ensemble's folder and give it back."""
    config = f"""
        platform: "ensemble" max_batch_size: {batch} input {tensors(inputs)} output {tensors(outputs)} {extra}
        ensemble_scheduling {{ {scheduling} step [ {", ".join(steps)} ] }}"""
    folder = repository / name
    if folder.exists():
        (folder / "config.pbtxt").write_text(config)
        return folder
    return write_model(repository, name, config)


def write_identity(repository: Path, name: str, batch: int = 8, delay_ms: float = 0, extra: str = "") -> Path:
    """A model that gives INPUT0 back as OUTPUT0."""
    return write_model(repository, name, identity(max_batch_size=batch, delay_ms=delay_ms, extra=extra))


def chain(*models: str) -> list[str]:
    """Steps one behind the other, from IN to OUT."""
    names = ["IN", *(f"t{number}" for number in range(1, len(models))), "OUT"]
    return [
        step(model, {"INPUT0": names[number]}, {"OUTPUT0": names[number + 1]}) for number, model in enumerate(models)
    ]
