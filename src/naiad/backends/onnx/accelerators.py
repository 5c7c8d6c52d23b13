"""Accelerators of ONNX Runtime: what ``optimization.execution_accelerators`` says, as execution providers and options.

Source: the README of the reference's onnxruntime backend, and ONNX Runtime's pages about its execution providers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from naiad.backends.onnx.accelerator_options import (
    CUDA_OPTIONS,
    DNNL_OPTIONS,
    OPENVINO_OPTIONS,
    TENSORRT_OPTIONS,
    OptionTable,
)
from naiad.config.parsing.suggest import did_you_mean
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.config.spec import AcceleratorSpec

CPU_PROVIDER: Final = "CPUExecutionProvider"
CUDA_PROVIDER: Final = "CUDAExecutionProvider"
_OWN_ENVIRONMENT: Final = (
    "in the place of onnxruntime (pip uninstall onnxruntime, then pip install {0}), or give the model an "
    "environment of its own with execution=process and a requirements.txt that has {0}"
)


@dataclass(frozen=True, slots=True)
class KnownAccelerator:
    """An accelerator that this backend knows.

    Attributes:
        title: what it is called in texts.
        provider: ONNX Runtime's name of it.
        package: what has to be installed, "" for nothing that can be installed.
        options: its parameters.
        cache: the options that keep what it has built, with their values; ``{}`` stands for the folder.
    """

    title: str
    provider: str
    package: str
    options: OptionTable
    cache: Mapping[str, str] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """What to do where the installed ONNX Runtime lacks it."""
        if not self.package:
            return f"no package has it; build ONNX Runtime with {self.title} (--use_{self.title.lower()})"
        return f"install {self.package} {_OWN_ENVIRONMENT.format(self.package)}"


ON_GPU: Final = {
    "tensorrt": KnownAccelerator(
        "TensorRT",
        "TensorrtExecutionProvider",
        "onnxruntime-gpu",
        TENSORRT_OPTIONS,
        {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": "{}",
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": "{}",
        },
    ),
    "cuda": KnownAccelerator("CUDA", CUDA_PROVIDER, "onnxruntime-gpu", CUDA_OPTIONS),
}
ON_CPU: Final = {
    "openvino": KnownAccelerator(
        "OpenVINO", "OpenVINOExecutionProvider", "onnxruntime-openvino", OPENVINO_OPTIONS, {"cache_dir": "{}"}
    ),
    "dnnl": KnownAccelerator("DNNL", "DnnlExecutionProvider", "", DNNL_OPTIONS),
}


@dataclass(frozen=True, slots=True)
class Acceleration:
    """An accelerator of a model, with its options by ONNX Runtime's names."""

    known: KnownAccelerator
    options: Mapping[str, str]

    def caches_itself(self) -> bool:
        """Whether the configuration says where what is built is kept, or that it is not."""
        return any(name in self.options for name in self.known.cache)

    def with_cache(self, folder: str) -> Acceleration:
        """The same, keeping what it builds in ``folder``."""
        cache = {name: value.replace("{}", folder) for name, value in self.known.cache.items()}
        return Acceleration(self.known, {**cache, **self.options})


def read_accelerations(
    model: str, found: Sequence[AcceleratorSpec], parameters: Mapping[str, str], on_gpu: bool
) -> tuple[Acceleration, ...]:
    """The accelerators of the instances on a GPU, or of those on the processor, in their order.

    All of ``found`` are checked. ``parameters`` are those of the model: the older ones for CUDA count where the
    accelerator says nothing.

    Raises:
        ModelLoadError: an accelerator or a parameter is unknown, or a value does not fit.
    """
    read = [(spec.on_gpu, _read(model, spec)) for spec in found]
    chosen = [acceleration for is_for_gpu, acceleration in read if is_for_gpu == on_gpu]
    older = CUDA_OPTIONS.read(model, "parameter", CUDA_OPTIONS.older(parameters)) if on_gpu else {}
    if on_gpu and not any(each.known.provider == CUDA_PROVIDER for each in chosen):
        # TensorRT leaves it the operators that it does not have.
        chosen.append(Acceleration(ON_GPU["cuda"], {}))
    return tuple(
        Acceleration(each.known, {**older, **each.options}) if each.known.provider == CUDA_PROVIDER else each
        for each in chosen
    )


def _read(model: str, spec: AcceleratorSpec) -> Acceleration:
    table = ON_GPU if spec.on_gpu else ON_CPU
    known = table.get(spec.name)
    where = f"{'gpu' if spec.on_gpu else 'cpu'}_execution_accelerator"
    if known is None:
        # The first half is the reference's.
        other = ON_CPU if spec.on_gpu else ON_GPU
        hint = did_you_mean(spec.name, table) or ","
        if spec.name in other:
            hint = f", it is a {'cpu' if spec.on_gpu else 'gpu'}_execution_accelerator;"
        raise ModelLoadError(
            f"model '{model}': unknown Execution Accelerator '{spec.name}' is requested under {where}{hint} known are "
            f"{', '.join(table)}"
        )
    return Acceleration(known, known.options.read(model, f"{where} '{spec.name}': parameter", spec.parameters))


def check_available(model: str, wanted: Sequence[Acceleration], available: Sequence[str], version: str) -> None:
    """Check that the installed ONNX Runtime has the providers of these accelerators.

    Raises:
        ModelLoadError: it lacks one; the text says what to install.
    """
    for each in wanted:
        if each.known.provider not in available:
            raise ModelLoadError(
                f"model '{model}': optimization.execution_accelerators asks for {each.known.title}, and the installed "
                f"onnxruntime {version} has no {each.known.provider} (it has {', '.join(available)}); "
                f"{each.known.remedy}"
            )


def check_has_gpu(model: str, found: Sequence[AcceleratorSpec], has_gpu_group: bool, available: Sequence[str]) -> None:
    """Refuse accelerators of GPUs for a model without an instance on one.

    Raises:
        ModelLoadError: there is such an accelerator.
    """
    names = [spec.name for spec in found if spec.on_gpu]
    if not names or has_gpu_group:
        return
    known = ON_GPU[names[0]]
    lacks = "" if known.provider in available else f" and the installed onnxruntime has no {known.provider}"
    remedy = f"{known.remedy}, and write kind: KIND_GPU" if lacks else "write kind: KIND_GPU"
    raise ModelLoadError(
        f"model '{model}': gpu_execution_accelerator '{names[0]}' is for instances on a GPU, all of its "
        f"instances run on the processor{lacks}; {remedy}; --gpu-fallback=cpu serves the model without it"
    )


def with_defaults(acceleration: Acceleration, threads: int) -> Acceleration:
    """The accelerator with options that the configuration leaves open; ``threads`` are those of an instance."""
    if acceleration.known is not ON_CPU["openvino"]:
        return acceleration
    defaults = {"device_type": "CPU", "num_of_threads": str(threads), "num_streams": "1"}
    return Acceleration(acceleration.known, {**defaults, **acceleration.options})


def providers(accelerations: Sequence[Acceleration], device: int | None) -> list[tuple[str, dict[str, str]]]:
    """The providers of a session, the preferred one first; ``device`` is the number of a GPU, None on the processor."""
    on_device = {} if device is None else {"device_id": str(device)}
    found = [(each.known.provider, {**each.options, **on_device}) for each in accelerations]
    return [*found, (CPU_PROVIDER, {})]
