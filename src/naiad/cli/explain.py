"""``naiad explain``: the fields of a model's configuration, from its repository or from a server."""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format

from naiad.backend_api.host_policy import HostPolicies
from naiad.cli.explain_options import parser
from naiad.cli.headers import read_headers
from naiad.config.messages import message_class
from naiad.config.normalize import normalize
from naiad.config.parsing.suggest import did_you_mean
from naiad.config.problems import Origin
from naiad.config.read import ReadConfig
from naiad.config.resolve import finish, prepare
from naiad.config.source import ModelSource
from naiad.errors import BackendUnavailableError, ConfigError, NaiadError, OptionError
from naiad.explain.origins import baseline, of_file, of_server
from naiad.explain.report import as_json, as_text, below, field_names, not_set
from naiad.explain.rows import FieldRow, rows
from naiad.explain.tuned import tuned_rows
from naiad.gpus.access import GpuAccess
from naiad.lifecycle.loading.load_version import LoadSettings, start_backend
from naiad.options import ServerOptions, parse_check
from naiad.repository.local.discover import discover

_TIMEOUT_S = 30
_MOST_BYTES = 16 << 20
_WRITTEN = "/written"
_NO_ORIGINS = "the server does not say who wrote a value; one of Naiad does"


def explain(argv: Sequence[str]) -> int:
    """Explain a model; returns the exit code."""
    try:
        own = parser().parse_args(argv)
        found, notes = _of_server(own) if own.url else _of_repository(own)
        _print(own, found, notes)
    except NaiadError as error:
        print(f"error: {error.located() if isinstance(error, ConfigError) else error}", file=sys.stderr)
        return 1
    return 0


def _of_repository(own: argparse.Namespace) -> tuple[list[FieldRow], list[str]]:
    """The rows of a model that lies in a repository, and remarks."""
    is_path = Path(own.model).exists()
    if not (is_path or any(word.startswith("--model-repository") for word in own.of_check)):
        raise OptionError(
            f"there is no file or folder '{own.model}': name the folder of a model, or its repository with "
            "--model-repository=<folder>, or a server with --url"
        )
    options = parse_check([*own.of_check, *([own.model] if is_path else [])], os.environ)
    settings = LoadSettings(
        options.settings_of,
        auto_complete=not options.disable_auto_complete_config,
        model_config_name=options.model_config_name,
        gpu_fallback=options.gpu_fallback == "cpu",
        policies=HostPolicies.of(options.host_policies),
        gpus=GpuAccess.of(options.min_supported_compute_capability, options.model_load_gpu_limit),
    )
    found = settings.finder.candidate(_source(own.model, options))
    version = own.model_version or max(found.versions)
    if version not in found.source.versions:
        known = ", ".join(map(str, sorted(found.source.versions)))
        raise OptionError(f"model '{found.source.name}' has no version {version}; it has {known}")
    config, notes = _completed(found.source, version, found.read, settings)
    return rows(config, baseline(found.read.config, config), of_file(found.read)), notes


def _source(model: str, options: ServerOptions) -> ModelSource:
    """The model called ``model`` in the repositories, or the one that lies at this path."""
    local = [path for path in options.model_repository if isinstance(path, Path)]
    models = discover(local, [path for path in options.paths if isinstance(path, Path)]).models
    if len(models) == 1 and options.paths:
        return next(iter(models.values()))
    if model not in models:
        raise OptionError(_not_there(model, [*map(str, local), *map(str, options.paths)], models))
    return models[model]


def _not_there(model: str, places: Sequence[str], models: Collection[str]) -> str:
    """The text of the error about a name that no model has, or about the folder of several models."""
    if model not in places:
        return f"there is no model '{model}' in {', '.join(places)}{did_you_mean(model, models)}"
    if not models:
        return f"'{model}' holds no model: name the folder of a model, or a model file"
    known = ", ".join(f"'{name}'" for name in sorted(models))
    return f"'{model}' holds several models, name one as in {Path(model) / min(models)}; there are {known}"


def _completed(source: ModelSource, version: int, read: ReadConfig, settings: LoadSettings) -> tuple[Any, list[str]]:
    """The completed configuration of a version, and remarks: what it lacks, and where its instances run."""
    prepared = prepare(source, version, read=read, gpu_fallback=settings.gpu_fallback, gpus=settings.gpus.usable)
    if not prepared.backend:
        finish(prepared)
        return prepared.config, []
    try:
        prepared, backend, spec = start_backend(source, version, read, settings)
    except BackendUnavailableError as error:
        normalize(prepared.config)
        return prepared.config, [f"fields from the model itself are missing: {error}"]
    backend.close()
    return prepared.config, settings.policies.described(spec.instance_groups)


def _of_server(own: argparse.Namespace) -> tuple[list[FieldRow], list[str]]:
    """The rows of a model that a server has, and remarks."""
    if own.of_check:
        raise OptionError(f"{' '.join(own.of_check)}: expected nothing beside --url, the server has options of its own")
    headers = read_headers(own.header)
    version = f"/versions/{own.model_version}" if own.model_version else ""
    address = f"{own.url.rstrip('/')}/v2/models/{quote(own.model, safe='')}{version}/config"
    address = address if "://" in address else f"http://{address}"
    try:
        found = _object_at(address + _WRITTEN, headers)
    except urllib.error.HTTPError:
        # Another server, or an earlier Naiad. What else may be wrong shows in the answer to the next question.
        found = {}
    if {"written", "completed", "lines"} <= found.keys():
        config, written = _message(address, found["completed"]), _message(address, found["written"])
        file = found.get("file")
        read = ReadConfig(written, Origin(None if file is None else Path(file), found["lines"]))
        return [*rows(config, baseline(written, config), of_file(read)), *tuned_rows(found.get("tuned"))], []
    try:
        config = _message(address, _object_at(address, headers))
    except urllib.error.HTTPError as error:
        raise OptionError(f"{address}: {error.code}: {error.read(500).decode(errors='replace')}") from None
    return rows(config, baseline(message_class("ModelConfig")(), config), of_server), [_NO_ORIGINS]


def _object_at(address: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object at an address.

    Raises:
        HTTPError: the server refuses.
        OptionError: there is no server, or no such object.
    """
    try:
        request = urllib.request.Request(address, headers=dict(headers))
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            found = json.loads(response.read(_MOST_BYTES))
    except urllib.error.HTTPError:
        raise
    except (OSError, ValueError) as error:
        raise _no_config(address, error) from None
    if not isinstance(found, dict):
        raise _no_config(address, f"a {type(found).__name__}")
    return found


def _message(address: str, content: Any) -> Any:
    try:
        return json_format.ParseDict(content, message_class("ModelConfig")(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise _no_config(address, error) from None


def _no_config(address: str, found: object) -> OptionError:
    return OptionError(f"{address.removesuffix(_WRITTEN)}: expected the configuration of a model, found: {found}")


def _print(own: argparse.Namespace, found: list[FieldRow], notes: Sequence[str]) -> None:
    if own.field:
        known = below(found, own.field) or not_set(own.field)
        if not known:
            hint = did_you_mean(own.field, field_names())
            raise OptionError(f"a model configuration has no field '{own.field}'{hint}")
        # Of a message that is not set, the fields that it could have.
        found = known if known[0].value is not None else not_set(own.field)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(as_json(own.model, found).decode() if own.json else as_text(found))
