"""The sections about models: ``profile_models`` and the composing models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from naiad.analyze.settings.goal import Constraint, Goal, read_constraints, read_objectives
from naiad.analyze.settings.kinds import BOOLEAN, MAPPING, WORDS, KeyKind, number, numbers
from naiad.analyze.settings.settings import ModelSettings
from naiad.analyze.settings.sweep import SweepError, configurations_of
from naiad.config.parsing.suggest import did_you_mean
from naiad.perf.options.table import BY_NAME as PERF_OPTIONS

_KINDS: Final[dict[str, KeyKind]] = {
    "cpu_only": BOOLEAN,
    "parameters": MAPPING,
    "model_config_parameters": MAPPING,
    "perf_analyzer_flags": MAPPING,
    "genai_perf_flags": MAPPING,
    "triton_server_flags": MAPPING,
    "triton_server_environment": MAPPING,
    "triton_docker_args": MAPPING,
    "objectives": KeyKind("", lambda value: value),
    "constraints": KeyKind("", lambda value: value),
    "weighting": number(),
    "formats": WORDS,
}
_PARAMETERS: Final = {"batch_sizes": numbers(), "concurrency": numbers(), "request_rate": numbers()}
_RESERVED: Final = {"concurrency-range": "concurrency", "request-rate-range": "request_rate", "b": "batch_sizes"}
_WHERE: Final = frozenset({"m", "model-name", "u", "url", "i", "service-kind", "model-repository"})
_OTHER_NAMES: Final = {
    "model-version": "x",
    "http-header": "H",
    "latency-report-file": "f",
    "batch-size": "b",
    "protocol": "i",
    "verbose": "v",
}
"""What model-analyzer calls options of perf_analyzer that have no long name."""


def model_sections(value: Any, where: str, problems: list[str]) -> dict[str, dict[str, Any]]:
    """The settings of each model by its name, from names, a list of names and sections, or a mapping."""
    found: dict[str, dict[str, Any]] = {}
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    entries: Any = [value] if isinstance(value, Mapping) else value
    if not isinstance(entries, Sequence):
        problems.append(f"{where}: found {value!r}, expected names of models")
        return {}
    for entry in entries:
        if isinstance(entry, Mapping):
            for name, section in entry.items():
                found[str(name)] = _section(section or {}, f"{where}.{name}", problems)
        elif isinstance(entry, str):
            found[entry] = {}
        else:
            problems.append(f"{where}: found {entry!r}, expected the name of a model")
    return found


def _section(section: Any, where: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(section, Mapping):
        problems.append(f"{where}: found {section!r}, expected settings of the model")
        return {}
    found: dict[str, Any] = {}
    for name, value in section.items():
        kind = _KINDS.get(str(name))
        if kind is None:
            problems.append(f"{where}: unknown key '{name}'{did_you_mean(str(name), _KINDS)}")
            continue
        try:
            found[str(name)] = kind.read(value)
        except (ValueError, TypeError):
            problems.append(f"{where}.{name}: found {value!r}, expected {kind.expected}")
    return found


def model_settings(
    name: str, section: Mapping[str, Any], values: Mapping[str, Any], where: str, problems: list[str]
) -> ModelSettings:
    """One model; what its section leaves open comes from the keys of the file."""
    loads = dict(values)
    for key, value in section.get("parameters", {}).items():
        kind = _PARAMETERS.get(str(key))
        if kind is None:
            problems.append(f"{where}.parameters: unknown key '{key}'{did_you_mean(str(key), _PARAMETERS)}")
            continue
        try:
            loads[str(key)] = kind.read(value)
        except (ValueError, TypeError):
            problems.append(f"{where}.parameters.{key}: found {value!r}, expected {kind.expected}")
    configurations: tuple[Mapping[str, Any], ...] = ()
    if section.get("model_config_parameters"):
        try:
            configurations = configurations_of(section["model_config_parameters"])
        except SweepError as error:
            problems.append(f"{where}.model_config_parameters: {error}")
    flags = {**(values.get("perf_analyzer_flags") or {}), **section.get("perf_analyzer_flags", {})}
    others = tuple(model for model in section.get("formats", ()) if model != name)
    return ModelSettings(
        name,
        (name, *others),
        bool(section.get("cpu_only", False)),
        configurations,
        loads.get("batch_sizes") or (1,),
        loads.get("concurrency") or (),
        loads.get("request_rate") or (),
        perf_words(flags, f"{where}.perf_analyzer_flags", problems),
        _goal(section, values, where, problems),
    )


def _goal(section: Mapping[str, Any], values: Mapping[str, Any], where: str, problems: list[str]) -> Goal:
    goals = {**{key: values.get(key) for key in ("objectives", "constraints", "weighting")}, **section}
    objectives = {"perf_throughput": 1.0}
    if goals.get("objectives") is not None:
        objectives = read_objectives(goals["objectives"], f"{where}.objectives", problems)
    constraints: tuple[Constraint, ...] = ()
    if goals.get("constraints") is not None:
        constraints = read_constraints(goals["constraints"], f"{where}.constraints", problems)
    if values.get("latency_budget") is not None:
        constraints += (Constraint("perf_latency_p99", most=values["latency_budget"]),)
    if values.get("min_throughput") is not None:
        constraints += (Constraint("perf_throughput", least=values["min_throughput"]),)
    weighting = goals.get("weighting")
    return Goal(objectives or {"perf_throughput": 1.0}, constraints, 1.0 if weighting is None else float(weighting))


def perf_words(flags: Mapping[str, Any], where: str, problems: list[str]) -> tuple[str, ...]:
    """Options of ``naiad perf`` as words of a command line."""
    words: list[str] = []
    for name, value in flags.items():
        key = str(name).replace("_", "-").lstrip("-")
        key = _OTHER_NAMES.get(key, key)
        if key in _RESERVED:
            problems.append(f"{where}: {name} is chosen by the analysis; list values under '{_RESERVED[key]}'")
            continue
        if key in _WHERE:
            problems.append(f"{where}: {name} is known from the other keys; leave it out")
            continue
        if key not in PERF_OPTIONS and len(key) > 1:
            problems.append(f"{where}: naiad perf has no option '{name}'{did_you_mean(key, PERF_OPTIONS)}")
            continue
        dash = "--" if len(key) > 1 else "-"
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool):
                words += [f"{dash}{key}"] if one else []
            elif len(key) > 1:
                words.append(f"{dash}{key}={one}")
            else:
                words += [f"{dash}{key}", str(one)]
    return tuple(words)
