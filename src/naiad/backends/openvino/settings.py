"""The parameters of a model on OpenVINO, and the properties that it is compiled with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.backend_api.backend import threads_per_instance
from naiad.backends.shared.parameters import ParameterReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.backend_api.backend import BackendContext

CPU: Final = "CPU"
CACHE_DIR: Final = "CACHE_DIR"
_HINTS: Final = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")
_DEVICE: Final = r"(?:CPU|GPU|NPU)(?:\.\d+)*"
_LIST: Final = rf"{_DEVICE}(?:,-?{_DEVICE})*"
_DEVICES: Final = re.compile(rf"{_DEVICE}|AUTO(?::-?{_LIST})?|(?:MULTI|HETERO):{_LIST}")


@dataclass(frozen=True, slots=True)
class OpenVinoSettings:
    """Everything that decides how a model is read and compiled. Equal settings make interchangeable compiled models.

    Attributes:
        device: the device in OpenVINO's words, such as "CPU".
        properties: what the model is compiled with, sorted by name.
        extension: the path of a library with further operators; "" for none.
        cache_folder: where compiled models are kept; "" for nowhere.
        skips_dynamic_batch: every run has ``max_batch_size`` rows.
        pads_batch: rows of zeros fill a batch that has fewer rows than the model needs.
        reshapes_io: the inputs get the dims of the configuration.
    """

    device: str
    properties: tuple[tuple[str, str], ...]
    extension: str = ""
    cache_folder: str = ""
    skips_dynamic_batch: bool = False
    pads_batch: bool = False
    reshapes_io: bool = False


def read_settings(context: BackendContext, parameters: Mapping[str, str], instance_count: int) -> OpenVinoSettings:
    """The settings of one model.

    Source: the README of the reference's openvino backend. On the CPU the cores are divided among the instances unless
    the parameters say otherwise: each instance has a stream of its own, so that no run waits for another.

    Raises:
        ModelLoadError: it names a parameter whose value does not fit.
    """
    reader = ParameterReader(context.model, parameters)
    device = _device(reader)
    return OpenVinoSettings(
        device=device,
        properties=tuple(sorted(_properties(context, reader, device, instance_count).items())),
        extension=reader.text("CPU_EXTENSION_PATH") or "",
        cache_folder=reader.text(CACHE_DIR) or context.backend_config.get(CACHE_DIR, ""),
        skips_dynamic_batch=reader.boolean("SKIP_OV_DYNAMIC_BATCHSIZE", False),
        pads_batch=reader.boolean("ENABLE_BATCH_PADDING", False),
        reshapes_io=reader.boolean("RESHAPE_IO_LAYERS", False),
    )


def _device(reader: ParameterReader) -> str:
    device = (reader.text("TARGET_DEVICE") or CPU).strip().upper()
    if not _DEVICES.fullmatch(device):
        raise reader.refused(
            "TARGET_DEVICE", '"CPU", "GPU", "NPU", "AUTO", or a list of devices such as "MULTI:GPU,CPU" or "HETERO:..."'
        )
    return device


def _properties(context: BackendContext, reader: ParameterReader, device: str, instance_count: int) -> dict[str, str]:
    """By OpenVINO's names; those of a processor have defaults on the processor only."""
    given = {
        "PERFORMANCE_HINT": _hint(reader),
        "NUM_STREAMS": _streams(reader),
        "INFERENCE_NUM_THREADS": _count(reader, "INFERENCE_NUM_THREADS"),
        "COMPILATION_NUM_THREADS": _count(reader, "COMPILATION_NUM_THREADS"),
        "INFERENCE_PRECISION_HINT": _precision(reader),
    }
    found = {name: text for name, text in given.items() if text}
    if device == CPU:
        # The processor's plugin does not know it.
        found.pop("COMPILATION_NUM_THREADS", None)
        # Streams of several models would share the first cores, and leave none to the event loop.
        found["ENABLE_CPU_PINNING"] = "NO"
        threads = threads_per_instance(context, instance_count, context.policies.of_process())
        found.setdefault("INFERENCE_NUM_THREADS", str(threads * instance_count))
        if "PERFORMANCE_HINT" in found:
            found.setdefault("PERFORMANCE_HINT_NUM_REQUESTS", str(instance_count))
        else:
            found.setdefault("NUM_STREAMS", str(instance_count))
    return found


def _hint(reader: ParameterReader) -> str:
    hint = (reader.text("PERFORMANCE_HINT") or "").strip().upper()
    if hint and hint not in _HINTS:
        raise reader.refused("PERFORMANCE_HINT", '"LATENCY" or "THROUGHPUT"')
    return hint


def _precision(reader: ParameterReader) -> str:
    """Without the parameter OpenVINO decides: on processors with instructions for BF16 it computes in that."""
    if reader.text("HINT_BF16") is None:
        return ""
    return "bf16" if reader.boolean("HINT_BF16", False) else "f32"


def _streams(reader: ParameterReader) -> str:
    text = (reader.text("NUM_STREAMS") or "").strip().upper()
    if text in ("", "AUTO", "NUMA"):
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0):
        raise reader.refused("NUM_STREAMS", 'a number of at least 1, "AUTO" or "NUMA"')
    return str(int(text))


def _count(reader: ParameterReader, name: str) -> str:
    """A number of threads; "" for 0, which leaves it to OpenVINO."""
    return str(reader.integer(name, 0) or "")
