"""Compare a converted model with its source over all samples, in the format's own framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from naiad.convert.compare import Difference
from naiad.convert.errors import StepError
from naiad.convert.formats import TOLERANCES, Precision
from naiad.convert.outputs import Arrays
from naiad.convert.runners import open_runner
from naiad.convert.samples import Sample, load_samples
from naiad.convert.signature import SourceSignature, described
from naiad.convert.user_code import load_object


def verify(
    target: str,
    made: dict[str, Any],
    signature: dict[str, Any],
    folder: str,
    precision: str,
    metric: str,
    minimum: float | None,
    function: str,
) -> dict[str, Any]:
    """Run all samples and judge them; ``worst.npz`` gets the sample that differs most, with both outputs.

    It gets the first sample whose outputs cannot be compared, where there is one. A user's function judges these, too.

    Args:
        folder: with ``samples`` and ``reference``.
        metric, minimum, function: the user's own threshold, which decides alone where it is given.
    """
    known = SourceSignature.from_json(signature)
    samples, wanted = load_samples(Path(folder) / "samples"), load_samples(Path(folder) / "reference")
    runner = open_runner(target, made, known)
    found: list[Arrays] = []
    difference = Difference()
    tolerance = TOLERANCES.get(Precision(precision))
    unlike = ""
    for index, (sample, expected) in enumerate(zip(samples, wanted, strict=True)):
        outputs = _run(runner, sample, index)
        found.append(outputs)
        try:
            difference.add(index, expected, outputs, tolerance)
        except StepError as error:
            if not unlike:
                _keep_worst(index, samples, wanted, found)
            if not function:
                raise
            # Only the user knows what detections of another number are worth.
            unlike = unlike or str(error)
    if not unlike:
        _keep_worst(difference.worst, samples, wanted, found)
    is_good, reason = _judged(difference, precision, metric, minimum, function, found, wanted)
    if unlike:
        reason = f"{reason}; the errors leave out samples that cannot be compared: {unlike}"
    return {
        "is_good": is_good,
        "reason": reason,
        "max_abs": difference.max_abs,
        "max_rel": difference.max_rel,
        "cosine": difference.cosine,
        "top1": difference.top1,
        "worst_sample": difference.worst,
        "worst_file": str(Path("worst.npz").resolve()),
        "outputs": [
            {"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape}
            for tensor in described(found, known.is_batching)
        ],
    }


def _run(runner: Any, sample: Sample, index: int) -> Arrays:
    try:
        outputs: Arrays = runner(sample)
    except StepError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in sample.items())
        raise StepError(
            f"the converted model fails for sample {index} ({shapes}): {type(error).__name__}: {str(error)[:300]}",
            "a size became fixed in the conversion: take sizes from the inputs' shapes in the model's code",
        ) from error
    return outputs


def _keep_worst(index: int, samples: list[Sample], wanted: list[Sample], found: list[Arrays]) -> None:
    arrays = {f"input:{name}": array for name, array in samples[index].items()}
    arrays |= {f"source:{name}": array for name, array in wanted[index].items()}
    arrays |= {f"converted:{name}": array for name, array in found[index].items()}
    np.savez("worst.npz", allow_pickle=False, **arrays)


def _judged(
    difference: Difference,
    precision: str,
    metric: str,
    minimum: float | None,
    function: str,
    found: list[Arrays],
    wanted: list[Sample],
) -> tuple[bool, str]:
    """Whether the outputs are good enough, and why."""
    if function:
        return _users(function, minimum, found, wanted)
    if metric:
        value = difference.top1 if metric == "top1" else difference.cosine
        least = 1.0 if minimum is None else minimum
        return value >= least, f"{metric} is {value:.6g}, and --min is {least:g}"
    tolerance = TOLERANCES.get(Precision(precision))
    if tolerance is None:
        return False, f"{precision} has no tolerance: give --metric top1 --min 0.99, or --verify file.py:function"
    text = (
        f"max. abs. error {difference.max_abs:.3g} (tolerance {tolerance.absolute:g}), "
        f"max. rel. error {difference.max_rel:.3g} (tolerance {tolerance.relative:g})"
    )
    return difference.is_within, text


def _users(function: str, minimum: float | None, found: list[Arrays], wanted: list[Sample]) -> tuple[bool, str]:
    """Call the user's function; a number is compared with the minimum."""
    try:
        answer = load_object(function)(found, wanted)
    except StepError:
        raise
    except Exception as error:
        raise StepError(
            f"{function} raises {type(error).__name__}: {error}",
            "it is called with the outputs of the format and those of the source: lists of dictionaries of arrays",
        ) from error
    if isinstance(answer, bool | np.bool_):
        return bool(answer), f"{function} returns {bool(answer)}"
    try:
        value = float(answer)
    except (TypeError, ValueError):
        raise StepError(
            f"{function} returns {answer!r:.100}, which is neither a bool nor a number",
            "let it return whether the outputs are good enough, or a number for --min",
        ) from None
    if minimum is None:
        raise StepError(f"{function} returns the number {value:g}", "give --min, the least number that is good enough")
    return value >= minimum, f"{function} returns {value:g}, and --min is {minimum:g}"
