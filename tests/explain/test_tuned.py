"""What ``naiad explain --url`` says of a model that its server tunes."""

from __future__ import annotations

import pytest

from naiad.explain.tuned import tuned_rows

FOUND = {
    "objective": "p99=20ms",
    "setup": {"instances": 2, "threads": 0, "max_batch_size": 4, "max_queue_delay_microseconds": 200},
    "configured": {"instances": 1, "threads": 0, "max_batch_size": 16, "max_queue_delay_microseconds": 0},
    "cause": "best",
    "reason": "best of 14 tried: 900 rows/s at 12 ms",
    "is_searching": False,
    "problem": "",
    "requests": 1000,
    "late": 3,
}


def test_values_stand_beside_the_configured_ones_and_the_reason() -> None:
    found = {row.path: row for row in tuned_rows(FOUND)}
    assert found["tuned.instances"].value == 2
    assert found["tuned.instances"].origin == "slo p99=20ms; configured: 1"
    assert found["tuned.max_queue_delay_microseconds"].as_text() == "200 us (0.2 ms)"
    assert found["tuned.reason"].value == FOUND["reason"]
    assert found["tuned.late"].value == "3 of 1000"


@pytest.mark.parametrize("found", [None, "text", {}, {"setup": 1}])
def test_servers_that_do_not_tune_have_no_rows(found: object) -> None:
    assert tuned_rows(found) == []
