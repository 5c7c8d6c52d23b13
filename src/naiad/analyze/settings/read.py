"""From words of a command line and a YAML file to settings, with everything that is wrong about them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from naiad.analyze.errors import AnalyzeOptionError
from naiad.analyze.settings.kinds import CHARTS, KeyKind
from naiad.analyze.settings.models import model_sections, model_settings
from naiad.analyze.settings.settings import AnalyzeSettings, ModelSettings
from naiad.analyze.settings.table import KEYS, PROFILE, REPORT, Key, keys_of
from naiad.config.parsing.suggest import did_you_mean

_COMMANDS: Final = (PROFILE, "analyze", REPORT)
_MODES: Final = ("online", "offline")
_QUIET: Final = ("-q", "--quiet")
_VERBOSE: Final = ("-v", "--verbose")
_DOCKER: Final = (
    "triton_launch_mode: found docker, which naiad analyze does not start: use 'local', which starts naiad serve "
    "without a container, or start the container yourself with --model-control-mode=explicit and use 'remote'"
)
_LLM: Final = (
    "model_type: found LLM: language models are measured with naiad perf --service-kind=openai; analyze takes generic "
    "models"
)


def parse_analyze(words: Sequence[str]) -> AnalyzeSettings:
    """The settings.

    Raises:
        AnalyzeOptionError: one line for each problem.
    """
    problems: list[str] = []
    mode, verbosity, rest = _general(words, problems)
    command, rest = _command(rest, problems)
    known = keys_of(command)
    given = _options(rest, known, problems)
    file = given.pop("config_file", None)
    found = {**(_file_values(file, known, problems) if file is not None else {}), **given}
    if file is not None and not file.is_file():
        # Errors about the keys that the file would have had say nothing more.
        raise _wrong(problems)
    values = {**{key.name: key.default for key in known.values()}, **found, "config_file": file}
    if command == PROFILE:
        settings = _profile(mode, values, frozenset(found), verbosity, problems)
    else:
        settings = _report(mode, values, frozenset(found), verbosity, problems)
    if problems:
        raise _wrong(problems)
    return settings


def _wrong(problems: Sequence[str]) -> AnalyzeOptionError:
    return AnalyzeOptionError("\n".join(f"Error: {text}" for text in dict.fromkeys(problems)))


def _general(words: Sequence[str], problems: list[str]) -> tuple[str, int, list[str]]:
    """The options before the command, and -q and -v anywhere."""
    mode, verbosity, left = "online", 0, list(words)
    rest: list[str] = []
    while left:
        word = left.pop(0)
        name, mark, value = word.partition("=")
        if word in _QUIET or word in _VERBOSE:
            verbosity = -1 if word in _QUIET else 1
        elif name in ("-m", "--mode") and not any(one in _COMMANDS for one in rest):
            mode = value if mark else left.pop(0) if left else ""
            if mode not in _MODES:
                problems.append(f"--mode: found '{mode}', expected online or offline")
        elif name == "--mode":
            mode = value if mark else left.pop(0) if left else ""
        else:
            rest.append(word)
    return mode, verbosity, rest


def _command(words: Sequence[str], problems: list[str]) -> tuple[str, list[str]]:
    if words and words[0] in _COMMANDS:
        # The reference keeps ``analyze`` as another name of ``profile``.
        return (REPORT if words[0] == REPORT else PROFILE), list(words[1:])
    if words and not words[0].startswith("-"):
        near = did_you_mean(words[0], _COMMANDS)
        problems.append(f"unknown command '{words[0]}'{near or ', expected profile, analyze or report'}")
        return PROFILE, list(words[1:])
    problems.append("found no command, expected profile, analyze or report")
    return PROFILE, list(words)


def _options(words: Sequence[str], known: Mapping[str, Key], problems: list[str]) -> dict[str, Any]:
    flags = {key.flag: key for key in known.values() if key.has_option}
    letters = {f"-{key.letter}": key for key in known.values() if key.letter}
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, mark, text = word.partition("=")
        key = letters.get(name) or flags.get(name.replace("_", "-"))
        if key is None and word[:2] in letters:
            # A value may follow its letter at once: -b1,2,4.
            name, mark, text = word[:2], "=", word[2:].strip()
            key = letters[name]
        if key is None:
            problems.append(_unknown(name, [*flags, *letters]))
            # What follows belongs to it.
            if left and not mark and not left[0].startswith("-"):
                left.pop(0)
            continue
        if key.kind.is_flag and not mark:
            found[key.name] = True
            continue
        if not mark:
            if not left:
                problems.append(f"{name} needs a value: {key.kind.expected}")
                continue
            text = left.pop(0)
        _read(key.name, key.kind, text, found, name, problems)
    return found


def _unknown(name: str, known: Sequence[str]) -> str:
    if not name.startswith("-"):
        return f"found '{name}', expected an option"
    for key in KEYS:
        if key.flag == name and not key.has_option:
            return f"{name} can be given in the configuration file only, as '{key.name}'"
    return f"unknown option '{name}'{did_you_mean(name, known)}"


def _read(name: str, kind: KeyKind, value: Any, found: dict[str, Any], shown: str, problems: list[str]) -> None:
    try:
        found[name] = kind.read(value)
    except (ValueError, TypeError, LookupError):
        problems.append(f"{shown}: found {value!r}, expected {kind.expected}")


def _file_values(file: Path, known: Mapping[str, Key], problems: list[str]) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"cannot read '{file}': {error.strerror or error}")
        return {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problems.append(f"'{file}' is no YAML: {' '.join(str(error).split())}")
        return {}
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        problems.append(f"'{file}' holds {type(document).__name__}, expected keys with values")
        return {}
    found: dict[str, Any] = {}
    elsewhere = {key.name: key for key in KEYS}
    for name, value in document.items():
        key = known.get(str(name))
        if key is not None:
            if value is not None:
                _read(key.name, key.kind, value, found, f"'{file}': {name}", problems)
        elif str(name) in elsewhere:
            where = " and ".join(elsewhere[str(name)].commands)
            problems.append(f"'{file}': {name} belongs to naiad analyze {where}")
        else:
            problems.append(f"'{file}': unknown key '{name}'{did_you_mean(str(name), known)}")
    return found


def _profile(
    mode: str, values: dict[str, Any], given: frozenset[str], verbosity: int, problems: list[str]
) -> AnalyzeSettings:
    if values["triton_launch_mode"] == "docker":
        problems.append(_DOCKER)
    if values["model_type"] == "LLM":
        problems.append(_LLM)
    if values["model_repository"] is None and values["triton_launch_mode"] != "remote":
        problems.append("model_repository is missing: -m FOLDER, or the key in the configuration file")
    if values["profile_models"] is None:
        problems.append("profile_models is missing: the names of the models to measure")
    sections = model_sections(values["profile_models"] or [], "profile_models", problems)
    models = [model_settings(n, s, values, f"profile_models.{n}", problems) for n, s in sections.items()]
    composing = _composing(values, problems)
    if clash := {model.name for model in models} & {model.name for model in composing}:
        problems.append(f"{', '.join(sorted(clash))}: listed under profile_models and as composing models")
    for name in ("concurrency", "request_rate", "instance_count", "model_batch_size"):
        low, high = values[f"run_config_search_min_{name}"], values[f"run_config_search_max_{name}"]
        _check_range(f"run_config_search_min_{name}", low, high, problems)
    if values["concurrency"] and values["request_rate"]:
        problems.append("concurrency and request_rate are both given, expected one of them")
    if (data := values["input_data"]) is not None:
        models = [_with_words(model, f"--input-data={data}") for model in models]
    if (traffic := values["recorded_traffic"]) is not None:
        models = [_with_words(model, f"--input-data={traffic}", "--fixed-schedule") for model in models]
    return AnalyzeSettings(
        PROFILE,
        mode,
        values,
        given,
        tuple(models),
        tuple(composing),
        _server_words(values, sections, problems),
        _environment(values, sections),
        warnings=(*_warnings(values, given), *_shared(sections)),
        verbosity=verbosity,
    )


def _shared(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Settings of single models that hold for all of them."""
    for key in ("triton_server_flags", "triton_server_environment"):
        names = [name for name, section in sections.items() if section.get(key)]
        if names and len(sections) > 1:
            yield f"{key} of {', '.join(names)} hold for all models, as one server has them all: the last value counts"


