"""Tensors of an ensemble stay on a device between steps that run there. The processor plays the device."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from naiad.backends.registry import BACKENDS, BackendEntry
from naiad.backends.torch.flat_instance import FlatInstance, FlatPlan
from naiad.request import RequestOptions
from naiad.tensor.device_tensor import DeviceTensor, transfers
from support import onnx_models, torch_models
from support.explicit_manager import House, play
from support.loaded_models import Caller
from support.served_ensembles import step
from support.served_models import tensor

torch = pytest.importorskip("torch")
X, Y = tensor("x", "TYPE_FP32", "3"), tensor("y", "TYPE_FP32", "3")
SHAPES = f"max_batch_size: 8 input [ {X} ] output [ {Y} ]"


class AddsInPlace(torch.nn.Module):  # type: ignore[misc]
    """x + 1, which it writes over its input; a negative value is an error."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert bool((x >= 0).all()), "negative"
        return x.add_(1.0)


@pytest.fixture(autouse=True)
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "onnx_on_device", BackendEntry("support.on_device:OnnxOnDevice"))
    monkeypatch.setitem(BACKENDS, "torch_on_device", BackendEntry("support.on_device:TorchOnDevice"))
    monkeypatch.setitem(BACKENDS, "remarks", BackendEntry("support.on_device:Remarks", stays=True))


def write(found: House, *models: str, **extra: str) -> None:
    """The members ``double`` and ``add``, each on the device, and ``same`` elsewhere; an ensemble of ``models``."""
    found.write("double", f'backend: "onnx_on_device" {SHAPES} {extra.get("double", "")}')
    onnx_models.save(
        found.repository / "double" / "1" / "model.onnx",
        [onnx_models.helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": ("FP32", ("N", 3))},
        {"y": ("FP32", ("N", 3))},
    )
    named = f"input [ {X} ] output [ {tensor('OUTPUT0', 'TYPE_FP32', '3')} ]"
    text = f'backend: "torch_on_device" default_model_filename: "model.pt" max_batch_size: 8 {named}'
    found.write("add", f"{text} {extra.get('add', '')}")
    torch_models.save(found.repository / "add" / "1" / "model.pt", AddsInPlace())
    found.write("same", f'backend: "identity" {SHAPES}')
    given = ["IN", *(f"t{n}" for n in range(1, len(models))), "OUT"]
    steps = [
        step(model, {"x": given[n]}, {"OUTPUT0" if model == "add" else "y": given[n + 1]})
        for n, model in enumerate(models)
    ]
    write_chain(found, *steps)


def write_chain(found: House, *steps: str) -> None:
    """The ensemble of these steps, from IN to OUT."""
    ends = f"input [ {tensor('IN', 'TYPE_FP32', '3')} ] output [ {tensor('OUT', 'TYPE_FP32', '3')} ]"
    scheduling = f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}"
    found.write("chain", f'platform: "ensemble" max_batch_size: 8 {ends} {scheduling}')


def caller(value: float, rows: int = 1) -> Caller:
    found = Caller(value, options=RequestOptions(("OUT",), rows))
    found.inputs = {"IN": np.full((rows, 3), value, np.float32)}
    return found


async def results(found: House, *callers: Caller) -> list[float]:
    """The value of each caller's response, which is the same in all its elements."""
    model = found.engine.find("chain", None)
    for one in callers:
        model.submit(one)
    values = []
    for one in callers:
        out = (await asyncio.wait_for(one.outputs(), 60))["OUT"]
        assert isinstance(out, np.ndarray)
        assert out.shape == one.inputs["IN"].shape
        assert len(np.unique(out)) == 1
        values.append(float(out.flat[0]))
    return values


def handled_since(before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in transfers.counts().items()}


