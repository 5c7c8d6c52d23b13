"""Where tensors lie in shared memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.perf.input.build import build_streams
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.region_layout import lay_out
from naiad.perf.settings import InputSettings
from naiad.perf.steps import RegionLayout, Step, StepStream, TensorValue
from naiad.shared_memory.region import RegionRef
from support.perf_models import model, tensor


def layout_of(settings: InputSettings, *steps: Step, **described: Any) -> RegionLayout:
    """The layout of steps of one stream."""
    outputs = [tensor("INPUT0", "INT32", 2), tensor("INPUT1", "BYTES", 2), tensor("INPUT2", "INT32", -1)]
    return lay_out(settings, model(*outputs, **described), [StepStream(steps)], "x")


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=20))
def test_inputs_lie_apart_and_within(datas: list[bytes]) -> None:
    steps = [Step((TensorValue("A", "UINT8", (len(data),), data),)) for data in datas]
    layout = layout_of(InputSettings(), *steps)
    content = bytearray(layout.input_bytes)
    for offset, data in layout.writes:
        content[offset : offset + len(data)] = data
    assert len(content) == layout.input_bytes
    for step, data in zip(layout.streams[0].steps, datas, strict=True):
        [value] = step.inputs
        if not data:
            assert value.region is None
            continue
        assert value.region is not None
        assert value.region.region == layout.input_region
        assert value.region.offset % 64 == 0
        assert content[value.region.offset : value.region.offset + value.region.byte_size] == data


def test_the_same_data_lie_there_once() -> None:
    value = TensorValue("A", "UINT8", (100,), bytes(100))
    layout = layout_of(InputSettings(), Step((value,)), Step((value,)))
    assert (layout.input_bytes, len(layout.writes)) == (128, 1)


def test_outputs_have_room_for_a_batch() -> None:
    settings = InputSettings(batch_size=3, output_shared_memory_size=100)
    layout = layout_of(settings, max_batch_size=8)
    assert layout.outputs == {
        "OUTPUT0": RegionRef("x-outputs", 0, 24),
        "OUTPUT1": RegionRef("x-outputs", 64, 300),
        "OUTPUT2": RegionRef("x-outputs", 384, 300),
    }
    assert layout.output_bytes == 704
    assert layout_of(settings).outputs["OUTPUT0"].byte_size == 8


def test_responses_are_not_compared(tmp_path: Path) -> None:
    described = model(tensor("INPUT0", "INT32", 1))
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [{"INPUT0": [1]}], "validation_data": [{"OUTPUT0": [1]}]}))
    settings = InputSettings(source="", paths=(file,), shared_memory="system")
    streams = build_streams(settings, described)
    with pytest.raises(PerfInputError, match="leave out validation_data, or use --shared-memory=none"):
        lay_out(settings, described, streams, "x")
