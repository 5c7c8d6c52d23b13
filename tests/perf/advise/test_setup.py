"""Which configurations are tried, how many requests they need in flight, and what stands in config.pbtxt."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

from naiad.config.messages import message_class
from naiad.perf.advise.setup import MAX_IN_FLIGHT, UnadvisableError, setups_of
from naiad.perf.advise.snippet import config_snippet


def config(max_batch_size: int = 8, count: int = 1, **more: Any) -> dict[str, Any]:
    groups = [{"name": "m_0", "kind": "KIND_CPU", "count": count, "gpus": []}]
    return {"name": "m", "max_batch_size": max_batch_size, "instance_group": groups, **more}


def names(found: dict[str, Any]) -> list[str]:
    return [setup.name for setup in setups_of(found)]


def test_batching_and_instances_are_combined_and_the_served_one_comes_first() -> None:
    assert names(config(dynamic_batching={})) == [
        "batching on, 1 instance",
        "batching off, 1 instance",
        "batching off, 2 instances",
        "batching on, 2 instances",
    ]
    assert names(config(count=4))[0] == "batching off, 4 instances"
    assert len(names(config(count=4))) == 5


def test_a_model_without_batches_has_instances_alone() -> None:
    assert names(config(0)) == ["1 instance", "2 instances"]


def test_what_is_not_tried_stays_as_it_is() -> None:
    batching = {"max_queue_delay_microseconds": 100}
    served, off, *_ = setups_of(config(dynamic_batching=batching, parameters={"x": {"string_value": "1"}}))
    assert served.config["dynamic_batching"] == batching
    assert "dynamic_batching" not in off.config
    assert off.config["parameters"] == served.config["parameters"]


def test_every_group_and_every_device_counts() -> None:
    groups = [{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1]}, {"kind": "KIND_CPU", "count": 1}]
    found = setups_of({**config(), "instance_group": groups})
    assert [setup.instances for setup in found] == [5, 3, 3, 6, 6]
    assert found[3].counts == (2, 2)


def test_requests_in_flight() -> None:
    served, off, _, on_two = setups_of(config(dynamic_batching={}))
    assert (served.in_flight(1), off.in_flight(1), on_two.in_flight(1)) == (16, 2, 32)
    # Requests of several rows fill a batch sooner.
    assert (served.in_flight(4), off.in_flight(4), served.in_flight(3)) == (4, 2, 6)
    (huge, *_) = setups_of(config(1000, dynamic_batching={}))
    assert huge.in_flight(1) == MAX_IN_FLIGHT


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"ensemble_scheduling": {"step": [{"model_name": "a"}, {"model_name": "b"}]}}, "is an ensemble.*: a, b$"),
        ({"model_transaction_policy": {"decoupled": True}}, "is decoupled"),
        ({"sequence_batching": {"direct": {}}}, "has sequence_batching"),
    ],
)
def test_models_without_anything_to_try(more: dict[str, Any], text: str) -> None:
    with pytest.raises(UnadvisableError, match=text):
        setups_of(config(**more))


def test_the_snippet_is_a_part_of_a_configuration() -> None:
    *_, best = setups_of(config(dynamic_batching={"max_queue_delay_microseconds": "100"}))
    text = config_snippet(best, ["the first\nremark"])
    assert text.startswith("# the first remark\nmax_batch_size: 8\n")
    read = text_format.Parse(text, message_class("ModelConfig")())
    assert (read.instance_group[0].count, read.instance_group[0].name) == (2, "")
    assert read.dynamic_batching.max_queue_delay_microseconds == 100
    _, off, *_ = setups_of(config(dynamic_batching={}))
    assert "remove it" in config_snippet(off, [])
