"""Which requests are chosen, and that a disk in trouble troubles nobody."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from naiad.errors import InvalidArgumentError, UnavailableError
from naiad.options import parse
from naiad.telemetry.tracing.file_writer import MAX_TENSOR_BYTES, MAX_WAITING, TraceWriter
from naiad.telemetry.tracing.settings import TraceSettings, read_changes
from naiad.telemetry.tracing.settings_store import MAX_MODELS, Tracing
from naiad.telemetry.tracing.tensors import MAX_BYTES, QUEUE_INPUT, traced_tensors
from naiad.telemetry.tracing.trace import Trace, TraceOutput
from naiad.telemetry.tracing.w3c import TraceParent, read_parent
from naiad.tensor.dtypes import BY_WIRE, BYTES

ON = ("TIMESTAMPS",)
CLOSE_S = 10.0


def trace(number: int) -> Trace:
    return Trace(number, "m", 1, "", (("REQUEST_START", 5),))


def test_one_of_so_many_is_chosen(tmp_path: Path) -> None:
    tracing = Tracing(TraceSettings(ON, trace_rate=3), TraceWriter(str(tmp_path / "trace")))
    sampler = tracing.sampler("m")
    assert sampler is not None
    assert [sampler.take() for _ in range(7)] == [0, 0, 1, 0, 0, 2, 0]
    assert [sampler.passes_over() for _ in range(3)] == [True, False, False]
    assert sampler.take() == 3
    assert [sampler.passes_over_all(n) for n in (1, 2, 1, 1)] == [True, False, True, False]
    assert sampler.take() == 4


def test_the_models_without_own_settings_are_counted_together(tmp_path: Path) -> None:
    tracing = Tracing(TraceSettings(ON, trace_rate=2), TraceWriter(str(tmp_path / "trace")))
    assert tracing.sampler("a") is tracing.sampler("b")
    tracing.change("a", {"trace_rate": 1})
    assert tracing.sampler("a") is not tracing.sampler("b")
    tracing.change("a", {"trace_rate": None})
    assert tracing.sampler("a") is tracing.sampler("b")


@pytest.mark.parametrize("settings", [TraceSettings(), TraceSettings(ON, trace_rate=0), TraceSettings(ON, 1, 0)])
def test_nobody_counts_when_nothing_is_traced(tmp_path: Path, settings: TraceSettings) -> None:
    assert Tracing(settings, TraceWriter(str(tmp_path / "trace"))).sampler("m") is None


def test_an_own_setting_follows_the_others_of_all(tmp_path: Path) -> None:
    tracing = Tracing(sink=TraceWriter(str(tmp_path / "trace")))
    tracing.change("m", {"trace_rate": 5})
    tracing.change("", {"trace_level": ON, "trace_rate": 9})
    assert tracing.shown("m")["trace_level"] == ["TIMESTAMPS"]
    assert (tracing.shown("m")["trace_rate"], tracing.shown("other")["trace_rate"]) == ("5", "9")


def test_the_number_of_models_with_own_settings_is_bounded() -> None:
    tracing = Tracing()
    for n in range(MAX_MODELS):
        tracing.change(f"m{n}", {"trace_rate": 1})
    with pytest.raises(UnavailableError, match="clear those of another one"):
        tracing.change("one too many", {"trace_rate": 1})
    tracing.change("m0", {"trace_rate": None})
    tracing.change("one too many", {"trace_rate": 1})


def test_the_command_line_may_repeat_itself(tmp_path: Path) -> None:
    file = f"--trace-config=triton,file={tmp_path / 'trace'}"
    for level, shown in (("OFF", "OFF"), ("max", "TIMESTAMPS")):
        options = parse(
            [
                f"--model-repository={tmp_path}",
                file,
                *[f"--trace-config=level={level}"] * 2,
                "--trace-config=mode=triton",
            ],
            {},
        )
        assert Tracing.from_options(options).shown("")["trace_level"] == [shown]


def test_words_for_levels() -> None:
    assert read_changes({"trace_level": ["on", "min"], "unknown": ["x"]}) == {"trace_level": ON}
    assert read_changes({"trace_level": ["nonsense"], "trace_rate": None}) == {
        "trace_level": ("OFF",),
        "trace_rate": None,
    }
    with pytest.raises(InvalidArgumentError, match="expect only 1 value for 'trace_count'"):
        read_changes({"trace_count": []})


def test_a_file_is_whole_json_after_every_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("of an earlier server")
    writer, output = TraceWriter(str(path)), TraceOutput(0)
    for n in (1, 2):
        writer.put(output, trace(n))
    writer.close(CLOSE_S)
    assert json.loads(path.read_text()) == [
        item
        for n in (1, 2)
        for item in (
            {"id": n, "model_name": "m", "model_version": 1},
            {"id": n, "timestamps": [{"name": "REQUEST_START", "ns": 5}]},
        )
    ]


def test_traces_that_the_disk_does_not_take_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A pipe that nobody reads stands for the disk: opening it waits for a reader."""
    os.mkfifo(tmp_path / "trace")
    writer, output = TraceWriter(str(tmp_path / "trace")), TraceOutput(0)
    for n in range(MAX_WAITING + 100):
        writer.put(output, trace(n))
    read = threading.Thread(target=lambda: (tmp_path / "trace").read_bytes())
    read.start()
    writer.close(CLOSE_S)
    read.join(CLOSE_S)
    assert "traces were dropped" in caplog.text


