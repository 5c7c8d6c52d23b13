"""The parameters of a forest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.backends.fil.formats import BY_TYPE, ForestFormat
from naiad.backends.shared.parameters import ParameterReader
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.backend_api.backend import BackendContext

PICKLES: Final = "allow-pickle"
"""The setting of ``--backend-config`` that allows to load pickles."""
_STORAGE_TYPES: Final = ("AUTO", "DENSE", "SPARSE", "SPARSE8")
_ALGORITHMS: Final = ("ALGO_AUTO", "NAIVE", "TREE_REORG", "BATCH_TREE_REORG")
_LAYOUTS: Final = ("depth_first", "breadth_first", "layered", "layered_children_together")


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """What the configuration says of a forest and of its output.

    Attributes:
        file_format: its format; None where ``model_type`` is absent.
        output_class: whether the output is the number of a class; None where the configuration does not say.
        predict_proba: whether the output has a probability for each class.
        threshold: the probability above which a binary classifier says 1.
        threads: for large batches.
        unknown_fields: whether fields of an XGBoost JSON file that are not known are passed over.
        pickles: whether pickles may be loaded, which can run any code.
    """

    file_format: ForestFormat | None
    output_class: bool | None
    predict_proba: bool
    threshold: float
    threads: int
    unknown_fields: bool
    pickles: bool


def read_settings(context: BackendContext, parameters: Mapping[str, str]) -> ForestSettings:
    """The settings of one model.

    Source: the parameters of the reference's backend fil. Those for GPUs are validated and have no effect. ``threads``
    is a parameter of Naiad. It is 1 by default: treelite's threads wait for each other, and on a machine whose cores
    are busy a batch of 64 rows was measured to take 40 ms on two threads and 0.7 ms on one.

    Raises:
        ModelLoadError: a value does not fit; the text names the parameter.
    """
    reader = ParameterReader(context.model, parameters)
    _one_of(reader, "storage_type", _STORAGE_TYPES)
    _one_of(reader, "algo", _ALGORITHMS)
    _one_of(reader, "layout", _LAYOUTS)
    for name in ("blocks_per_sm", "threads_per_tree", "chunk_size", "transfer_threshold"):
        reader.integer(name, 0)
    reader.boolean("use_experimental_optimizations", False)
    backend = ParameterReader(context.model, context.backend_config, "backend config setting")
    return ForestSettings(
        file_format=_stated_format(reader),
        output_class=_output_class(context.model, reader, parameters),
        predict_proba=reader.boolean("predict_proba", False),
        threshold=reader.number("threshold", 0.5),
        threads=reader.integer("threads", 1, 1),
        unknown_fields=reader.boolean("xgboost_allow_unknown_field", False),
        pickles=backend.boolean(PICKLES, False),
    )


def _stated_format(reader: ParameterReader) -> ForestFormat | None:
    text = reader.text("model_type")
    if text is None:
        return None
    if text not in BY_TYPE:
        raise reader.refused("model_type", "one of " + ", ".join(f'"{name}"' for name in BY_TYPE))
    return BY_TYPE[text]


def _output_class(model: str, reader: ParameterReader, parameters: Mapping[str, str]) -> bool | None:
    """``is_classifier`` is the name that later releases of the reference have for it."""
    old, new = reader.boolean("output_class", False), reader.boolean("is_classifier", False)
    if "output_class" not in parameters:
        return new if "is_classifier" in parameters else None
    if "is_classifier" in parameters and old != new:
        raise ModelLoadError(
            f"model '{model}': parameter 'output_class' is \"{parameters['output_class']}\" and 'is_classifier', which "
            f'means the same, is "{parameters["is_classifier"]}"; remove one of them'
        )
    return old


def _one_of(reader: ParameterReader, name: str, known: tuple[str, ...]) -> None:
    text = reader.text(name)
    if text is not None and text not in known:
        raise reader.refused(name, "one of " + ", ".join(f'"{each}"' for each in known))