def test_tensors_stay_between_onnx_runtime_and_torch_without_a_copy(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write(found, "double", "add", "double", "add", "add")
        await found.manager.load_model("chain")
        before = transfers.counts()
        assert await results(found, caller(1.0), caller(5.0, rows=2)) == [8.0, 24.0]
        assert await results(found, caller(2.0)) == [12.0]
        assert handled_since(before) == {"resident": 12, "copied": 0}

    play(tmp_path, scenario)


def test_rows_of_a_batch_stay_where_the_framework_can_cut_them(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        wait = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000000 }"
        write(found, "add", "add", add=wait)
        await found.manager.load_model("chain")
        before = transfers.counts()
        # Four rows make a batch at once, in both steps.
        assert await results(found, caller(1.0), caller(2.0), caller(3.0, rows=2)) == [3.0, 4.0, 5.0]
        assert handled_since(before) == {"resident": 3, "copied": 0}
        assert found.engine.find("add", None).statistics.execution_count == 2

    play(tmp_path, scenario)


def test_a_batch_of_onnx_runtime_is_in_the_memory_of_the_processor(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        wait = "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000 }"
        write(found, "double", "double", double=wait)
        await found.manager.load_model("chain")
        before = transfers.counts()
        assert await results(found, caller(1.0), caller(2.0)) == [4.0, 8.0]
        # Its outputs are of two requests, and cannot be cut: they never were on the way as tensors of the device.
        assert handled_since(before) == {"resident": 0, "copied": 0}

    play(tmp_path, scenario)


def test_a_model_elsewhere_gets_arrays(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write(found, "add", "same", "add", "double")
        await found.manager.load_model("chain")
        before = transfers.counts()
        assert await results(found, caller(1.0)) == [6.0]
        assert handled_since(before) == {"resident": 1, "copied": 0}

    play(tmp_path, scenario)


def test_an_error_of_a_later_step_is_its_own(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write(found, "double", "add", "double")
        await found.manager.load_model("chain")
        wrong = caller(-1.0)
        found.engine.find("chain", None).submit(wrong)
        with pytest.raises(Exception, match=r"in ensemble 'chain', step 1 \(model 'add'\): torch: .*negative"):
            await asyncio.wait_for(wrong.outputs(), 60)
        # The next request finds everything as it was.
        assert await results(found, caller(1.0)) == [6.0]

    play(tmp_path, scenario)


def write_sum(found: House, *steps: str) -> None:
    """The member ``sum`` of two inputs, on the device, and an ensemble of these steps."""
    shape = ("FP32", ("N", 3))
    given = f"{tensor('a', 'TYPE_FP32', '3')}, {tensor('b', 'TYPE_FP32', '3')}"
    found.write("sum", f'backend: "onnx_on_device" max_batch_size: 8 input [ {given} ] output [ {Y} ]')
    onnx_models.save(
        found.repository / "sum" / "1" / "model.onnx",
        [onnx_models.helper.make_node("Add", ["a", "b"], ["y"])],
        {"a": shape, "b": shape},
        {"y": shape},
    )
    write_chain(found, *steps)


def test_an_input_that_two_steps_read_is_not_written_to(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write(found, "double")
        write_sum(
            found,
            step("double", {"x": "IN"}, {"y": "t"}),
            step("add", {"x": "t"}, {"OUTPUT0": "more"}),
            step("sum", {"a": "t", "b": "more"}, {"y": "OUT"}),
        )
        await found.manager.load_model("chain")
        before = transfers.counts()
        assert await results(found, caller(1.0)) == [5.0]
        assert handled_since(before) == {"resident": 3, "copied": 0}

    play(tmp_path, scenario)


def test_a_request_that_leaves_the_compiled_plan_gets_its_tensors_by_a_copy(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write(found, "double")
        found.write("remarks", f'backend: "remarks" {SHAPES}')
        write_sum(
            found,
            step("double", {"x": "IN"}, {"y": "t"}),
            # Its response has a parameter, so the request continues by the rules in full.
            step("remarks", {"x": "IN"}, {"y": "same"}),
            step("sum", {"a": "t", "b": "same"}, {"y": "OUT"}),
        )
        await found.manager.load_model("chain")
        before = transfers.counts()
        assert await results(found, caller(1.0)) == [3.0]
        assert handled_since(before) == {"resident": 0, "copied": 1}

    play(tmp_path, scenario)


def test_exported_programs_take_and_leave_tensors_on_the_device() -> None:
    plan = FlatPlan(("x",), {"y": 0}, frozenset(), False, False, None, True)
    instance = FlatInstance(lambda given: [given[0] * 2], plan, "cpu:0")
    first = instance.execute_on_device({"x": np.ones((2, 3), np.float32)}, ("y",), frozenset({"y"}))["y"]
    second = instance.execute_on_device({"x": first}, ("y",), frozenset({"y"}))["y"]
    before = transfers.counts()
    joined = instance.join([tensor for tensor in (first, second) if isinstance(tensor, DeviceTensor)])
    assert (joined.device, joined.shape, joined.dtype, joined.nbytes) == ((1, 0), (4, 3), np.float32, 48)
    assert handled_since(before) == {"resident": 0, "copied": 0}
    assert np.asarray(joined[1:3]).tolist() == [[2, 2, 2], [4, 4, 4]]
    assert handled_since(before) == {"resident": 0, "copied": 1}
