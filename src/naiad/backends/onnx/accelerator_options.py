"""The parameters of each accelerator: their names, their values, and ONNX Runtime's options of the same meaning."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from naiad.backends.shared.parameters import ParameterReader
from naiad.config.parsing.suggest import did_you_mean
from naiad.errors import ModelLoadError

ReadOption = Callable[[ParameterReader, str, str], dict[str, str]]
"""From a reader, the name of a parameter and its text to provider options."""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The parameters of an accelerator.

    Attributes:
        title: of the accelerator, for error texts.
        readers: by the name of the parameter.
        passes_others: whether unknown ones are handed to ONNX Runtime as they stand.
        at_top_level: those that are parameters of the model in older configurations.
    """

    title: str
    readers: Mapping[str, ReadOption]
    passes_others: bool = False
    at_top_level: frozenset[str] = field(default_factory=frozenset)

    def read(self, model: str, place: str, given: Mapping[str, str]) -> dict[str, str]:
        """Provider options from parameters.

        Args:
            place: where they stand, for error texts.

        Raises:
            ModelLoadError: one is unknown, or its value does not fit.
        """
        reader = ParameterReader(model, given, place)
        found: dict[str, str] = {}
        for name, text in given.items():
            read = self.readers.get(name)
            if read is not None:
                found.update(read(reader, name, text.strip()))
                continue
            hint = did_you_mean(name, self.readers)
            if hint or not self.passes_others:
                # The reference's words.
                raise ModelLoadError(
                    f"model '{model}': unknown parameter '{name}' is provided for {self.title} Execution Accelerator"
                    f"{hint or ', known are ' + ', '.join(self.readers)}"
                )
            found[name] = text
        return found

    def older(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """The parameters of a model that belong to this accelerator."""
        return {name: text for name, text in parameters.items() if name in self.at_top_level}


def _as(option: str, read: ReadOption) -> ReadOption:
    """A parameter whose option has another name."""

    def renamed(reader: ParameterReader, name: str, text: str) -> dict[str, str]:
        return {option: read(reader, name, text)[name]}

    return renamed


def _text(reader: ParameterReader, name: str, text: str) -> dict[str, str]:
    return {name: text}


def _json_object(reader: ParameterReader, name: str, text: str) -> dict[str, str]:
    """A JSON object, or the path of a file with one. ONNX Runtime takes the text, and blames the device for others."""
    try:
        given = text if text.startswith("{") else Path(text).read_text()
        is_object = isinstance(json.loads(given), dict)
    except (OSError, ValueError):
        is_object = False
    if not is_object:
        raise reader.refused(name, "a JSON object, or the path of a file with one")
    return {name: given}


def _boolean(reader: ParameterReader, name: str, text: str) -> dict[str, str]:
    return {name: "1" if reader.boolean(name, False) else "0"}


def _integer(minimum: int = 0, maximum: int | None = None) -> ReadOption:
    def read(reader: ParameterReader, name: str, text: str) -> dict[str, str]:
        value = reader.integer(name, 0, minimum)
        if maximum is not None and value > maximum:
            raise reader.refused(name, f"a whole number from {minimum} to {maximum}")
        return {name: str(value)}

    return read


def _choice(*values: str, numbered: bool = False) -> ReadOption:
    """One of some words, in any case; with ``numbered`` also its number, as older configurations have it."""
    by_text = {value.upper(): value for value in values}
    if numbered:
        by_text.update({str(number): value for number, value in enumerate(values)})

    def read(reader: ParameterReader, name: str, text: str) -> dict[str, str]:
        if text.upper() not in by_text:
            numbers = f', or its number from "0" to "{len(values) - 1}"' if numbered else ""
            raise reader.refused(name, "one of " + ", ".join(f'"{value}"' for value in values) + numbers)
        return {name: by_text[text.upper()]}

    return read


_PRECISIONS: Final = {
    "FP32": {},
    "FP16": {"trt_fp16_enable": "1"},
    "BF16": {"trt_bf16_enable": "1"},
    "INT8": {"trt_int8_enable": "1"},
}


def _precision(reader: ParameterReader, name: str, text: str) -> dict[str, str]:
    if text.upper() not in _PRECISIONS:
        raise reader.refused(name, "one of " + ", ".join(f'"{each}"' for each in _PRECISIONS))
    return dict(_PRECISIONS[text.upper()])


TENSORRT_OPTIONS: Final = OptionTable(
    "TensorRT",
    {
        "precision_mode": _precision,
        "max_workspace_size_bytes": _as("trt_max_workspace_size", _integer()),
        "int8_calibration_table_name": _as("trt_int8_calibration_table_name", _text),
        "int8_use_native_calibration_table": _as("trt_int8_use_native_calibration_table", _boolean),
        **dict.fromkeys(
            (
                *("trt_dla_enable", "trt_engine_cache_enable", "trt_dump_subgraphs"),
                *("trt_force_sequential_engine_build", "trt_context_memory_sharing_enable"),
                *("trt_layer_norm_fp32_fallback", "trt_timing_cache_enable", "trt_force_timing_cache"),
                *("trt_detailed_build_log", "trt_build_heuristics_enable", "trt_sparsity_enable"),
                *("trt_cuda_graph_enable", "trt_dump_ep_context_model"),
            ),
            _boolean,
        ),
        "trt_max_partition_iterations": _integer(1),
        "trt_min_subgraph_size": _integer(1),
        "trt_dla_core": _integer(),
        "trt_builder_optimization_level": _integer(0, 5),
        "trt_auxiliary_streams": _integer(-1),
        "trt_ep_context_embed_mode": _integer(0, 1),
        **dict.fromkeys(
            (
                *("trt_engine_cache_path", "trt_engine_cache_prefix", "trt_timing_cache_path", "trt_tactic_sources"),
                *("trt_extra_plugin_lib_paths", "trt_profile_min_shapes", "trt_profile_opt_shapes"),
                *("trt_profile_max_shapes", "trt_ep_context_file_path"),
            ),
            _text,
        ),
    },
)
CUDA_OPTIONS: Final = OptionTable(
    "CUDA",
    {
        "cudnn_conv_algo_search": _choice("EXHAUSTIVE", "HEURISTIC", "DEFAULT", numbered=True),
        "gpu_mem_limit": _integer(),
        "arena_extend_strategy": _choice("kNextPowerOfTwo", "kSameAsRequested", numbered=True),
        **dict.fromkeys(
            (
                *("do_copy_in_default_stream", "cudnn_conv_use_max_workspace", "cudnn_conv1d_pad_to_nc1d"),
                *("enable_cuda_graph", "enable_skip_layer_norm_strict_mode", "use_tf32", "prefer_nhwc"),
                *("use_ep_level_unified_stream", "tunable_op_enable", "tunable_op_tuning_enable", "fuse_conv_bias"),
            ),
            _boolean,
        ),
        "tunable_op_max_tuning_duration_ms": _integer(),
    },
    passes_others=True,
    at_top_level=frozenset(
        (
            *("cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream"),
            *("cudnn_conv_use_max_workspace", "tunable_op_enable", "tunable_op_tuning_enable"),
        )
    ),
)
OPENVINO_OPTIONS: Final = OptionTable(
    "OpenVINO",
    {
        "device_type": _text,
        "precision": _choice("FP32", "FP16", "ACCURACY"),
        "num_of_threads": _integer(1),
        "num_streams": _integer(1),
        "cache_dir": _text,
        "load_config": _json_object,
        "enable_qdq_optimizer": _boolean,
        "disable_dynamic_shapes": _boolean,
        "model_priority": _choice("LOW", "MEDIUM", "HIGH", "DEFAULT"),
    },
)
DNNL_OPTIONS: Final = OptionTable("DNNL", {"use_arena": _boolean})