def _check_range(name: str, low: int, high: int, problems: list[str]) -> None:
    if low > high:
        problems.append(f"{name} is {low}, expected at most the greatest value, {high}")


def _with_words(model: ModelSettings, *words: str) -> ModelSettings:
    return replace(model, flags=(*model.flags, *words))


def _composing(values: Mapping[str, Any], problems: list[str]) -> list[ModelSettings]:
    found = []
    for key in ("bls_composing_models", "ensemble_composing_models"):
        sections = model_sections(values[key] or [], key, problems)
        for name, section in sections.items():
            section = dict(section)
            if name in values["cpu_only_composing_models"]:
                section["cpu_only"] = True
            found.append(model_settings(name, section, values, f"{key}.{name}", problems))
    return found


def _server_words(
    values: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]], problems: list[str]
) -> tuple[str, ...]:
    flags = dict(values["triton_server_flags"] or {})
    for section in sections.values():
        flags |= section.get("triton_server_flags", {})
    words = []
    for name, value in flags.items():
        option = "--" + str(name).lstrip("-").replace("_", "-")
        if option in ("--model-repository", "--model-control-mode", "--http-port", "--grpc-port", "--metrics-port"):
            problems.append(f"triton_server_flags: {name} is chosen by the analysis; leave it out")
            continue
        for one in value if isinstance(value, list) else [value]:
            text = str(one).lower() if isinstance(one, bool) else str(one)
            words.append(f"{option}={text}")
    return tuple(words)


