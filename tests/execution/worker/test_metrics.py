"""The metrics of one child, by its own numbers."""

from __future__ import annotations

from typing import Any

import pytest

from naiad.errors import InvalidArgumentError, NaiadError, UnavailableError, UnsupportedError
from naiad.execution.worker import metrics as worker_metrics
from naiad.execution.worker.metrics import WorkerMetrics
from naiad.telemetry.metrics.custom import CustomMetrics


def ask(metrics: WorkerMetrics, what: str, **more: Any) -> Any:
    """The answer to a question, which must come at once."""
    answers: list[Any] = []

    def fail(error: NaiadError) -> None:
        raise error

    assert metrics.handle({"what": what, **more}, answers.append, fail)
    (found,) = answers
    return found


def family(metrics: WorkerMetrics, number: int, name: str = "x", kind: str = "gauge") -> None:
    assert ask(metrics, "metric_family", family=number, name=name, description="d", kind=kind) is None


def metric(metrics: WorkerMetrics, number: int, of: int = 1, buckets: Any = None, **labels: str) -> None:
    assert ask(metrics, "metric", metric=number, family=of, labels=labels, buckets=buckets) is None


def value(metrics: WorkerMetrics, number: int) -> Any:
    return ask(metrics, "metric_value", metric=number)


def test_a_question_about_something_else_is_left_to_others() -> None:
    metrics = WorkerMetrics(CustomMetrics())
    assert not metrics.handle({"what": "load_model"}, print, print)
    assert not metrics.handle({}, print, print)


def test_values_are_set_and_read() -> None:
    metrics = WorkerMetrics(CustomMetrics())
    family(metrics, 1)
    metric(metrics, 1)
    metrics.notify({"what": "metric_set", "metric": 1, "to": 2.5})
    metrics.notify({"what": "metric_increment", "metric": 1, "by": -1})
    assert value(metrics, 1) == 1.5
    for text in ("nan", "inf", "-inf"):
        metrics.notify({"what": "metric_set", "metric": 1, "to": text})
        assert value(metrics, 1) == text


def test_children_share_and_the_last_one_removes() -> None:
    shown = CustomMetrics()
    children = [WorkerMetrics(shown) for _ in range(3)]
    for number, child in enumerate(children):
        family(child, 1, kind="counter")
        metric(child, 1, model="m")
        metric(child, 2, instance=str(number))
        child.notify({"what": "metric_increment", "metric": 1, "by": 1})
    assert len(shown.families["x"].metrics) == 4
    assert value(children[0], 1) == 3
    children[0].close()
    children[1].close()
    assert [dict(key) for key in shown.families["x"].metrics] == [{"model": "m"}, {"instance": "2"}]
    assert value(children[2], 1) == 3
    children[2].close()
    assert shown.families == {}


def test_two_families_of_one_name_in_one_child() -> None:
    shown = CustomMetrics()
    metrics = WorkerMetrics(shown)
    for number in (1, 2):
        family(metrics, number)
        metric(metrics, number, of=number)
    metrics.notify({"what": "metric_set", "metric": 1, "to": 4})
    metrics.notify({"what": "metric_family_delete", "family": 1})
    assert value(metrics, 2) == 4
    with pytest.raises(InvalidArgumentError, match="metric 1 of a model was deleted"):
        value(metrics, 1)
    metrics.notify({"what": "metric_delete", "metric": 2})
    metrics.notify({"what": "metric_delete", "metric": 2})
    assert shown.families["x"].metrics == {}
    metrics.notify({"what": "metric_family_delete", "family": 2})
    metrics.notify({"what": "metric_family_delete", "family": 2})
    assert shown.families == {}


def test_numbers_begin_anew_after_the_end() -> None:
    metrics = WorkerMetrics(CustomMetrics())
    for _ in range(2):
        family(metrics, 1)
        metric(metrics, 1)
        assert value(metrics, 1) == 0
        metrics.notify({"what": "metric_set", "metric": 1, "to": 4})
        metrics.close()


@pytest.mark.parametrize("what", ["metric_set", "metric_increment", "metric_observe"])
def test_a_metric_that_is_not_there(what: str) -> None:
    with pytest.raises(InvalidArgumentError, match="metric 5 of a model was deleted or never made"):
        WorkerMetrics(CustomMetrics()).notify({"what": what, "metric": 5, "to": 1, "by": 1, "value": 1})


def test_what_means_nothing() -> None:
    with pytest.raises(UnsupportedError, match="'nonsense'"):
        WorkerMetrics(CustomMetrics()).notify({"what": "nonsense"})


def test_numbers_in_use() -> None:
    shown = CustomMetrics()
    metrics = WorkerMetrics(shown)
    family(metrics, 1)
    metric(metrics, 1)
    with pytest.raises(InvalidArgumentError, match="exists"):
        family(metrics, 1, "y")
    with pytest.raises(InvalidArgumentError, match="exists"):
        metric(metrics, 1, other="label")
    assert list(shown.families) == ["x"]
    assert len(shown.families["x"].metrics) == 1


def test_families_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_metrics, "MAX_FAMILIES", 3)
    shown = CustomMetrics()
    metrics = WorkerMetrics(shown)
    for number in range(3):
        family(metrics, number, f"x{number}")
    with pytest.raises(UnavailableError, match=r"'more' is one too many: .* may have 3"):
        family(metrics, 3, "more")
    assert len(shown.families) == 3
    # Each child has room of its own, and what is deleted makes room.
    family(WorkerMetrics(shown), 1, "more")
    metrics.notify({"what": "metric_family_delete", "family": 0})
    family(metrics, 3, "more")


def test_lines_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_metrics, "MAX_LINES", 10)
    shown = CustomMetrics()
    metrics = WorkerMetrics(shown)
    family(metrics, 1)
    family(metrics, 2, "h", "histogram")
    metric(metrics, 1, of=2, buckets=[1, 2, 3])
    for number in range(2, 6):
        metric(metrics, number, label=str(number))
    with pytest.raises(UnavailableError, match=r"'x' is one too many: .* may take 10 lines"):
        metric(metrics, 6, label="6")
    assert len(shown.families["x"].metrics) == 4
    metrics.notify({"what": "metric_delete", "metric": 1})
    for number in range(6, 12):
        metric(metrics, number, label=str(number))
    with pytest.raises(UnavailableError):
        metric(metrics, 12, label="12")
