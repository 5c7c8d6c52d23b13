"""Made-up data: random tensors of every datatype, zeros, shapes from the options."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from naiad.perf.input.build import build_streams
from naiad.perf.input.error import PerfInputError
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE, DATATYPES
from naiad.testing import RunningServer, serving
from support.perf_models import IDENTITIES, infer_binary, model, tensor, write_identities

NAMES = [t.wire for t in DATATYPES]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("identities")
    write_identities(folder)
    with serving(folder.parent / "log", "--model-repository", folder) as running:
        yield running


@pytest.mark.parametrize("source", ["random", "zero"])
@pytest.mark.parametrize("datatype", NAMES)
def test_a_server_takes_every_datatype(server: RunningServer, datatype: str, source: str) -> None:
    settings = InputSettings(source=source, batch_size=2)
    [stream] = build_streams(settings, model(tensor("INPUT0", datatype, 3), max_batch_size=8))
    [step] = stream.steps
    [output] = infer_binary(server, IDENTITIES[datatype], step)
    assert (output.datatype, output.shape, output.data) == (datatype, (2, 3), step.inputs[0].data)


def data_of(settings: InputSettings, described: ModelDescription) -> list[bytes]:
    """The data of the first step of each of two streams."""
    streams = build_streams(settings, described, streams=2)
    return [stream.steps[0].inputs[0].data for stream in streams]


def test_random_data_follow_the_seed() -> None:
    described = model(tensor("INPUT0", "FP32", 100))
    first, again, other = (data_of(InputSettings(seed=seed), described) for seed in (1, 1, 2))
    assert first == again
    assert len({*first, *other}) == 4


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_random_floats_lie_from_0_to_1(datatype: str) -> None:
    [stream] = build_streams(InputSettings(), model(tensor("INPUT0", datatype, 2000)))
    found = np.frombuffer(stream.steps[0].inputs[0].data, BY_WIRE[datatype].numpy).astype(np.float64)
    assert found.min() >= 0 and found.max() <= 1
    assert 0.45 < found.mean() < 0.55


def test_random_integers_cover_their_type() -> None:
    [stream] = build_streams(InputSettings(), model(tensor("INPUT0", "INT16", 4000)))
    found = np.frombuffer(stream.steps[0].inputs[0].data, np.int16)
    assert found.min() < -32000 and found.max() > 32000


def test_random_booleans_are_0_or_1() -> None:
    [stream] = build_streams(InputSettings(), model(tensor("INPUT0", "BOOL", 1000)))
    assert set(stream.steps[0].inputs[0].data) == {0, 1}


@pytest.mark.parametrize("source", ["random", "zero"])
def test_strings_have_the_asked_length(source: str) -> None:
    settings = InputSettings(source=source, string_length=7)
    [stream] = build_streams(settings, model(tensor("INPUT0", "BYTES", 2, 3)))
    found = decode_bytes(stream.steps[0].inputs[0].data, 6, "x")
    assert [len(element) for element in found] == [7] * 6
    assert all(re.fullmatch(rb"[A-Za-z0-9 .?!]{7}", element) for element in found)


def test_a_given_string_is_repeated() -> None:
    settings = InputSettings(string_data="grüß", string_length=7)
    [stream] = build_streams(settings, model(tensor("INPUT0", "BYTES", 2)))
    text = "grüß".encode()
    assert stream.steps[0].inputs[0].data == (struct.pack("<I", len(text)) + text) * 2


def test_a_batch_repeats_the_row() -> None:
    [stream] = build_streams(InputSettings(batch_size=3), model(tensor("INPUT0", "INT32", 2), max_batch_size=4))
    [value] = stream.steps[0].inputs
    assert value.shape == (3, 2)
    assert value.data == value.data[:8] * 3


def test_shapes_fill_in_variable_dimensions() -> None:
    settings = InputSettings(shapes={"INPUT0": (4, 2)}, batch_size=2)
    [stream] = build_streams(settings, model(tensor("INPUT0", "INT32", -1, 2), max_batch_size=8))
    [value] = stream.steps[0].inputs
    assert (value.shape, len(value.data)) == ((2, 4, 2), 4 * math.prod(value.shape))


@pytest.mark.parametrize("datatype", ["INT8", "BYTES"])
def test_more_than_the_memory_is_refused(datatype: str) -> None:
    settings = InputSettings(shapes={"INPUT0": (1 << 50, 1 << 40)}, batch_size=4)
    with pytest.raises(PerfInputError, match=r"of shape \[1125899906842624,1099511627776\] with -b 4 has \d+ bytes"):
        build_streams(settings, model(tensor("INPUT0", datatype, -1, -1), max_batch_size=8))


def test_a_shape_without_a_name_is_that_of_the_only_input() -> None:
    [stream] = build_streams(InputSettings(shapes={"": (5,)}), model(tensor("INPUT0", "INT32", -1)))
    assert stream.steps[0].inputs[0].shape == (5,)


@pytest.mark.parametrize(
    ("settings", "described", "expected"),
    [
        (
            InputSettings(),
            model(tensor("INPUT0", "FP32", 3, -1)),
            "input INPUT0 contains dynamic shape, provide shapes to send along with the request: the model's shape is "
            "[3,-1]; add --shape INPUT0:3,1 with sizes of your own",
        ),
        (
            InputSettings(shapes={"X": (3,)}),
            model(tensor("INPUT0", "FP32", 3)),
            "--shape X:3 names no input of model 'm', expected one of INPUT0",
        ),
        (
            InputSettings(shapes={"INPUT0": (2, 4)}),
            model(tensor("INPUT0", "FP32", -1, 3)),
            'The supplied shape of [2,4] for input "INPUT0" is incompatible with the model\'s input shape of [-1,3]: '
            "change --shape, which is without the batch dimension",
        ),
        (
            InputSettings(shapes={"": (2, 4)}),
            model(tensor("A", "FP32", -1, 4), tensor("B", "FP32", 4)),
            "the shape [2,4] has no name, and model 'm' has 2 inputs: say for which, such as A:2x4",
        ),
        (
            InputSettings(batch_size=2),
            model(tensor("INPUT0", "FP32", 3)),
            "can not specify batch size > 1 as the model does not support batching: found -b 2 for model 'm', whose "
            "max_batch_size is 0",
        ),
        (
            InputSettings(batch_size=2),
            model(tensor("INPUT0", "FP32", 3), max_batch_size=8, is_sequence=True),
            "can not specify batch size > 1 when using a sequence model: found -b 2 for model 'm'",
        ),
        (
            InputSettings(batch_size=9),
            model(tensor("INPUT0", "FP32", 3), max_batch_size=8),
            "found -b 9 for model 'm', expected 1 to its max_batch_size of 8",
        ),
        (
            InputSettings(),
            model(tensor("INPUT0", "INT32", 1, is_shape_tensor=True)),
            "can not generate data for shape tensor 'INPUT0', user-provided data is needed: give --input-data with a "
            "directory or a JSON file",
        ),
        (
            InputSettings(),
            model(tensor("INPUT0", "FP8", 1)),
            "tensor 'INPUT0' has the datatype 'FP8', expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, "
            "INT32, INT64, FP16, FP32, FP64, BYTES, BF16",
        ),
    ],
)
def test_what_cannot_be_made_up(settings: InputSettings, described: ModelDescription, expected: str) -> None:
    with pytest.raises(PerfInputError, match=f"^{re.escape(expected)}$"):
        build_streams(settings, described)
