"""A model as it is bound: its configuration, its folder, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from naiad.backend_api.backend import Backend, BackendContext
from naiad.binding.function import PROCESS
from naiad.binding.model_folder import CALLABLE, pickled, worker_model_file
from naiad.pytriton.decorators.context import TritonContext
from naiad.pytriton.exceptions import PyTritonValidationError
from naiad.pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy
from naiad.pytriton.model_config.generator import ModelConfigGenerator, write_config
from naiad.pytriton.model_config.model_config import ModelConfig
from naiad.pytriton.model_config.tensor import Tensor
from naiad.pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig
from naiad.pytriton.serving.backend import InferBackend
from naiad.pytriton.serving.infer_call import InferFunction
from naiad.pytriton.serving.worker_model import FUNCTIONS_FILE

_WORKER_MODEL: Final = ("naiad.pytriton.serving.worker_model", "InferModel")


@dataclass(frozen=True, slots=True)
class BoundTritonModel:
    """What ``Triton.bind`` was given.

    Attributes:
        functions: one for each instance.
        config: of the model on the server.
        settings: as the program gave them.
        workers: ``"thread"`` or ``"process"``.
        context: of the server that it is bound to.
        failed: called with a text when a function cannot run again.
    """

    functions: Sequence[Any]
    config: TritonModelConfig
    settings: ModelConfig
    strict: bool
    workers: str
    context: TritonContext
    failed: Callable[[str], object]

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.config.model_name

    @property
    def infer_functions(self) -> list[InferFunction]:
        """The functions with what they need to run."""
        warmups = self.settings.model_warmup or ()
        return [InferFunction(function, self.config, self.strict, warmups) for function in self.functions]

    def files(self) -> dict[str, bytes]:
        """The files of the version's folder, by name.

        Raises:
            InvalidArgumentError: a function cannot be sent to a process.
        """
        if self.workers != PROCESS:
            return {}
        return {
            "model.py": worker_model_file(*_WORKER_MODEL).encode(),
            FUNCTIONS_FILE: pickled(self.model, self.infer_functions, self.functions),
        }

    def server_config(self) -> dict[str, Any]:
        """The configuration for this server."""
        config = ModelConfigGenerator(self.config).get_config()
        config["backend"] = "python" if self.workers == PROCESS else CALLABLE
        if self.settings.deadline_s and self.workers == PROCESS:
            limit = {"string_value": f"{self.settings.deadline_s:g}"}
            config["parameters"] = config.get("parameters", {}) | {"execute-timeout-seconds": limit}
        # A function may have left something behind when it failed, so its batch is not run again in parts.
        config["parameters"] = config.get("parameters", {}) | {"batch_error": {"string_value": "fail"}}
        return config

    def write_folder(self, repository: Path) -> Path:
        """Write the folder; errors as ``files``, and ``PyTritonBadParameterError`` for a wrong configuration."""
        folder = repository / self.model
        write_config(self.server_config(), folder / "config.pbtxt")
        version = folder / str(self.config.model_version)
        version.mkdir(parents=True, exist_ok=True)
        for name, content in self.files().items():
            (version / name).write_bytes(content)
        return folder

    def backend(self, context: BackendContext) -> Backend:
        """What runs the functions in threads."""
        deadline_s = self.settings.deadline_s or 0.0
        return InferBackend(context, self.infer_functions, self.context, deadline_s, self.failed)


def server_config(
    name: str,
    version: int,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    settings: ModelConfig,
    instances: int,
) -> TritonModelConfig:
    """The configuration of a model on the server.

    Raises:
        PyTritonValidationError: an output is optional, or the deadline is no time.
    """
    if any(output.optional for output in outputs):
        raise PyTritonValidationError("Output tensors cannot be optional.")
    if settings.deadline_s is not None and settings.deadline_s <= 0:
        raise PyTritonValidationError(
            f"model '{name}': found deadline_s={settings.deadline_s}, expected seconds above 0, or None for no limit"
        )
    return TritonModelConfig(
        model_name=name,
        model_version=version,
        batching=settings.batching,
        max_batch_size=settings.max_batch_size,
        batcher=_batcher(settings),
        decoupled=settings.decoupled,
        instance_group={DeviceKind.KIND_CPU: instances},
        inputs=_specs("INPUT", inputs),
        outputs=_specs("OUTPUT", outputs),
        response_cache=ResponseCache(enable=True) if settings.response_cache else None,
    )


def _batcher(settings: ModelConfig) -> DynamicBatcher:
    """The batcher, whose queue drops requests at their deadline unless it has a policy of its own."""
    batcher = settings.batcher
    if not settings.deadline_s or batcher.default_queue_policy is not None:
        return batcher
    policy = QueuePolicy(default_timeout_microseconds=round(1e6 * settings.deadline_s), allow_timeout_override=True)
    return DynamicBatcher(**{**vars(batcher), "default_queue_policy": policy})


def _specs(kind: str, tensors: Sequence[Tensor]) -> list[TensorSpec]:
    return [
        TensorSpec(tensor.name or f"{kind}_{number}", tuple(tensor.shape), tensor.dtype, tensor.optional)
        for number, tensor in enumerate(tensors, 1)
    ]
