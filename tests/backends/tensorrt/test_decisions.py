"""What a TensorRT plan decides before it touches a GPU: settings, profiles, which runs are captured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import text_format

from naiad.backends.tensorrt.graph_specs import MAX_GRAPHS, GraphSpec, WantedGraph, fitting_graph, usual_sizes
from naiad.backends.tensorrt.graph_specs import wanted_graphs as wanted
from naiad.backends.tensorrt.profiles import Profile, ShapeRange, choose
from naiad.backends.tensorrt.settings import PlanSettings, profile_numbers, read_settings
from naiad.config.messages import ModelConfig
from naiad.errors import InvalidArgumentError, ModelLoadError
from support.backend_contract import context

SPEC = """optimization { priority: PRIORITY_MAX cuda { graphs: true busy_wait_events: true graph_spec {
  batch_size: 8 input { key: "X" value { dim: [ 4 ] } } graph_lower_bound { %s input { key: "X" value { dim: [ 4 ] } } }
} } input_pinned_memory { enable: false } }
"""


def settings(tmp_path: Any, text: str = "", **backend: str) -> PlanSettings:
    config = text_format.Parse(f'name: "m" backend: "tensorrt" {text}', ModelConfig())
    made = replace(
        context(tmp_path / "model.plan"), backend_config={k.replace("_", "-"): v for k, v in backend.items()}
    )
    return read_settings(made, config)


def parameter(value: str) -> str:
    name = "execution_context_allocation_strategy"
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


def test_the_settings_of_the_reference_are_read(tmp_path: Any) -> None:
    assert settings(tmp_path) == PlanSettings()
    found = settings(
        tmp_path,
        SPEC % "batch_size: 5" + parameter("ON_PROFILE_CHANGE"),
        plugins="a.so;b.so",
        version_compatible="true",
        execution_policy="BLOCKING",
        coalesce_request_input="true",
    )
    assert found == PlanSettings(
        strategy="ON_PROFILE_CHANGE",
        plugins=("a.so", "b.so"),
        version_compatible=True,
        priority="PRIORITY_MAX",
        busy_waits=True,
        captures=True,
        graph_specs=(GraphSpec(8, {"X": (4,)}, 5),),
        pinned=(False, True),
    )


@pytest.mark.parametrize(
    ("text", "backend", "words"),
    [
        (parameter("SOMETIMES"), {}, 'is "SOMETIMES", expected STATIC or ON_PROFILE_CHANGE'),
        ("", {"execution_policy": "NEVER"}, "expected DEVICE_BLOCKING or BLOCKING"),
        ("", {"version_compatible": "perhaps"}, 'expected "true" or "false"'),
        (SPEC % "batch_size: 9", {}, "found batch_size 9 for 8"),
        (SPEC % "", {}, "found batch_size 0 for 8"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Any, text: str, backend: dict[str, str], words: str) -> None:
    with pytest.raises(ModelLoadError, match=words):
        settings(tmp_path, text, **backend)


def test_profiles_of_a_group() -> None:
    assert profile_numbers("m", (), 3) == (0,)
    assert profile_numbers("m", ("2", "0", "2"), 3) == (2, 0)
    for name in ("3", "-1", "x", ""):
        with pytest.raises(ModelLoadError, match="has the optimisation profiles 0 to 2"):
            profile_numbers("m", (name,), 3)
    with pytest.raises(ModelLoadError, match="only 0"):
        profile_numbers("m", ("1",), 1)


SMALL = Profile(0, {"X": ShapeRange((1, 4), (2, 4), (8, 4)), "Y": ShapeRange((1, 1), (1, 8), (8, 16))})
LARGE = Profile(1, {"X": ShapeRange((1, 4), (32, 4), (64, 4)), "Y": ShapeRange((1, 16), (32, 64), (64, 128))})


def test_the_profile_with_the_nearest_best_shape_is_chosen() -> None:
    assert choose([SMALL, LARGE], {"X": (2, 4), "Y": (2, 8)}) is SMALL
    assert choose([SMALL, LARGE], {"X": (40, 4), "Y": (40, 64)}) is LARGE
    # Both take it.
    assert choose([LARGE, SMALL], {"X": (3, 4), "Y": (3, 16)}) is SMALL
    assert (SMALL.most_rows, LARGE.most_rows) == (8, 64)


def test_shapes_that_no_profile_takes() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        choose([SMALL, LARGE], {"X": (65, 4), "Y": (3, 16)})
    assert str(caught.value) == (
        "tensorrt: input 'X' has the shape [65,4], and the plan takes [1,4] to [8,4] or [1,4] to [64,4]"
    )
    # Each input fits a profile, and no profile fits both.
    with pytest.raises(InvalidArgumentError, match="no optimisation profile takes all inputs: input 'X'"):
        choose([SMALL, LARGE], {"X": (40, 4), "Y": (1, 2)})


def test_which_runs_are_captured() -> None:
    assert usual_sizes(0, ()) == [0]
    assert usual_sizes(12, (3, 6, 24)) == [1, 2, 3, 4, 6, 8, 12]
    dims = {"X": (4,), "Y": (-1,)}
    assert wanted([], ["X"], dims, [1, 2]) == [WantedGraph(((1, 4),), 1), WantedGraph(((2, 4),), 2)]
    # An open axis needs a graph_spec that says its size.
    assert wanted([], ["X", "Y"], dims, [1, 2]) == []
    given = [GraphSpec(8, {"Y": (16,)}, 5)]
    assert wanted(given, ["X", "Y"], dims, []) == [WantedGraph(((8, 4), (8, 16)), 5)]
    assert wanted([], ["X"], {"X": (4,)}, [0]) == [WantedGraph(((4,),), 0)]
    assert len(wanted([], ["X"], {"X": (4,)}, range(1, 1000))) == MAX_GRAPHS


def test_which_graph_a_batch_uses() -> None:
    exact, wide = WantedGraph(((4, 3),), 4), WantedGraph(((8, 3),), 5)
    captured = [wide, exact]
    assert fitting_graph(captured, ((4, 3),)) is exact
    assert [fitting_graph(captured, ((rows, 3),)) for rows in (5, 8)] == [wide, wide]
    assert [fitting_graph(captured, shapes) for shapes in (((3, 3),), ((9, 3),), ((5, 4),), ((5,),))] == [None] * 4
    # Without a batch axis there are no fewer rows.
    assert fitting_graph([WantedGraph(((4,),), 0)], ((4,),)) is not None
    assert fitting_graph([WantedGraph(((4,),), 0)], ((3,),)) is None
