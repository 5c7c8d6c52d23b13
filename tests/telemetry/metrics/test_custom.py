"""Families and metrics that models make, by themselves and on the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from naiad.clock import ManualClock
from naiad.errors import AlreadyExistsError, InvalidArgumentError, NaiadError, UnsupportedError
from naiad.telemetry.metrics import page as page_of_metrics
from naiad.telemetry.metrics.custom import (
    MAX_BUCKETS,
    MAX_DESCRIPTION,
    MAX_LABELS,
    MAX_NAME,
    OWN_PREFIXES,
    CustomMetric,
    CustomMetricKind,
    CustomMetrics,
)
from naiad.telemetry.metrics.exposition import number_text
from naiad.telemetry.metrics.host import MachineFigures
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.metrics.page import ModelSeries

COUNTER, GAUGE, HISTOGRAM = CustomMetricKind.COUNTER, CustomMetricKind.GAUGE, CustomMetricKind.HISTOGRAM


def page(custom: CustomMetrics) -> str:
    host = MachineFigures(ManualClock())
    return b"".join(
        page_of_metrics.render([], page_of_metrics.PageSettings(cpu=False), host=host, custom=custom)
    ).decode()


def lines(custom: CustomMetrics, name: str) -> list[str]:
    return [line for line in page(custom).splitlines() if line.startswith(name)]


def made(
    custom: CustomMetrics,
    kind: CustomMetricKind = COUNTER,
    labels: Mapping[str, str] | None = None,
    buckets: Sequence[float] | None = None,
    name: str = "x",
) -> CustomMetric:
    return custom.take(name, "what it is", kind).take(labels or {}, buckets)


# What each kind does


def test_a_counter_only_grows() -> None:
    counter = made(CustomMetrics())
    counter.increment(2.5)
    counter.increment(0)
    with pytest.raises(InvalidArgumentError, match="only be incremented monotonically by non-negative values"):
        counter.increment(-1e-9)
    assert counter.read() == 2.5


def test_a_gauge_goes_both_ways() -> None:
    gauge = made(CustomMetrics(), GAUGE)
    gauge.increment(2)
    gauge.increment(-5)
    assert gauge.read() == -3
    gauge.set(999.9)
    assert gauge.read() == 999.9


@pytest.mark.parametrize(
    ("kind", "operation", "name"),
    [
        (COUNTER, lambda m: m.set(1), "Set"),
        (COUNTER, lambda m: m.observe(1), "Observe"),
        (GAUGE, lambda m: m.observe(1), "Observe"),
        (HISTOGRAM, lambda m: m.increment(1), "Increment"),
        (HISTOGRAM, lambda m: m.set(1), "Set"),
        (HISTOGRAM, lambda m: m.read(), "Value"),
    ],
)
def test_what_a_kind_does_not_do(kind: CustomMetricKind, operation: object, name: str) -> None:
    metric = made(CustomMetrics(), kind, buckets=[1] if kind is HISTOGRAM else None)
    with pytest.raises(UnsupportedError, match=f"^TRITONSERVER_METRIC_KIND_{kind.name} does not support {name}$"):
        operation(metric)  # type: ignore[operator]


def test_a_histogram_counts_what_is_at_most_its_bound() -> None:
    custom = CustomMetrics()
    histogram = made(custom, HISTOGRAM, {"b": "2", "a": "1"}, [0.1, 1, 2.5])
    for value in (0.05, 0.1, 0.11, 1, 2.5, 2.6, -7):
        histogram.observe(value)
    assert lines(custom, "x") == [
        'x_bucket{a="1",b="2",le="0.1"} 3',
        'x_bucket{a="1",b="2",le="1"} 5',
        'x_bucket{a="1",b="2",le="2.5"} 6',
        'x_bucket{a="1",b="2",le="+Inf"} 7',
        f'x_sum{{a="1",b="2"}} {0.05 + 0.1 + 0.11 + 1 + 2.5 + 2.6 - 7!r}',
        'x_count{a="1",b="2"} 7',
    ]
    assert histogram.lines == 6


@pytest.mark.parametrize("buckets", [[], [math.inf]])
def test_a_histogram_without_bounds_has_the_last_bucket(buckets: list[float]) -> None:
    custom = CustomMetrics()
    made(custom, HISTOGRAM, buckets=buckets).observe(3)
    assert lines(custom, "x") == ['x_bucket{le="+Inf"} 1', "x_sum 3", "x_count 1"]


def test_numbers_that_are_not_finite() -> None:
    custom = CustomMetrics()
    gauge = made(custom, GAUGE, name="g")
    for value, shown in ((math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf")):
        gauge.set(value)
        assert lines(custom, "g") == [f"g {shown}"]
    counter = made(custom, name="c")
    counter.increment(math.inf)
    assert counter.read() == math.inf
    histogram = made(custom, HISTOGRAM, buckets=[1, 2], name="h")
    for value in (math.nan, -math.inf, math.inf):
        histogram.observe(value)
    assert lines(custom, "h")[:3] == ['h_bucket{le="1"} 1', 'h_bucket{le="2"} 1', 'h_bucket{le="+Inf"} 3']
    assert len(list(text_string_to_metric_families(page(custom)))) == 8


@pytest.mark.parametrize("value", [0.0, -0.5, 0.1, 1e300, 2.0**53, 2.0**53 + 2, 1e-320, 2023.0, -23.5, 1e22])
def test_numbers_come_back_as_they_were(value: float) -> None:
    assert float(number_text(value)) == value


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (2023.0, "2023"), (7.5, "7.5"), (-3.0, "-3")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert number_text(value) == text


# Sharing


def test_the_same_name_and_labels_are_the_same_metric() -> None:
    custom = CustomMetrics()
    first = made(custom, labels={"a": "1", "b": "2"})
    second = made(custom, labels={"b": "2", "a": "1"})
    assert first is second
    other = made(custom, labels={"a": "1"})
    assert other is not first
    first.increment(3)
    assert lines(custom, "x") == ['x{a="1",b="2"} 3', 'x{a="1"} 0']


def test_the_last_holder_removes_metric_and_family() -> None:
    custom = CustomMetrics()
    families = [custom.take("x", "text", GAUGE) for _ in range(2)]
    metrics = [family.take({}, None) for family in families]
    metrics[0].set(5)
    families[0].release(metrics[0])
    custom.release(families[0])
    assert lines(custom, "x") == ["x 5"]
    families[1].release(metrics[1])
    assert "x" not in page(custom).split()
    custom.release(families[1])
    assert custom.families == {}
    assert made(custom, COUNTER).read() == 0


def test_a_family_keeps_its_first_description_and_a_histogram_its_first_buckets() -> None:
    custom = CustomMetrics()
    first, second = custom.take("x", "first", HISTOGRAM), custom.take("x", "another text", HISTOGRAM)
    assert first.take({}, [1]) is second.take({}, [2, 3])
    assert "# HELP x first\n" in page(custom)
    assert "another text" not in page(custom)


def test_a_family_of_another_kind_is_refused() -> None:
    custom = CustomMetrics()
    made(custom, COUNTER)
    with pytest.raises(AlreadyExistsError, match=r"^Family name already exists with different type: 'x' is a counter"):
        custom.take("x", "what it is", GAUGE)
    assert custom.families["x"].holders == 1


def test_a_family_without_metrics_is_not_shown() -> None:
    custom = CustomMetrics()
    custom.take("x", "nothing yet", COUNTER)
    assert "nothing yet" not in page(custom)


# What is refused


@pytest.mark.parametrize("name", ["", "1x", "a-b", "ä", "a b", "x\n", "__x", "x{", "x" * (MAX_NAME + 1)])
def test_names_that_are_not_allowed(name: str) -> None:
    custom = CustomMetrics()
    with pytest.raises(InvalidArgumentError, match="Invalid metric name"):
        custom.take(name, "", COUNTER)
    assert custom.families == {}


@pytest.mark.parametrize("name", ["x", "_x", ":x", "vllm:num_requests_running", "nv_trt_llm_request_metrics", "X9_"])
def test_names_that_are_allowed(name: str) -> None:
    custom = CustomMetrics()
    made(custom, name=name)
    assert lines(custom, name) == [f"{name} 0"]


@pytest.mark.parametrize("prefix", OWN_PREFIXES)
def test_names_of_the_server_are_refused(prefix: str) -> None:
    with pytest.raises(AlreadyExistsError, match="one of the server's own"):
        CustomMetrics().take(prefix + "anything", "", GAUGE)


def test_all_metrics_of_the_server_are_known_by_their_names() -> None:
    series = [ModelSeries("m", 1, {}, ModelStatistics())]
    text = b"".join(
        page_of_metrics.render(series, page_of_metrics.PageSettings(), host=MachineFigures(ManualClock()))
    ).decode()
    names = re.findall(r"^# TYPE (\S+)", text, re.M)
    assert len(names) > 15
    assert all(name.startswith(OWN_PREFIXES) for name in names)


@pytest.mark.parametrize("label", ["", "1a", "a-b", "ä", "__name__", "a:b", "a\n"])
@pytest.mark.parametrize("kind", [COUNTER, HISTOGRAM])
def test_labels_that_are_not_allowed(label: str, kind: CustomMetricKind) -> None:
    custom = CustomMetrics()
    with pytest.raises(InvalidArgumentError, match="Invalid label name"):
        made(custom, kind, {label: "v"}, [1] if kind is HISTOGRAM else None)
    assert custom.families["x"].metrics == {}


def test_the_label_of_buckets_belongs_to_histograms() -> None:
    custom = CustomMetrics()
    assert made(custom, COUNTER, {"le": "1"}).key == (("le", "1"),)
    with pytest.raises(InvalidArgumentError, match="Invalid label name: 'le' of histogram 'h'"):
        made(custom, HISTOGRAM, {"le": "1"}, [1], name="h")


@pytest.mark.parametrize("buckets", [[1, 1], [2, 1], [math.nan], [1, math.nan], [math.inf, 1], [1, math.inf, math.inf]])
def test_buckets_must_be_sorted(buckets: list[float]) -> None:
    with pytest.raises(InvalidArgumentError, match="Bucket Boundaries must be strictly sorted"):
        made(CustomMetrics(), HISTOGRAM, buckets=buckets)


def test_buckets_are_for_histograms() -> None:
    with pytest.raises(InvalidArgumentError, match="Bucket boundaries not found"):
        made(CustomMetrics(), HISTOGRAM)
    with pytest.raises(InvalidArgumentError, match="has no buckets"):
        made(CustomMetrics(), GAUGE, buckets=[1])


@pytest.mark.parametrize(
    "take",
    [
        lambda c: made(c, labels={"a": "v" * MAX_LABELS}),
        lambda c: made(c, HISTOGRAM, buckets=range(MAX_BUCKETS + 1)),
        lambda c: c.take("x", "d" * (MAX_DESCRIPTION + 1), COUNTER),
    ],
)
def test_sizes_are_limited(take: object) -> None:
    with pytest.raises(InvalidArgumentError, match="at most"):
        take(CustomMetrics())  # type: ignore[operator]


@pytest.mark.parametrize("suffix", ["_sum", "_count", "_bucket"])
def test_a_histogram_is_not_mixed_up_with_another_metric(suffix: str) -> None:
    custom = CustomMetrics()
    made(custom, HISTOGRAM, buckets=[1], name="h")
    with pytest.raises(NaiadError, match="a part of histogram 'h'"):
        made(custom, name="h" + suffix)
    made(custom, GAUGE, name="g" + suffix)
    with pytest.raises(NaiadError, match=f"would be taken for metric 'g{suffix}'"):
        made(custom, HISTOGRAM, buckets=[1], name="g")
    made(custom, GAUGE, name="g")


# The page


@pytest.mark.parametrize("value", ['quote"d', "back\\slash", "two\nlines", "ünïcode", "}{,=", ""])
def test_labels_and_descriptions_come_back_as_they_were(value: str) -> None:
    custom = CustomMetrics()
    custom.take("x", "about " + value, GAUGE).take({"l": value}, None)
    (family,) = [f for f in text_string_to_metric_families(page(custom)) if f.name == "x"]
    assert family.documentation.rstrip() == ("about " + value).rstrip()
    assert [s.labels for s in family.samples] == [{"l": value}]


def test_the_page_parses_with_every_kind() -> None:
    custom = CustomMetrics()
    for number in range(3):
        made(custom, COUNTER, {"n": str(number)}, name="c_total").increment(number)
        made(custom, GAUGE, {"n": str(number)}, name="g").set(-number)
        made(custom, HISTOGRAM, {"n": str(number)}, [1, 2], name="h").observe(number)
    found = {f.name: f for f in text_string_to_metric_families(page(custom))}
    assert {found[n].type for n in ("c", "g", "h")} == {"counter", "gauge", "histogram"}
    assert [s.value for s in found["g"].samples] == [0, -1, -2]
    assert len(found["h"].samples) == 15
    text = page(custom)
    assert all(text.count(f"# TYPE {name} ") == 1 for name in ("c_total", "g", "h"))
