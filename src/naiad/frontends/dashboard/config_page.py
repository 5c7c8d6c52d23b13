"""The configuration of a model for the page: each value with its origin, and the check of an edited one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from naiad.config.export import set_fields
from naiad.config.normalize import normalize
from naiad.config.problems import ConfigProblemsError, Origin
from naiad.config.read import MAX_CONFIG_BYTES, ConfigFormat, parse_config
from naiad.config.unsupported import unsupported
from naiad.config.validate import validate
from naiad.errors import ConfigError, InvalidArgumentError
from naiad.explain.origins import baseline, of_file
from naiad.explain.rows import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from naiad.engine.engine import Engine
    from naiad.gpus.usable import UsableGpus


def explained(engine: Engine, model: str, version: str) -> dict[str, Any]:
    """The fields of a model's configuration as ``naiad explain`` shows them, and the configuration as written.

    Errors as ``Engine.written_config``.
    """
    found = engine.written_config(model, version or None)
    written, completed = found.read.config, found.completed
    file = found.read.origin.file
    fields = rows(completed, baseline(written, completed), of_file(found.read))
    return {
        "version": str(found.version),
        "file": None if file is None else file.name,
        "fields": [asdict(row) for row in fields],
        "written": set_fields(written),
    }


def checked(engine: Engine, model: str, text: str, gpus: Callable[[], UsableGpus]) -> dict[str, Any]:
    """The problems of an edited configuration: each with its message and its line, which may be None.

    What the text leaves open is taken from the model as it is loaded. Nothing is loaded: what only the framework
    finds out shows in the load itself, whose failure leaves the model as it is.

    Raises:
        InvalidArgumentError: the text is too long.
        NaiadError: as ``Engine.model_config``.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise InvalidArgumentError(f"the configuration has {len(text)} characters, at most {MAX_CONFIG_BYTES} are read")
    completed = engine.model_config(model, None)
    try:
        read = parse_config(text, ConfigFormat.JSON)
    except ConfigProblemsError as error:
        return {"problems": [_problem(found) for found in error.problems]}
    config = read.config
    _complete(config, completed, read.origin.lines)
    usable = gpus()
    normalize(config, usable)
    origin = Origin(None, read.origin.lines)
    found = [*validate(config, origin=origin, directory=completed.name, gpus=usable), *unsupported(config, origin)]
    return {"problems": [_problem(error) for error in found]}


def _complete(config: Any, completed: Any, lines: Mapping[str, int]) -> None:
    """Take from ``completed`` what a load finds out from the files of the model."""
    config.name = config.name or completed.name
    if not (config.platform or config.backend):
        config.platform, config.backend = completed.platform, completed.backend
    config.default_model_filename = config.default_model_filename or completed.default_model_filename
    if not config.input and not config.output:
        if "max_batch_size" not in lines:
            config.max_batch_size = completed.max_batch_size
        config.input.MergeFrom(completed.input)
        config.output.MergeFrom(completed.output)
    if completed.HasField("ensemble_scheduling") and not config.WhichOneof("scheduling_choice"):
        config.ensemble_scheduling.CopyFrom(completed.ensemble_scheduling)


def _problem(error: ConfigError) -> dict[str, Any]:
    return {"message": str(error), "line": error.line}
