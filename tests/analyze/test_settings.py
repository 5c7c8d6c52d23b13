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
from naiad.analyze.settings.table import keys_of

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "analyze").glob("*.yaml"))
THEIRS = {
    "profile": """
    always_report_gpu_metrics batch_sizes bls_composing_models checkpoint_directory client_max_retries client_protocol
    collect_cpu_metrics concurrency concurrency_sweep_disable config_file constraints cpu_only_composing_models
    dcgm_disable duration_seconds early_exit_enable ensemble_composing_models export_path filename_model_gpu
    filename_model_inference filename_server_only genai_perf_flags gpu_output_fields gpus inference_output_fields
    latency_budget max_percentage_of_search_space min_percentage_of_search_space min_throughput model_repository
    model_type monitoring_interval num_configs_per_model num_top_model_configs objectives optuna_early_exit_threshold
    optuna_max_trials optuna_min_trials output_model_repository_path override_output_model_repository
    perf_analyzer_cpu_util perf_analyzer_flags perf_analyzer_max_auto_adjusts perf_analyzer_path perf_analyzer_timeout
    perf_output perf_output_path profile_models reload_model_disable request_rate request_rate_search_enable
    run_config_profile_models_concurrently_enable run_config_search_disable run_config_search_max_binary_search_steps
    run_config_search_max_concurrency run_config_search_max_instance_count run_config_search_max_model_batch_size
    run_config_search_max_request_rate run_config_search_min_concurrency run_config_search_min_instance_count
    run_config_search_min_model_batch_size run_config_search_min_request_rate run_config_search_mode
    server_output_fields skip_detailed_reports skip_summary_reports triton_docker_args triton_docker_image
    triton_docker_labels triton_docker_mounts triton_docker_shm_size triton_grpc_endpoint triton_http_endpoint
    triton_install_path triton_launch_mode triton_metrics_url triton_output_path triton_server_environment
    triton_server_flags triton_server_path use_concurrency_formula weighting
    """,
    "report": """
    always_report_gpu_metrics checkpoint_directory config_file export_path output_formats plots report_model_configs
    """,
}
"""The keys of model-analyzer 1.58."""
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


@pytest.mark.parametrize("command", THEIRS)
def test_every_key_of_the_reference_is_known(command: str) -> None:
    assert set(THEIRS[command].split()) <= set(keys_of(command))


def test_there_are_six_examples() -> None:
    names = ("ensemble", "formats", "latency-budget", "manual", "quick", "two-models-one-device")
    assert tuple(file.stem for file in EXAMPLES) == names


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    settings = parse(tmp_path, ("-b", "1,4", "--run-config-search-mode=quick"), batch_sizes=8, concurrency="2,4")
    assert settings.models[0].batch_sizes == (1, 4)
    assert settings.models[0].concurrency == (2, 4)
    assert settings["run_config_search_mode"] == "quick"


@pytest.mark.parametrize("word", ["-b1,2", "-b 1,2", "-b=1,2"])
def test_a_value_may_follow_its_letter_at_once(tmp_path: Path, word: str) -> None:
    assert parse(tmp_path, (word,)).models[0].batch_sizes == (1, 2)


def test_charts_may_be_a_list(tmp_path: Path) -> None:
    first, second = {"a": {"x_axis": "perf_latency_p99"}}, {"b": {"y_axis": "perf_throughput"}}
    assert parse(tmp_path, plots=[first, second])["plots"] == {**first, **second}
    assert "plots: found 'a', expected charts by their names" in refused(tmp_path, plots="a")
    file = tmp_path / "report.yaml"
    file.write_text(yaml.safe_dump({"report_model_configs": {"add_config_0": {"plots": [first, second]}}}))
    assert parse_analyze(["report", "-f", str(file)]).report_configs == {"add_config_0": {**first, **second}}


def test_a_range_holds_its_stop(tmp_path: Path) -> None:
    found = parse(tmp_path, batch_sizes={"start": 2, "stop": 6, "step": 2})
    assert found.models[0].batch_sizes == (2, 4, 6)


def test_modes_stand_before_the_command(tmp_path: Path) -> None:
    words = ["-m", "models", "--profile-models", "add"]
    assert parse_analyze(["-m", "offline", "profile", *words]).mode == "offline"
    assert parse_analyze(["analyze", *words]).command == "profile"
    named = parse_analyze(["report", "-n", "add_config_1,add_config_2"]).report_configs
    assert list(named) == ["add_config_1", "add_config_2"]


def test_a_configuration_of_a_report_has_charts_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "report.yaml"
    plot = {"title": "Memory", "x_axis": "perf_latency_p99", "y_axis": "gpu_used_memory", "monotonic": False}
    section = {"plots": {"memory": plot}}
    file.write_text(yaml.safe_dump({"report_model_configs": {"add_config_0": section, "add_config_1": None}}))
    found = parse_analyze(["report", "-f", str(file)]).report_configs
    assert found == {"add_config_0": {"memory": plot}, "add_config_1": {}}
    file.write_text(yaml.safe_dump({"report_model_configs": {"add_config_0": {"plotz": {}}}}))
    with pytest.raises(AnalyzeOptionError, match=r"report_model_configs\.add_config_0: found .*expected plots"):
        parse_analyze(["report", "-f", str(file)])


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


def test_none_leaves_a_field_out() -> None:
    groups = [{"count": [1], "kind": ["KIND_CPU", None]}]
    found = configurations_of({"dynamic_batching": [{}, None], "instance_group": groups})
    both = ([{"count": 1, "kind": "KIND_CPU"}], [{"count": 1}])
    assert found == tuple({"dynamic_batching": way, "instance_group": group} for way in ({}, None) for group in both)
    names = {"x": {"string_value": "a"}, "y": None}
    assert configurations_of({"parameters": names}) == ({"parameters": {"x": {"string_value": "a"}}},)


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
        ({"perf_analyzer_flags": {"batch-size": 4}}, "list values under 'batch_sizes'"),
        ({"perf_analyzer_flags": {"protocol": "http"}}, "protocol is known from the other keys"),
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
    keys = ("always_report_gpu_metrics", "dcgm_disable", "early_exit_enable", "use_concurrency_formula")
    found = parse(tmp_path, **dict.fromkeys(keys, True))
    assert found.warnings == (f"without effect here: {', '.join(keys)}",)
    found = parse_analyze(["report", "-n", "add_config_0", "-o", "csv"])
    assert found.warnings == ("without effect here: output_formats",)


def test_options_of_perf_analyzer_have_the_names_of_model_analyzer(tmp_path: Path) -> None:
    flags = {"http-header": ["a: b", "c: d"], "model-version": 2, "verbose": True}
    (found,) = parse(tmp_path, perf_analyzer_flags=flags).models
    assert found.flags == ("-H", "a: b", "-H", "c: d", "-x", "2", "-v")


def test_flags_of_one_model_hold_for_all(tmp_path: Path) -> None:
    flags = {"triton_server_flags": {"exit_timeout_secs": 9}}
    assert parse(tmp_path, profile_models={"add": flags}).warnings == ()
    found = parse(tmp_path, profile_models={"add": flags, "sub": {}})
    assert found.warnings == (
        "triton_server_flags of add hold for all models, as one server has them all: the last value counts",
    )