def test_texts_in_traces_take_little_memory() -> None:
    texts = np.array([b"x" * 40_000, b"y" * 40_000, b"z"], object)
    found = traced_tensors(QUEUE_INPUT, {"A": texts, "B": texts}, [("A", BYTES), ("B", BYTES)], MAX_BYTES)
    assert [t.described()["data"] for t in found] == ['"' + "x" * 40_000 + '",...', "..."]
    assert sum(t.nbytes for t in found) == 40_000


def test_a_tensor_that_does_not_lie_in_one_piece() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (found,) = traced_tensors(QUEUE_INPUT, {"A": array}, [("A", BY_WIRE["FP32"])], MAX_BYTES)
    assert found.described() == {"name": "A", "data": "0.0,3.0,1.0,4.0,2.0,5.0", "shape": "3,2", "dtype": "FP32"}


def test_tensors_that_wait_for_the_disk_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "trace")
    writer, output = TraceWriter(str(tmp_path / "trace")), TraceOutput(0)
    # A string takes less time than numbers to be made text of.
    tensors = tuple(traced_tensors(QUEUE_INPUT, {"A": np.array([b"x" * 50_000], object)}, [("A", BYTES)], MAX_BYTES))
    fitting = MAX_TENSOR_BYTES // sum(t.nbytes for t in tensors)
    for n in range(fitting + 10):
        writer.put(output, Trace(n, "m", 1, "", (), tensors))
    read = threading.Thread(target=lambda: (tmp_path / "trace").read_bytes())
    read.start()
    writer.close(60)
    read.join(CLOSE_S)
    assert re.search(r"\b(9|10) traces were dropped", caplog.text)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", TraceParent(int("a" * 32, 16), int("b" * 16, 16), 1)),
        (f"cc-{'a' * 32}-{'b' * 16}-00-more", TraceParent(int("a" * 32, 16), int("b" * 16, 16), 0)),
        (f"00-{'a' * 32}-{'b' * 16}-01-more", None),
        (f"ff-{'a' * 32}-{'b' * 16}-01", None),
        (f"00-{'A' * 32}-{'b' * 16}-01", None),
        (f"00-{'0' * 32}-{'b' * 16}-01", None),
        (f"00-{'a' * 32}-{'0' * 16}-01", None),
        ("00-", None),
        ("", None),
    ],
)
def test_the_trace_of_a_caller(header: str, found: TraceParent | None) -> None:
    assert read_parent({"traceparent": header, "tracestate": "x" * 600}) == found
