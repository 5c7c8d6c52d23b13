"""Families of metrics in ``model_metrics``: those that a model cannot set load, and are remarked upon."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

from naiad.config.messages import ModelConfig
from naiad.config.rules import metrics
from naiad.options.metric_families import HISTOGRAMS


def config_of(*families: str) -> Any:
    """A configuration that gives each of the families a bucket."""
    controls = (
        f'metric_control {{ metric_identifier {{ family: "{family}" }} histogram_options {{ buckets: 1 }} }}'
        for family in families
    )
    return text_format.Parse(f'name: "m" model_metrics {{ {" ".join(controls)} }}', ModelConfig())


@pytest.mark.parametrize("family", HISTOGRAMS)
def test_a_model_sets_the_buckets_of_any_histogram(family: str) -> None:
    assert list(metrics.remarks(config_of(family))) == []


def test_a_family_that_is_no_histogram_is_remarked_upon() -> None:
    (remark,) = metrics.remarks(config_of(HISTOGRAMS[1], "up"))
    assert remark.path == "model_metrics.metric_control[1].metric_identifier.family"
    assert remark.message == (
        "Metric family 'up' in 'metric_identifier' of model 'm' is not a customizable metric, customizable are "
        + ", ".join(HISTOGRAMS)
    )


def test_a_misspelt_family_is_remarked_upon_with_the_name_that_was_meant() -> None:
    (remark,) = metrics.remarks(config_of("nv_inference_first_response_histogram"))
    assert remark.message.endswith(", did you mean 'nv_inference_first_response_histogram_ms'?")
    assert list(metrics.violations(config_of("nv_inference_first_response_histogram"))) == []
