"""``nav.pytriton``: the best format of a package as a function of PyTriton."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from naiad.convert.signature import NamedTensor
from naiad.navigator.configuration import TensorType
from naiad.navigator.converted import Package, PackageRunner
from naiad.navigator.exceptions import ModelNavigatorRuntimeAnalyzerError
from naiad.navigator.strategies import RuntimeSearchStrategy
from naiad.pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction

__all__ = ["DynamicBatcher", "ModelConfig", "PyTritonAdapter", "QueuePolicy", "Tensor", "TimeoutAction"]


class PyTritonAdapter:
    """What ``Triton.bind`` takes for the best format of a package: runner, inputs, outputs and config.

    Args:
        strategies: the first that finds a format decides.
        runner_return_type: of the outputs of the runner.

    Raises:
        ModelNavigatorRuntimeAnalyzerError: no strategy finds a format.
    """

    def __init__(
        self,
        package: Package,
        strategies: Sequence[RuntimeSearchStrategy] | None = None,
        runner_return_type: TensorType = TensorType.NUMPY,
    ) -> None:
        result = package.get_best_model_status(strategies)
        if result is None or result.measured is None:
            raise ModelNavigatorRuntimeAnalyzerError(
                "no format was made, verified and measured, so there is nothing to serve"
            )
        self._largest = max(level.batch for level in result.measured.levels)
        self._signature = package.signature
        self._runner = PackageRunner(result, self._signature, runner_return_type)

    @property
    def batching(self) -> bool:
        """Whether the first axis of all tensors is that of the batch."""
        return self._signature.is_batching

    @property
    def runner(self) -> PackageRunner:
        """The runner, not active yet."""
        return self._runner

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs, without the batch axis."""
        return self._tensors(self._signature.inputs)

    @property
    def outputs(self) -> list[Tensor]:
        """The outputs, without the batch axis."""
        return self._tensors(self._signature.outputs)

    @property
    def config(self) -> ModelConfig:
        """Batching, up to the largest batch that was measured."""
        return ModelConfig(batching=self.batching, max_batch_size=self._largest)

    def _tensors(self, tensors: Iterable[NamedTensor]) -> list[Tensor]:
        skipped = 1 if self.batching else 0
        return [Tensor(tensor.shape[skipped:], _dtype(tensor), tensor.name) for tensor in tensors]


def _dtype(tensor: NamedTensor) -> Any:
    return bytes if tensor.dtype == "str" else np.dtype(tensor.dtype).type
