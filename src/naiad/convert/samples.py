"""The samples of a data loader: read, checked against one another and kept as files that every step reads."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.user_code import load_object

Sample = dict[str, np.ndarray[Any, Any]]

_KINDS: Final = "biufSUO"


def read_samples(data: str, count: int, batch: int, names: Sequence[str] = ()) -> list[Sample]:
    """The first ``count`` samples of ``data``: ``FILE.npz``, ``FILE.npy``, a folder of them, or ``FILE.py:function``.

    An array of a file has a row for each input; ``batch`` of them are one sample. Every file of a folder is one sample.

    Raises:
        StepError: there are no samples, or they do not fit one another.
    """
    place, _, function = data.rpartition(":")
    if function and place.endswith(".py"):
        loader = load_object(data)
        return collect(loader() if callable(loader) else loader, count, names, data)
    path = Path(data)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".npz", ".npy"))
        if not files:
            raise StepError(f"{path} has no .npz or .npy files", "put one file with arrays there for each sample")
        return collect((_arrays(file) for file in files), count, names, data)
    if not path.exists():
        raise StepError(f"there is no {path}", "give --data samples.npz, a folder of such files, or file.py:function")
    return collect(_rows(_arrays(path), batch), count, names, data)


def collect(loader: Iterable[Any], count: int, names: Sequence[str], place: str) -> list[Sample]:
    """The first ``count`` elements of a loader as samples.

    An element is an array or a tensor, a list or tuple of them, or a dictionary by the inputs' names.

    Raises:
        StepError: as ``read_samples``.
    """
    samples: list[Sample] = []
    for index, element in enumerate(itertools.islice(loader, count)):
        sample = _sample(element, names, f"{place}, sample {index}")
        if samples:
            _compare(samples[0], sample, f"{place}, sample {index}")
        samples.append(sample)
    if not samples:
        raise StepError(f"{place} has no samples", "give at least one")
    return samples


def write_samples(samples: Sequence[Sample], folder: Path) -> None:
    """One file for each sample."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, sample in enumerate(samples):
        np.savez(folder / f"{index:04}.npz", allow_pickle=False, **sample)


def load_samples(folder: Path | str) -> list[Sample]:
    """What ``write_samples`` wrote, in the same order."""
    return [_arrays(file) for file in sorted(Path(folder).glob("*.npz"))]


def with_rows(samples: Sequence[Sample], rows: int) -> Sample:
    """A sample of so many rows, made of those that have the shape of the first, over and over."""
    first = {name: array.shape[1:] for name, array in samples[0].items()}
    alike = [s for s in samples if all(s[name].shape[1:] == shape for name, shape in first.items())]
    joined = {name: np.concatenate([sample[name] for sample in alike]) for name in first}
    have = next(iter(joined.values())).shape[0]
    return {name: np.concatenate([array] * -(-rows // have))[:rows] for name, array in joined.items()}


def _arrays(file: Path) -> Sample:
    try:
        with np.load(file, allow_pickle=False) as loaded:
            return dict(loaded) if hasattr(loaded, "files") else {"": loaded}
    except AttributeError:
        return {"": np.load(file, allow_pickle=False)}
    except (OSError, ValueError, EOFError) as error:
        raise StepError(f"{file} cannot be read: {error}", "write it with numpy.savez, without objects") from None


def _rows(arrays: Sample, batch: int) -> Iterator[Sample]:
    """Arrays with equally many rows as samples of ``batch`` rows; others are one sample as they are."""
    counts = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(counts) != 1 or counts <= {-1, 0}:
        yield arrays
        return
    for start in range(0, counts.pop(), batch):
        yield {name: array[start : start + batch] for name, array in arrays.items()}


def _sample(element: Any, names: Sequence[str], place: str) -> Sample:
    if isinstance(element, Mapping):
        found = {str(name): _array(value, f"{place}, input '{name}'") for name, value in element.items()}
    elif isinstance(element, list | tuple):
        found = {f"input__{i}": _array(value, f"{place}, input {i}") for i, value in enumerate(element)}
    else:
        found = {"": _array(element, place)}
    if names:
        if len(names) != len(found):
            raise StepError(f"{place} has {len(found)} inputs, and {len(names)} names were given", "name each input")
        return dict(zip(names, found.values(), strict=True))
    return {name or "input__0": array for name, array in found.items()}


def _array(value: Any, place: str) -> np.ndarray[Any, Any]:
    detached = value.detach().cpu() if hasattr(value, "detach") else value
    made = np.asarray(detached.numpy() if hasattr(detached, "numpy") else detached)
    is_text = made.dtype.kind == "O" and all(isinstance(one, str | bytes) for one in made.ravel())
    if made.dtype.kind not in _KINDS or (made.dtype.kind == "O" and not is_text):
        raise StepError(
            f"{place} is of the type {type(value).__name__}, not numbers", "give arrays of numbers, bools or strings"
        )
    if is_text:
        made = made.astype(str)
    if made.dtype.kind in "fc" and not np.isfinite(made).all():
        raise StepError(f"{place} has NaN or infinity", "give samples with finite numbers")
    return made


def _compare(first: Sample, sample: Sample, place: str) -> None:
    if list(first) != list(sample):
        raise StepError(
            f"{place} has the inputs {', '.join(sample)}, and sample 0 has {', '.join(first)}",
            "give every sample the same inputs in the same order",
        )
    for name, array in sample.items():
        one = first[name]
        if one.dtype.kind != array.dtype.kind or (one.dtype != array.dtype and array.dtype.kind not in "SU"):
            raise StepError(
                f"{place}: input '{name}' is {array.dtype}, and {one.dtype} in sample 0",
                "give every sample the same datatypes",
            )
        if one.ndim != array.ndim:
            raise StepError(
                f"{place}: input '{name}' has {array.ndim} dimensions {list(array.shape)}, and {one.ndim} "
                f"{list(one.shape)} in sample 0",
                "sizes may vary from sample to sample, the number of dimensions may not",
            )


def takes_no_arguments(function: Any) -> bool:
    """Whether a callable can be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in optional for p in parameters)
