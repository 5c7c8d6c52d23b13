"""Defaults that the server fills in."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

from naiad.config.messages import ModelConfig, enum_name
from naiad.config.normalize import choose_gpus, may_use_gpus, normalize
from naiad.gpus.usable import UsableGpus


def normalized(text: str, gpu_count: int = 0) -> Any:
    config = text_format.Parse('name: "m" ' + text, ModelConfig())
    gpus = UsableGpus(tuple(range(gpu_count)))
    if gpu_count:
        choose_gpus(config, gpus)
    normalize(config, gpus)
    return config


def groups(text: str, gpu_count: int = 0) -> list[tuple[str, str, int, list[int]]]:
    found = normalized(text, gpu_count).instance_group
    return [(g.name, enum_name(g, "kind"), g.count, list(g.gpus)) for g in found]


@pytest.mark.parametrize("text", ["", "version_policy { }", "version_policy { latest { } }"])
def test_version_policy(text: str) -> None:
    assert normalized(text).version_policy.latest.num_versions == 1


def test_stated_version_policies_stay() -> None:
    assert normalized("version_policy { all { } }").version_policy.HasField("all")
    assert normalized("version_policy { latest { num_versions: 3 } }").version_policy.latest.num_versions == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_batch_size: 8 dynamic_batching { }", [8]),
        ("max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 2 ] }", [4, 2]),
        ("dynamic_batching { }", []),
    ],
)
def test_preferred_batch_size(text: str, expected: list[int]) -> None:
    assert normalized(text).dynamic_batching.preferred_batch_size == expected


def test_sequence_batching() -> None:
    sequence = normalized("max_batch_size: 4 sequence_batching { oldest { } }").sequence_batching
    assert sequence.max_sequence_idle_microseconds == 1_000_000
    assert sequence.oldest.preferred_batch_size == [4]


def test_pinned_memory() -> None:
    optimization = normalized("optimization { input_pinned_memory { enable: false } }").optimization
    assert (optimization.input_pinned_memory.enable, optimization.output_pinned_memory.enable) == (False, True)


def test_ensembles_have_no_instances() -> None:
    config = normalized('platform: "ensemble" ensemble_scheduling { }')
    assert not config.instance_group
    assert not config.HasField("optimization")


@pytest.mark.parametrize(
    ("text", "gpu_count", "expected"),
    [
        ("", 0, [("m", "KIND_CPU", 1, [])]),
        ('backend: "onnxruntime"', 0, [("m", "KIND_CPU", 2, [])]),
        ('backend: "onnxruntime"', 2, [("m", "KIND_GPU", 1, [0, 1])]),
        ('backend: "identity"', 2, [("m", "KIND_CPU", 1, [])]),
        ('backend: "tensorflow" instance_group { kind: KIND_CPU }', 1, [("m_0", "KIND_CPU", 2, [])]),
        ('backend: "onnxruntime" instance_group { count: 1 }', 0, [("m_0", "KIND_CPU", 1, [])]),
        ("instance_group { gpus: [ 0, 5 ] }", 1, [("m_0", "KIND_CPU", 1, [0, 5])]),
        ("instance_group { gpus: 0 }", 1, [("m_0", "KIND_GPU", 1, [0])]),
        ("instance_group { kind: KIND_GPU }", 0, [("m_0", "KIND_GPU", 1, [])]),
        ("instance_group { kind: KIND_MODEL }", 3, [("m_0", "KIND_MODEL", 1, [])]),
        (
            'instance_group { name: "a" count: 3 } instance_group { }',
            0,
            [("a", "KIND_CPU", 3, []), ("m_1", "KIND_CPU", 1, [])],
        ),
    ],
)
def test_instance_groups(text: str, gpu_count: int, expected: list[tuple[str, str, int, list[int]]]) -> None:
    assert groups(text, gpu_count) == expected


def test_a_group_of_no_kind_stays_on_the_processor_unless_the_framework_chooses() -> None:
    config = text_format.Parse('name: "m" backend: "onnxruntime" instance_group { }', ModelConfig())
    normalize(config, UsableGpus((0, 1)))
    assert enum_name(config.instance_group[0], "kind") == "KIND_CPU"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "onnxruntime"', True),
        ('backend: "onnxruntime" instance_group { kind: KIND_CPU }', False),
        ('backend: "onnxruntime" instance_group { kind: KIND_CPU } instance_group { }', True),
        ('backend: "tensorrt"', True),
        ('backend: "python"', False),
        ('backend: "python" instance_group { }', True),
        ('backend: "mine" runtime: "model.py"', False),
        ('backend: "fil" instance_group { }', False),
        ('backend: "fil" instance_group { kind: KIND_GPU }', True),
        ('platform: "ensemble"', False),
    ],
)
def test_which_configurations_may_use_gpus(text: str, expected: bool) -> None:
    assert may_use_gpus(text_format.Parse('name: "m" ' + text, ModelConfig())) is expected


def test_a_plan_without_a_group_belongs_on_a_gpu() -> None:
    assert groups('backend: "tensorrt"') == [("m", "KIND_GPU", 1, [])]


def test_a_second_pass_changes_nothing() -> None:
    config = normalized('backend: "onnxruntime" max_batch_size: 4 dynamic_batching { }')
    again = type(config)()
    again.CopyFrom(config)
    normalize(again)
    assert again == config
