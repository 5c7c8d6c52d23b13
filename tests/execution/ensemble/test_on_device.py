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


# What it does is told by the name of the model.
PYTHON = """
import torch
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.does = args["model_name"]
        self.kept = torch.zeros(1, 3)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.made(request.inputs()[0])]) for request in requests]

    def made(self, given):
        if self.does == "gives_back":
            return pb_utils.Tensor.from_dlpack("y", given)
        x = torch.utils.dlpack.from_dlpack(given.to_dlpack())
        if self.does == "writes":
            x += 1
        if self.does == "numpy":
            return pb_utils.Tensor("y", given.as_numpy() + 1)
        if self.does == "capsule":
            return pb_utils.Tensor.from_dlpack("y", torch.utils.dlpack.to_dlpack(x + 1))
        if self.does == "fails":
            x += 1
            if float(x.max()) > 9:
                raise ValueError("not this one")
            return pb_utils.Tensor.from_dlpack("y", x + 1)
        # The same memory each time: what was given before must not change with it.
        self.kept = x + 1 if x.shape != self.kept.shape else torch.add(x, 1, out=self.kept)
        return pb_utils.Tensor.from_dlpack("y", self.kept)
"""


class AddsInPlace(torch.nn.Module):  # type: ignore[misc]
    """x + 1, which it writes over its input; a negative value is an error."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert bool((x >= 0).all()), "negative"
        return x.add_(1.0)


@pytest.fixture(autouse=True)
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "onnx_on_device", BackendEntry("support.on_device:OnnxOnDevice"))
    monkeypatch.setitem(BACKENDS, "torch_on_device", BackendEntry("support.on_device:TorchOnDevice"))
    monkeypatch.setitem(BACKENDS, "python_on_device", BackendEntry("support.on_device:PythonOnDevice"))
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


def write_python(found: House, *names: str, **extra: str) -> None:
    """Python models on the device, which do what their names say."""
    for name in names:
        text = f'backend: "python_on_device" default_model_filename: "model.py" {SHAPES}'
        found.write(name, f"{text} instance_group [ {{ kind: KIND_CPU count: 1 }} ] {extra.get(name, '')}")
        (found.repository / name / "1" / "model.py").write_text(PYTHON)


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


def test_python_models_in_threads_take_and_leave_tensors_on_the_device(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write_python(found, "keeps", "capsule")
        write(found, "double", "keeps", "add", "capsule", "double")
        await found.manager.load_model("chain")
        before = transfers.counts()
        # 2 x, and thrice 1 more, and twice that.
        assert await results(found, caller(1.0)) == [10.0]
        assert handled_since(before) == {"resident": 4, "copied": 0}
        assert await results(found, caller(1.0), caller(5.0, rows=2), caller(2.0)) == [10.0, 26.0, 14.0]
        assert handled_since(before) == {"resident": 16, "copied": 0}

    play(tmp_path, scenario)


def test_what_a_python_model_makes_elsewhere_is_an_array(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write_python(found, "numpy", "gives_back")
        write(found, "double", "gives_back", "numpy", "add")
        await found.manager.load_model("chain")
        assert await results(found, caller(1.0), caller(3.0)) == [4.0, 8.0]

    play(tmp_path, scenario)


def test_a_python_model_that_writes_to_its_input_has_it_for_itself(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        write_python(found, "writes")
        write(found, "double")
        ends = step("double", {"x": "IN"}, {"y": "t"}), step("writes", {"x": "t"}, {"y": "more"})
        write_sum(found, *ends, step("sum", {"a": "t", "b": "more"}, {"y": "OUT"}))
        await found.manager.load_model("chain")
        before = transfers.counts()
        # 2 and 2 + 1 + 1: the step that sums gets what ``double`` made.
        assert await results(found, caller(1.0)) == [6.0]
        # ``t`` has two readers, one of which may write; ``more`` has one.
        assert handled_since(before) == {"resident": 1, "copied": 0}

    play(tmp_path, scenario)


def test_requests_whose_tensors_a_failed_run_may_have_changed_do_not_run_again(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        wait = "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000 }"
        write_python(found, "fails", fails=wait)
        write(found, "double", "fails", "add")
        await found.manager.load_model("chain")
        both = [caller(1.0), caller(5.0)]
        for one in both:
            found.engine.find("chain", None).submit(one)
        # The first one's input was written to before the second one failed.
        for one in both:
            with pytest.raises(Exception, match=r"in ensemble 'chain', step 1 \(model 'fails'\): .*not this one"):
                await asyncio.wait_for(one.outputs(), 60)
        assert await results(found, caller(1.0), caller(2.0)) == [5.0, 7.0]

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