def _environment(values: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    found = dict(values["triton_server_environment"] or {})
    for section in sections.values():
        found |= section.get("triton_server_environment", {})
    return {str(name): str(value) for name, value in found.items()}


def _warnings(values: Mapping[str, Any], given: frozenset[str]) -> tuple[str, ...]:
    none = sorted(key.name for key in KEYS if key.name in given and not key.help and values[key.name] != key.default)
    if not none:
        return ()
    return (f"without effect here: {', '.join(none)}",)


def _report(
    mode: str, values: dict[str, Any], given: frozenset[str], verbosity: int, problems: list[str]
) -> AnalyzeSettings:
    configs = values["report_model_configs"]
    if configs is None:
        problems.append("report_model_configs is missing: -n NAME, a configuration such as add_config_3")
    found = report_sections(configs, problems)
    return AnalyzeSettings(
        REPORT, mode, values, given, report_configs=found, warnings=_warnings(values, given), verbosity=verbosity
    )


def report_sections(configs: Any, problems: list[str]) -> dict[str, Mapping[str, Any]]:
    """The configurations of ``report_model_configs``, each with the charts of its own section."""
    if configs is None:
        return {}
    if isinstance(configs, str):
        return {word.strip(): {} for word in configs.split(",") if word.strip()}
    if isinstance(configs, Mapping):
        return {str(name): _plots(str(name), section, problems) for name, section in configs.items()}
    if isinstance(configs, Sequence):
        return {name: plots for entry in configs for name, plots in report_sections(entry, problems).items()}
    problems.append(f"report_model_configs: found {configs!r}, expected names of configurations")
    return {}


def _plots(name: str, section: Any, problems: list[str]) -> Mapping[str, Any]:
    where = f"report_model_configs.{name}"
    if section is None:
        return {}
    if not isinstance(section, Mapping) or set(section) - {"plots"}:
        problems.append(f"{where}: found {section!r}, expected plots")
        return {}
    found: dict[str, dict[str, Any]] = {"plots": {}}
    _read("plots", CHARTS, section.get("plots") or {}, found, f"{where}.plots", problems)
    return found["plots"]
