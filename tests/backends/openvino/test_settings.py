"""Parameters of models on OpenVINO: hints, streams, threads, devices, and the cache of compiled models."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("openvino") is None:
    pytest.skip("the extra openvino is not installed", allow_module_level=True)

from naiad.backends import registry
from support import openvino_models as made
from support.backend_contract import context, group, spec, started
from support.openvino_backend import answer, loaded, parameters, properties, refusal, tensors

LINEAR = tensors("4", "3", 8)
ONES = np.ones((2, 4), np.float32)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.save(tmp_path_factory.mktemp("linear") / "m.xml", made.linear())


def test_each_instance_has_a_stream_and_its_share_of_the_cores(linear: Path) -> None:
    two = 'instance_group [ { name: "m" kind: KIND_CPU count: 2 } ]'
    found = properties(linear, LINEAR + two, 2, "NUM_STREAMS", "INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING")
    assert found == {"NUM_STREAMS": "2", "INFERENCE_NUM_THREADS": "2", "ENABLE_CPU_PINNING": "False"}
    found = properties(linear, LINEAR, 1, "NUM_STREAMS", "INFERENCE_NUM_THREADS")
    assert found == {"NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "1"}


def test_another_number_of_instances_is_compiled_anew(linear: Path) -> None:
    model = spec(LINEAR)
    more = spec(LINEAR + 'instance_group [ { name: "m" kind: KIND_CPU count: 2 } ]')
    with started("openvino", context(linear, 2), model) as backend:
        first = backend.create_instance(group(model), 0)
        same = backend.create_instance(group(model), 0)
        backend.regroup(more, None)
        other = backend.create_instance(group(more), 1)
        streams = [
            str(instance._request.get_compiled_model().get_property("NUM_STREAMS"))  # type: ignore[attr-defined]
            for instance in (first, same, other)
        ]
        assert streams == ["1", "1", "2"]
        assert answer(first, ONES).tolist() == answer(other, ONES).tolist() == (ONES @ np.ones((4, 3))).tolist()


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("PERFORMANCE_HINT", "THROUGHPUT", "THROUGHPUT"),
        ("PERFORMANCE_HINT", "latency", "LATENCY"),
        ("NUM_STREAMS", "1", "1"),
        ("NUM_STREAMS", "NUMA", "1"),
        ("INFERENCE_NUM_THREADS", "1", "1"),
    ],
)
def test_parameters_reach_openvino(linear: Path, name: str, value: str, shown: str) -> None:
    assert properties(linear, LINEAR + parameters(**{name: value}), 2, name) == {name: shown}


def test_parameters_of_compilation_and_precision_are_taken(linear: Path) -> None:
    import openvino

    text = LINEAR + parameters(HINT_BF16="YES", COMPILATION_NUM_THREADS="2", NUM_STREAMS="AUTO")
    # OpenVINO keeps to float32 on a processor without such instructions.
    able = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    shown = properties(linear, text, 2, "INFERENCE_PRECISION_HINT")["INFERENCE_PRECISION_HINT"]
    assert ("bfloat16" if able else "float32") in shown
    text = LINEAR + parameters(HINT_BF16="NO")
    assert "float32" in properties(linear, text, 2, "INFERENCE_PRECISION_HINT")["INFERENCE_PRECISION_HINT"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PERFORMANCE_HINT", "FAST", '"LATENCY" or "THROUGHPUT"'),
        ("NUM_STREAMS", "0", 'a number of at least 1, "AUTO" or "NUMA"'),
        ("NUM_STREAMS", "many", 'a number of at least 1, "AUTO" or "NUMA"'),
        ("INFERENCE_NUM_THREADS", "-1", "a whole number of at least 0"),
        ("ENABLE_BATCH_PADDING", "perhaps", '"true" or "false"'),
        ("TARGET_DEVICE", "FPGA", '"CPU", "GPU", "NPU", "AUTO"'),
        ("TARGET_DEVICE", "CPU:../evil", '"CPU", "GPU", "NPU", "AUTO"'),
    ],
)
def test_a_wrong_value_names_the_parameter(linear: Path, name: str, value: str, expected: str) -> None:
    text = refusal(linear, LINEAR + parameters(**{name: value}))
    assert f"parameter '{name}' is \"{value}\", expected {expected}" in text


def test_other_parameters_are_the_models_own(linear: Path) -> None:
    with loaded(linear, LINEAR + parameters(owner="me", execution="thread")) as instance:
        assert answer(instance, ONES).shape == (2, 3)


# Devices


def test_only_the_processor_is_touched_unasked(linear: Path) -> None:
    """Plugins of other devices are libraries, which the process has mapped once they are loaded."""
    with loaded(linear, LINEAR):
        mapped = Path("/proc/self/maps").read_text()
    assert "libopenvino_intel_cpu_plugin" in mapped
    assert "intel_gpu_plugin" not in mapped and "intel_npu_plugin" not in mapped


def test_a_device_that_is_not_there_is_named(linear: Path) -> None:
    if "NPU" in made.openvino.Core().available_devices:
        pytest.skip("this machine has an NPU")
    text = refusal(linear, LINEAR + parameters(TARGET_DEVICE="NPU"))
    assert 'TARGET_DEVICE is "NPU", and OpenVINO finds no NPU here, only CPU' in text
    assert "finds no NPU" in refusal(linear, LINEAR + parameters(TARGET_DEVICE="MULTI:CPU,NPU"))


def test_devices_that_stand_for_others_run(linear: Path) -> None:
    for device in ("AUTO", "HETERO:CPU"):
        with loaded(linear, LINEAR + parameters(TARGET_DEVICE=device)) as instance:
            assert answer(instance, ONES).shape == (2, 3)


def test_a_group_on_gpus_is_refused(linear: Path) -> None:
    text = refusal(linear, LINEAR + 'instance_group [ { name: "g" kind: KIND_GPU count: 1 gpus: 0 } ]')
    assert "'g' has kind KIND_GPU" in text and 'TARGET_DEVICE: "GPU"' in text


def test_an_accelerator_is_refused(linear: Path) -> None:
    text = LINEAR + 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } } '
    assert "'openvino'" in refusal(linear, text)


def test_a_library_of_operators_that_is_not_there_is_named(linear: Path) -> None:
    text = refusal(linear, LINEAR + parameters(CPU_EXTENSION_PATH="/nonexistent/libmine.so"))
    assert "/nonexistent/libmine.so, cannot be loaded" in text


# The cache


def blobs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def from_cache(path: Path, folder: Path) -> tuple[bool, float]:
    """Whether the compiled model came from the cache, and a result."""
    with loaded(path, LINEAR + parameters(CACHE_DIR=str(folder))) as instance:
        compiled = instance._request.get_compiled_model()  # type: ignore[attr-defined]
        return bool(compiled.get_property("LOADED_FROM_CACHE")), float(answer(instance, ONES)[0, 0])


def test_the_cache_knows_models_by_their_content(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = made.save(tmp_path / "a" / "m.xml", made.linear())
    assert from_cache(first, cache) == (False, 4.0)
    assert from_cache(first, cache) == (True, 4.0)
    copy = made.save(tmp_path / "b" / "other.xml", made.linear())
    assert from_cache(copy, cache) == (True, 4.0), "the same model in another place"
    assert len(blobs(cache)) == 1
    times = os.stat(first.with_suffix(".bin"))
    made.save(first, made.linear(weight=2.0))
    os.utime(first.with_suffix(".bin"), ns=(times.st_atime_ns, times.st_mtime_ns))
    assert from_cache(first, cache) == (False, 8.0), "other weights in a file of the same size and time"
    assert from_cache(copy, cache) == (True, 4.0)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_entry_of_the_cache_is_made_anew(tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    path = made.save(tmp_path / "m.xml", made.linear())
    from_cache(path, cache)
    (entry,) = cache.iterdir()
    content = bytearray(entry.read_bytes())
    if damage == "changed":
        content[len(content) // 3 : -50 : 7] = bytes(len(range(len(content) // 3, len(content) - 50, 7)))
    entry.write_bytes({"cut": content[: len(content) // 2], "changed": content, "empty": b""}[damage])
    assert from_cache(path, cache) == (False, 4.0)
    assert from_cache(path, cache) == (True, 4.0)


def test_a_setting_gives_all_models_a_cache(tmp_path: Path, linear: Path) -> None:
    at = replace(context(linear), backend_config={"CACHE_DIR": str(tmp_path / "cache")})
    with started("openvino", at, spec(LINEAR)):
        pass
    assert len(blobs(tmp_path / "cache")) == 1


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path, linear: Path) -> None:
    (tmp_path / "file").touch()
    text = refusal(linear, LINEAR + parameters(CACHE_DIR=str(tmp_path / "file" / "cache")))
    assert str(tmp_path / "file" / "cache") in text


def test_the_package_that_is_missing_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(registry.BACKENDS["openvino"], framework="openvino_that_is_not_there")
    monkeypatch.setitem(registry.BACKENDS, "openvino", entry)
    with pytest.raises(registry.BackendUnavailableError, match=r"pip install 'naiad\[openvino\]'"):
        registry.create("openvino", context(tmp_path))
