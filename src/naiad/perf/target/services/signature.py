"""The signature of a SavedModel, as TensorFlow Serving's metadata describe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription, TensorDescription
from naiad.perf.target.protocol import TargetError

DATATYPES: Final = {
    "DT_BOOL": "BOOL",
    **{f"DT_{sign}INT{bits}": f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "DT_HALF": "FP16",
    "DT_BFLOAT16": "BF16",
    "DT_FLOAT": "FP32",
    "DT_DOUBLE": "FP64",
    "DT_STRING": "BYTES",
}


@dataclass(frozen=True, slots=True)
class SignatureTensor:
    """An input or output.

    Attributes:
        shape: the whole shape; -1 where it may vary. None when not even the number of dimensions is known.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs in the order of their names.

    Attributes:
        version: of the model.
    """

    version: str
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


def read_signature(metadata: Mapping[str, Any], name: str) -> Signature:
    """The signature ``name`` of the metadata of a model as JSON.

    Raises:
        TargetError: there is no such signature, or the metadata are none of TensorFlow Serving.
    """
    try:
        version = str(_member(metadata, "model_spec").get("version", ""))
        chosen = chosen_signature(_member(metadata["metadata"]["signature_def"], "signature_def"), name)
    except (LookupError, TypeError, AttributeError):
        raise TargetError("the server's metadata have no signature_def: they are none of TensorFlow Serving") from None
    try:
        return Signature(version, _tensors(chosen.get("inputs", {})), _tensors(chosen.get("outputs", {})))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise TargetError(f"the signature '{name}' in the server's metadata cannot be read: {error!r}") from None


def chosen_signature(found: Mapping[str, Any], name: str) -> Any:
    """The signature of a name.

    Raises:
        TargetError: there is none.
    """
    if name in found:
        return found[name]
    raise TargetError(
        f'Failed to find signature_name "{name}" in the metadata: found {", ".join(sorted(found))}; choose one with '
        "--model-signature-name"
    )


def _member(value: Mapping[str, Any], name: str) -> Any:
    """A member by its name with underscores, or as most writers of JSON spell it: ``modelSpec``."""
    first, *others = name.split("_")
    camel = first + "".join(word.capitalize() for word in others)
    return value[name] if name in value else value[camel]


def _tensors(entries: Mapping[str, Any]) -> tuple[SignatureTensor, ...]:
    return tuple(_tensor(name, entries[name]) for name in sorted(entries))


def _tensor(name: str, entry: Mapping[str, Any]) -> SignatureTensor:
    given = _member(entry, "tensor_shape")
    is_unknown = given.get("unknown_rank", given.get("unknownRank", False))
    shape = None if is_unknown else tuple(int(dim["size"]) for dim in given.get("dim", []))
    return SignatureTensor(name, DATATYPES.get(entry["dtype"], entry["dtype"]), shape)


def describe_signature(name: str, signature: Signature, settings: InputSettings) -> ModelDescription:
    """The model, whose tensors have a batch dimension if all inputs may vary in their first one.

    A --shape with as many dimensions as its input in the signature is the whole shape: then nothing is a batch.

    Raises:
        TargetError: -b or the lack of --shape does not go with the signature.
    """
    has_batches = _has_batches(signature, settings)
    return ModelDescription(
        name,
        signature.version,
        tuple(_described(tensor, _given(tensor, settings), has_batches) for tensor in signature.inputs),
        tuple(_described(tensor, (-1,), has_batches) for tensor in signature.outputs),
        max_batch_size=settings.batch_size if has_batches else 0,
    )


def _given(tensor: SignatureTensor, settings: InputSettings) -> tuple[int, ...] | None:
    return settings.shapes.get(tensor.name, settings.shapes.get(""))


def _has_batches(signature: Signature, settings: InputSettings) -> bool:
    is_open = all(tensor.shape is not None and tensor.shape[:1] == (-1,) for tensor in signature.inputs)
    if settings.batch_size > 1:
        if any(tensor.shape is None for tensor in signature.inputs):
            raise TargetError("Can not specify -b flag for saved model with unknown ranked inputs")
        if not is_open:
            raise TargetError("Can not specify -b flag for saved model with input not having their first dim as -1")
        return True
    return is_open and not any(_is_whole(tensor, _given(tensor, settings)) for tensor in signature.inputs)


def _is_whole(tensor: SignatureTensor, given: tuple[int, ...] | None) -> bool:
    return given is not None and tensor.shape is not None and len(given) == len(tensor.shape)


def _described(tensor: SignatureTensor, given: tuple[int, ...] | None, has_batches: bool) -> TensorDescription:
    shape = tensor.shape
    if shape is None:
        if given is None:
            raise TargetError(
                f"the input '{tensor.name}' has an unknown number of dimensions: give its shape with "
                f"--shape {tensor.name}:<dims>"
            )
        return TensorDescription(tensor.name, tensor.datatype, (-1,) * len(given))
    return TensorDescription(tensor.name, tensor.datatype, shape[1:] if has_batches else shape)
