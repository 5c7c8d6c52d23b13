"""From a configuration message to the ``BatchAssembly`` of its model, and to the bounds of its batches."""

from __future__ import annotations

from typing import Any, Final

from naiad.config.assembly import PADDED_BATCH_BYTES, BatchAssembly, BatchInputSpec, PadSpec, UnpadSpec
from naiad.config.complete import PYTHON_RUNTIME, is_ensemble
from naiad.config.messages import enum_name
from naiad.config.pad_calls import KEEP, PREFIX, read_pad, read_unpad
from naiad.tensor.dtypes import BY_CONFIG

BATCH_BYTES: Final = "max_batch_bytes"
"""A parameter: the most bytes of the inputs of a batch."""
BATCH_ERROR: Final = "batch_error"
"""A parameter: the handling of a batch that failed, ``split`` or ``fail``."""
SPLIT: Final = "split"
FAIL: Final = "fail"
# Numbers of this many digits fit 64 bits.
_DIGITS: Final = 18


def gets_requests_apart(config: Any) -> bool:
    """Whether the backend gets single requests in place of batches: Python models and Python-based backends."""
    return bool(config.backend == "python" or config.runtime == PYTHON_RUNTIME)


def assembly(config: Any) -> BatchAssembly | None:
    """How batches of a valid model are assembled; None where their rows are joined."""
    if is_ensemble(config) or gets_requests_apart(config):
        return None
    found = BatchAssembly(
        ragged=frozenset(tensor.name for tensor in config.input if tensor.allow_ragged_batch),
        made=tuple(
            BatchInputSpec(enum_name(item, "kind"), name, BY_CONFIG[enum_name(item, "data_type")], item.source_input[0])
            for item in config.batch_input
            for name in item.target_name
        ),
        pads=pads(config),
        scattered=_given_back(config)
        | {name: item.source_input[0] for item in config.batch_output for name in item.target_name},
        unpads=unpads(config),
    )
    return None if found == BatchAssembly() else found


def _given_back(config: Any) -> dict[str, str]:
    """Outputs of the backend ``identity``, which gives each ragged input back as it came, with that input."""
    if config.backend != "identity":
        return {}
    # A ragged input reaches the backend as one row of elements, which cannot be split by rows: its shapes split it.
    pairs = zip(config.input, config.output, strict=False)
    return {made.name: given.name for given, made in pairs if given.allow_ragged_batch and not given.optional}


def pads(config: Any) -> dict[str, PadSpec]:
    """The padded inputs. Raises ``PadCallError`` where the parameter of one is wrong."""
    return {
        tensor.name: read_pad(text, tensor.dims, BY_CONFIG[enum_name(tensor, "data_type")])
        for tensor in config.input
        if (text := options_of(config, tensor.name)) is not None
    }


def unpads(config: Any) -> dict[str, UnpadSpec]:
    """The outputs that are cut. Raises ``PadCallError`` where a parameter is wrong."""
    padded = pads(config)
    return {
        tensor.name: read_unpad(text, padded, tensor.dims)
        for tensor in config.output
        if (text := options_of(config, tensor.name)) is not None and text.strip() != KEEP and tensor.name not in padded
    }


def options_of(config: Any, tensor: str) -> str | None:
    """The text of the parameter ``batching.<tensor>``, None where there is none."""
    key = PREFIX + tensor
    return config.parameters[key].string_value if key in config.parameters else None


def max_batch_bytes(config: Any) -> int:
    """The parameter ``max_batch_bytes``, 0 for no limit.

    Raises:
        ValueError: it is not a number of at least 1; the error's text is the value.
    """
    if BATCH_BYTES not in config.parameters:
        return PADDED_BATCH_BYTES if any(options_of(config, tensor.name) is not None for tensor in config.input) else 0
    text = config.parameters[BATCH_BYTES].string_value
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        raise ValueError(text)
    return int(text)


def splits_failed(config: Any) -> bool:
    """Whether a batch that failed is run again in parts.

    Not where a run may leave something behind: Python models may keep a state of their own or write somewhere,
    sequences have a state, and decoupled models may have sent responses already.
    """
    if BATCH_ERROR in config.parameters:
        return bool(config.parameters[BATCH_ERROR].string_value.strip() == SPLIT)
    is_stateful = config.HasField("sequence_batching") or config.model_transaction_policy.decoupled
    return not (is_stateful or gets_requests_apart(config))
