"""Names of ``parameters``: what is refused, what is remarked upon, and that the tables are those of the backends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from naiad.config.known_parameters.tables import BY_BACKEND, find, known_parameters
from naiad.config.messages import ModelConfig
from naiad.config.normalize import normalize
from naiad.config.rules import parameters
from naiad.config.validate import validate
from naiad.gpus.usable import UsableGpus
from support.source_tree import PACKAGE, SRC

FOLDERS = {"onnxruntime": "onnx", "openvino": "openvino", "pytorch": "torch"}
PLATFORMS = {"onnxruntime": "onnxruntime_onnx", "pytorch": "pytorch_libtorch"}
READS = {"integer", "number", "boolean", "text"}


def config_of(backend: str, *keys: str, groups: str = "", gpu_count: int = 0) -> Any:
    platform = PLATFORMS.get(backend, "")
    text = f'name: "m" backend: "{backend}" platform: "{platform}" {groups}'
    for key in keys:
        text += f' parameters {{ key: "{key}" value {{ string_value: "1" }} }}'
    config = text_format.Parse(text, ModelConfig())
    normalize(config, UsableGpus(tuple(range(gpu_count))))
    return config


def remarks(config: Any) -> list[str]:
    return [remark.message for remark in parameters.remarks(config)]


def test_a_misspelt_parameter_is_refused_with_the_name_that_was_meant() -> None:
    found = validate(config_of("onnxruntime", "intra_op_thread_cont"))
    assert [str(problem) for problem in found] == [
        "parameter 'intra_op_thread_cont' of model 'm' is unknown to the backend 'onnxruntime', did you mean "
        "'intra_op_thread_count'?"
    ]


def test_the_case_of_a_parameter_counts() -> None:
    (problem,) = validate(config_of("pytorch", "inference_mode"))
    assert str(problem).endswith("did you mean 'INFERENCE_MODE'?")
    (problem,) = validate(config_of("openvino", "num_stream"))
    assert str(problem).endswith("is unknown to the backend 'openvino', did you mean 'NUM_STREAMS'?")


def test_an_unknown_parameter_is_remarked_upon() -> None:
    config = config_of("onnxruntime", "team", "session.whatever", "execution")
    assert validate(config) == []
    assert remarks(config) == [
        "parameter 'team' of model 'm' is unknown to the backend 'onnxruntime' and has no effect"
    ]


@pytest.mark.parametrize("backend", ["python", "identity", "my_own"])
def test_models_that_read_their_own_parameters_have_any(backend: str) -> None:
    config = config_of(backend, "intra_op_thread_cont", "team")
    assert validate(config) == []
    assert remarks(config) == []


def test_a_batch_strategy_has_any_parameters() -> None:
    config = config_of("onnxruntime", "TRITON_BATCH_STRATEGY_PATH", "max_batch_byte", "team")
    assert validate(config) == []
    assert remarks(config) == []
    # The name in the reference's example, for a model whose strategy lies in a folder.
    config = config_of("onnxruntime", "MAX_BATCH_VOLUME_BYTES")
    assert validate(config) == []
    assert remarks(config) == []


def test_a_parameter_that_needs_a_gpu() -> None:
    text = (
        "parameter 'gpu_mem_limit' of model 'm' has no effect: it needs a GPU, and no instance group of the model is "
    )
    assert remarks(config_of("onnxruntime", "gpu_mem_limit")) == [text + "on one"]
    on_gpu = config_of("onnxruntime", "gpu_mem_limit", groups="instance_group { kind: KIND_GPU }", gpu_count=1)
    assert remarks(on_gpu) == []


@pytest.mark.parametrize("backend", sorted(BY_BACKEND))
def test_the_table_has_each_parameter_once(backend: str) -> None:
    names = [parameter.name for parameter in known_parameters(backend)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("backend", sorted(FOLDERS))
def test_the_table_has_what_the_backend_reads(backend: str) -> None:
    read = set(_names_read(SRC / PACKAGE / "backends" / FOLDERS[backend]))
    assert read
    assert {name for name in read if find(name, known_parameters(backend)) is None} == set()


def _names_read(folder: Path) -> Iterator[str]:
    """The names that a backend gives to a ``ParameterReader``; settings of ``--backend-config`` left out."""
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS:
                for argument in node.args[:1]:
                    # The settings are in kebab case.
                    if isinstance(argument, ast.Constant) and "-" not in str(argument.value):
                        yield str(argument.value)
