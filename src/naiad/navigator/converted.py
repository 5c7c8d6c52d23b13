"""What ``optimize`` returns: the formats that were made, and runners of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from naiad.convert.errors import ConvertError
from naiad.convert.outputs import as_arrays
from naiad.convert.results import Conversion, FormatResult
from naiad.convert.runners import Runner, open_runner
from naiad.convert.signature import SourceSignature
from naiad.convert.source import SourceKind
from naiad.navigator.configuration import Framework, TensorType
from naiad.navigator.exceptions import (
    ModelNavigatorNotFoundError,
    ModelNavigatorRuntimeAnalyzerError,
    ModelNavigatorUserInputError,
)
from naiad.navigator.formats import formats_of_key
from naiad.navigator.strategies import DEFAULT, RuntimeSearchStrategy


def _as_torch(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


def _as_tensorflow(array: Any) -> Any:
    import tensorflow as tf

    return tf.convert_to_tensor(array)


_CASTS: Final[Mapping[TensorType, Callable[[Any], Any]]] = {
    TensorType.NUMPY: lambda array: array,
    TensorType.TORCH: _as_torch,
    TensorType.TENSORFLOW: _as_tensorflow,
}


_FRAMEWORKS: Final[Mapping[SourceKind, Framework]] = {
    SourceKind.TORCH: Framework.TORCH,
    SourceKind.EXPORTED: Framework.TORCH,
    SourceKind.TORCHSCRIPT: Framework.TORCH,
    SourceKind.KERAS: Framework.TENSORFLOW,
    SourceKind.SAVEDMODEL: Framework.TENSORFLOW,
    SourceKind.ONNX: Framework.ONNX,
}


class PackageRunner:
    """A converted model that can be called: a context manager with ``infer(feed_dict)``.

    Args:
        return_type: of the outputs.
    """

    def __init__(
        self, result: FormatResult, signature: SourceSignature, return_type: TensorType | str = TensorType.NUMPY
    ) -> None:
        self._result, self._signature, self._return_type = result, signature, TensorType(return_type)
        self._runner: Runner | None = None

    def __enter__(self) -> PackageRunner:
        self.activate()
        return self

    def __exit__(self, *_: object) -> None:
        self.deactivate()

    def activate(self) -> None:
        """Load the model."""
        assert self._result.made is not None, "only made formats have a runner"
        self._runner = open_runner(self._result.target, self._result.made, self._signature)

    def deactivate(self) -> None:
        """Release the model."""
        self._runner = None

    def infer(self, feed_dict: Mapping[str, Any], check_inputs: bool = True, **_: Any) -> dict[str, Any]:
        """The outputs by name for arrays or tensors by the names of the inputs.

        Args:
            check_inputs: has no effect; the framework checks them.

        Raises:
            ConvertError: the runner is not active.
            ModelNavigatorUserInputError: an input is missing.
        """
        if self._runner is None:
            raise ConvertError("the runner is not active; use it in a with statement, or call activate()")
        names = [tensor.name for tensor in self._signature.inputs]
        missing = [name for name in names if name not in feed_dict]
        if missing:
            raise ModelNavigatorUserInputError(
                f"the feed has {', '.join(feed_dict) or 'nothing'}, and the model takes {', '.join(names)}"
            )
        outputs = self._runner(as_arrays({name: feed_dict[name] for name in names}))
        return {name: _CASTS[self._return_type](array) for name, array in outputs.items()}


class Package:
    """The formats that were made of a model, and what was found of them."""

    def __init__(self, conversion: Conversion, model: Any = None) -> None:
        self.conversion = conversion
        self.model = model

    @property
    def signature(self) -> SourceSignature:
        """The model's tensors."""
        return SourceSignature.from_json(self.conversion.described["signature"])

    @property
    def framework(self) -> Framework:
        """What the source model was written in; NONE for what the original does not know."""
        return _FRAMEWORKS.get(self.conversion.described["kind"], Framework.NONE)

    @property
    def status(self) -> dict[str, Any]:
        """All that is known, as JSON's types."""
        return self.conversion.as_json()

    def is_empty(self) -> bool:
        """Whether no format was made."""
        return not any(result.is_made for result in self.conversion.formats)

    def load_source_model(self, model: Any) -> None:
        """Keep the source model, which a file of a package does not have."""
        self.model = model

    def get_model_path(self, model_key: str) -> Path:
        """The file of a format, by Naiad's name or the original's key.

        Raises:
            ModelNavigatorNotFoundError: there is no such format.
        """
        for target in formats_of_key(model_key):
            result = self.conversion.of(target)
            if result is not None and result.made is not None:
                return Path(result.made["file"])
        raise ModelNavigatorNotFoundError(f"the package has no format '{model_key}'")

    def get_best_model_status(
        self, strategies: Sequence[RuntimeSearchStrategy] | None = None, include_source: bool = True
    ) -> FormatResult | None:
        """The best format by the first strategy that finds one; None when none does."""
        for strategy in strategies or DEFAULT:
            found = strategy.find(self.conversion.formats)
            if found:
                return self.conversion.of(found)
        return None

    def get_runner(
        self,
        strategies: Sequence[RuntimeSearchStrategy] | None = None,
        include_source: bool = True,
        return_type: TensorType | str = TensorType.NUMPY,
        **_: Any,
    ) -> PackageRunner:
        """A runner of the best format.

        Raises:
            ModelNavigatorRuntimeAnalyzerError: no strategy finds one.
        """
        found = self.get_best_model_status(strategies)
        if found is None:
            raise ModelNavigatorRuntimeAnalyzerError("no format was made, verified and measured, so there is no runner")
        return PackageRunner(found, self.signature, return_type)
