"""The configuration endpoint's JSON against answers recorded from the reference server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf import json_format, text_format
from hypothesis import HealthCheck, given, settings

from naiad.config.export import config_json, config_pbtxt
from naiad.config.messages import ModelConfig
from naiad.config.normalize import normalize
from naiad.config.read import ConfigFormat, parse_config
from support.config_messages import messages

RECORDED = Path(__file__).parent / "recorded"


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.json")))
def test_recorded_configurations(name: str) -> None:
    config = parse_config((RECORDED / f"{name}.pbtxt").read_text(), ConfigFormat.PBTXT).config
    config.default_model_filename = "model.py"
    normalize(config)
    assert config_json(config).decode() == (RECORDED / f"{name}.json").read_text().strip()


def test_automatic_instance_group_is_named_after_the_model() -> None:
    config = ModelConfig(name="m", backend="python")
    normalize(config)
    assert orjson.loads(config_json(config))["instance_group"][0]["name"] == "m"


def test_numbers() -> None:
    config = ModelConfig()
    config.sequence_batching.direct.minimum_slot_utilization = 0.1
    buckets = config.model_metrics.metric_control.add().histogram_options.buckets
    buckets.extend([1.0, 0.25, 1e300, float("inf"), float("-inf"), float("nan")])
    text = config_json(config).decode()
    assert '"minimum_slot_utilization":0.1}' in text
    assert '"buckets":[1,0.25,1e+300,"Infinity","-Infinity","NaN"]' in text


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_number_of_32_bits_reads_back(sign: int) -> None:
    config = ModelConfig()
    config.sequence_batching.direct.minimum_slot_utilization = sign * 3.4028234663852886e38
    assert json_format.ParseDict(orjson.loads(config_json(config)), ModelConfig()) == config


def test_unsigned_64_bit_numbers_stay_numbers() -> None:
    config = ModelConfig()
    config.dynamic_batching.max_queue_delay_microseconds = 2**64 - 1
    assert b'"max_queue_delay_microseconds":18446744073709551615' in config_json(config)


@pytest.mark.slow
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(messages(ModelConfig))
def test_exported_configurations_read_back(config: Any) -> None:
    back = json_format.ParseDict(orjson.loads(config_json(config)), ModelConfig())
    assert back == config
    assert text_format.Parse(config_pbtxt(config), ModelConfig()) == config
