"""The ``sequence_batching`` section, frozen, and what instances see of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from naiad.config.freeze import freeze
from naiad.config.messages import message_class
from naiad.config.normalize import normalize
from naiad.config.problems import Origin
from naiad.config.sequence import run_spec, with_initial_states
from naiad.config.spec import ModelSpec, SequenceSpec
from naiad.errors import ConfigError

ORIGIN = Origin(Path("config.pbtxt"), {})
STATE = 'state [ { input_name: "in" output_name: "out" data_type: TYPE_FP32 dims: [ %s ] %s } ]'
INITIAL = 'initial_state { name: "i" data_type: %s dims: [ %s ] %s }'


def spec(section: str, more: str = "max_batch_size: 4") -> ModelSpec:
    config: Any = message_class("ModelConfig")()
    text_format.Parse(
        f"""name: "m" backend: "python" {more}
        input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} ]
        output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
        sequence_batching {{ {section} }}""",
        config,
    )
    normalize(config)
    return freeze(config)


def section(text: str, more: str = "max_batch_size: 4") -> SequenceSpec:
    found = spec(text, more).sequence
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "more", "oldest", "slots"),
    [
        ("", "max_batch_size: 4", False, 4),
        ("direct { }", "max_batch_size: 4", False, 4),
        ("direct { }", "max_batch_size: 0", False, 1),
        ("oldest { }", "max_batch_size: 4", True, 4),
        ("oldest { }", "max_batch_size: 0", True, 1),
        ("oldest { max_candidate_sequences: 9 }", "max_batch_size: 4", True, 9),
        ("oldest { max_candidate_sequences: -9 }", "max_batch_size: 4", True, 4),
        ("oldest { max_candidate_sequences: 2000000000 }", "", True, 65_536),
        ("oldest { max_candidate_sequences: 2000000000 }", "instance_group [ { count: 4096 } ]", True, 16),
        ("direct { }", "max_batch_size: 2000000000 instance_group [ { count: 65536 } ]", False, 1),
    ],
)
def test_slots(text: str, more: str, oldest: bool, slots: int) -> None:
    found = section(text, more)
    assert (found.oldest, found.slots) == (oldest, slots)


def test_times_and_sizes() -> None:
    found = section("direct { max_queue_delay_microseconds: 7 minimum_slot_utilization: 0.5 }")
    assert (found.max_idle_ns, found.max_queue_delay_ns, found.minimum_slot_utilization) == (10**9, 7000, 0.5)
    # The field has 32 bits, and the nearest such number is above 0.6: 3 slots of 5 are enough all the same.
    assert section("direct { minimum_slot_utilization: 0.6 }").minimum_slot_utilization == 3 / 5
    found = section(
        "max_sequence_idle_microseconds: 3 oldest { preferred_batch_size: [ 4, 2 ] preserve_ordering: true }"
    )
    assert (found.max_idle_ns, found.preferred_batch_sizes, found.preserve_ordering) == (3000, (2, 4), True)
    assert section("iterative_sequence: true").iterative


def test_controls_and_states_are_tensors_of_instances_alone() -> None:
    found = spec(
        """control_input [
             { name: "start" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 2, 3 ] } ] },
             { name: "id" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] } ] """
        + STATE % ("-1, 2", "")
    )
    assert (list(found.inputs), list(found.outputs)) == (["x"], ["y"])
    seen = run_spec(found)
    shapes = {t.name: (t.dtype.wire, t.shape) for t in (*seen.inputs.values(), *seen.outputs.values())}
    assert shapes == {
        "x": ("FP32", (-1, 1)),
        "start": ("FP32", (-1, 1)),
        "id": ("BYTES", (-1, 1)),
        "in": ("FP32", (-1, -1, 2)),
        "y": ("FP32", (-1, 1)),
        "out": ("FP32", (-1, -1, 2)),
    }
    assert found.sequence is not None
    assert [(c.kind, c.values) for c in found.sequence.controls] == [("START", (2.0, 3.0)), ("CORRID", ())]
    assert found.sequence.states[0].initial_dims == (1, 2)


def test_a_model_without_sequences_is_seen_as_it_is(tmp_path: Path) -> None:
    config: Any = message_class("ModelConfig")(name="m")
    found = freeze(config)
    assert run_spec(found) is with_initial_states(found, tmp_path, ORIGIN) is found


def initial(dims: str, data: str, data_type: str = "TYPE_FP32") -> ModelSpec:
    return spec(STATE % ("2", INITIAL % (data_type, dims, data)))


def test_the_first_state_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "initial_state").mkdir()
    # What is more than the state has is passed over.
    (tmp_path / "initial_state" / "f").write_bytes(b"12345678 and more")
    found = with_initial_states(initial("2", 'data_file: "f"'), tmp_path, ORIGIN).sequence
    assert found is not None
    assert found.states[0].initial == b"12345678"
    found = with_initial_states(initial("2", "zero_data: true"), tmp_path, ORIGIN).sequence
    assert found is not None
    assert found.states[0].initial is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("short", r"expects 8 bytes for dims \[2\], but 'short' has 4 bytes"),
        ("missing", "failed to read initial state 'missing' in .*: No such file"),
        ("folder", "No such file"),
        ("../../secret", "outside the model's folder 'initial_state'"),
        ("/etc/hostname", "outside the model's folder"),
        ("link", "outside the model's folder"),
    ],
)
def test_a_file_that_is_no_first_state(tmp_path: Path, file: str, text: str) -> None:
    folder = tmp_path / "m" / "initial_state"
    (folder / "folder").mkdir(parents=True)
    (folder / "short").write_bytes(b"1234")
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match=text):
        with_initial_states(initial("2", f'data_file: "{file}"'), tmp_path / "m", ORIGIN)
