"""What configuration files and command lines of ``naiad analyze`` mean, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from naiad.analyze.errors import AnalyzeOptionError
from naiad.analyze.settings.read import parse_analyze
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.analyze.settings.sweep import SweepError, configurations_of

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "analyze").glob("*.yaml"))
BASE: dict[str, Any] = {"model_repository": "models", "profile_models": ["add"]}


def parse(folder: Path, words: tuple[str, ...] = (), **keys: Any) -> AnalyzeSettings:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**BASE, **keys}))
    return parse_analyze(["profile", "-f", str(file), *words])


def refused(folder: Path, words: tuple[str, ...] = (), **keys: Any) -> str:
    with pytest.raises(AnalyzeOptionError) as caught:
        parse(folder, words, **keys)
    return str(caught.value)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_are_read(file: Path) -> None:
    settings = parse_analyze(["profile", "-f", str(file)])
    assert settings.models
    assert settings.warnings == ()


def test_there_are_six_examples() -> None:
    names = ("ensemble", "formats", "latency-budget", "manual", "quick", "two-models-one-device")
    assert tuple(file.stem for file in EXAMPLES) == names


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    settings = parse(tmp_path, ("-b", "1,4", "--run-config-search-mode=quick"), batch_sizes=8, concurrency="2,4")
    assert settings.models[0].batch_sizes == (1, 4)
    assert settings.models[0].concurrency == (2, 4)
    assert settings["run_config_search_mode"] == "quick"


def test_a_range_holds_its_stop(tmp_path: Path) -> None:
    found = parse(tmp_path, batch_sizes={"start": 2, "stop": 6, "step": 2})
    assert found.models[0].batch_sizes == (2, 4, 6)


def test_modes_stand_before_the_command(tmp_path: Path) -> None:
    words = ["-m", "models", "--profile-models", "add"]
    assert parse_analyze(["-m", "offline", "profile", *words]).mode == "offline"
    assert parse_analyze(["analyze", *words]).command == "profile"
    assert parse_analyze(["report", "-n", "add_config_1,add_config_2"]).report_configs == (
        "add_config_1",
        "add_config_2",
    )


def test_a_model_has_settings_of_its_own(tmp_path: Path) -> None:
    model = {
        "cpu_only": True,
        "objectives": {"perf_throughput": 3, "perf_latency": 1},
        "constraints": {"perf_latency_p99": {"max": 50}},
        "parameters": {"batch_sizes": "1,2"},
        "perf_analyzer_flags": {"percentile": 95, "shape": ["X:4", "Y:4"], "string_length": 8},
        "model_config_parameters": {
            "max_batch_size": [2, 4],
            "dynamic_batching": {"max_queue_delay_microseconds": [100, 200]},
            "instance_group": [{"kind": "KIND_CPU", "count": [1, 2]}],
        },
    }
    (found,) = parse(tmp_path, profile_models={"add": model}).models
    assert found.flags == ("--percentile=95", "--shape=X:4", "--shape=Y:4", "--string-length=8")
    assert found.goal.objectives == {"perf_throughput": 3, "perf_latency_p99": 1}
    assert found.goal.latency_budget_ms == 50
    assert len(found.configurations) == 8
    assert found.configurations[0] == {
        "max_batch_size": 2,
        "dynamic_batching": {"max_queue_delay_microseconds": 100},
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    }


def test_shorthands_become_constraints(tmp_path: Path) -> None:
    (model,) = parse(tmp_path, latency_budget=20, min_throughput=100).models
    assert [one.text for one in model.goal.constraints] == ["perf_latency_p99 <= 20", "perf_throughput >= 100"]


def test_a_list_of_lists_has_alternatives() -> None:
    groups = [[{"kind": "KIND_GPU", "count": 1}], [{"kind": "KIND_CPU", "count": [1, 2]}]]
    found = configurations_of({"instance_group": groups, "parameters": {"x": {"string_value": ["a", "b"]}}})
    assert len(found) == 6
    with pytest.raises(SweepError, match="unknown field 'max_batch_sise', did you mean 'max_batch_size'"):
        configurations_of({"max_batch_sise": 1})


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"client_prototcol": "grpc"}, "unknown key 'client_prototcol', did you mean 'client_protocol'?"),
        (
            {"batch_sizes": "a"},
            "batch_sizes: found 'a', expected whole numbers: a list, '1,2,4', or start, stop and step",
        ),
        ({"triton_launch_mode": "docker"}, "use 'local', which starts naiad serve without a container"),
        ({"model_type": "LLM"}, "naiad perf --service-kind=openai"),
        ({"profile_models": None}, "profile_models is missing"),
        ({"profile_models": {"add": {"cpu_onli": True}}}, "unknown key 'cpu_onli', did you mean 'cpu_only'?"),
        ({"objectives": ["perf_troughput"]}, "unknown metric 'perf_troughput', did you mean 'perf_throughput'?"),
        ({"constraints": {"perf_latency_p99": 5}}, "perf_latency_p99 is 5, expected min: NUMBER or max: NUMBER"),
        ({"perf_analyzer_flags": {"concurrency-range": 4}}, "list values under 'concurrency'"),
        ({"perf_analyzer_flags": {"percentil": 4}}, "has no option 'percentil', did you mean 'percentile'?"),
        ({"concurrency": 1, "request_rate": 2}, "expected one of them"),
        ({"run_config_search_min_instance_count": 9}, "expected at most the greatest value, 5"),
        ({"report_model_configs": ["a"]}, "report_model_configs belongs to naiad analyze report"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, keys: dict[str, Any], text: str) -> None:
    assert text in refused(tmp_path, **keys)


def test_wrong_words_are_said(tmp_path: Path) -> None:
    text = refused(tmp_path, ("--bach-sizes=1", "--objectives=x"))
    assert "unknown option '--bach-sizes', did you mean '--batch-sizes'?" in text
    assert "--objectives can be given in the configuration file only" in text
    with pytest.raises(AnalyzeOptionError, match="unknown command 'profil', did you mean 'profile'"):
        parse_analyze(["profil"])
    with pytest.raises(AnalyzeOptionError, match=r"cannot read .missing\.yaml.: No such file"):
        parse_analyze(["profile", "-f", "missing.yaml"])


def test_keys_without_effect_are_named(tmp_path: Path) -> None:
    assert parse(tmp_path, dcgm_disable=True).warnings == ("without effect here: dcgm_disable",)
