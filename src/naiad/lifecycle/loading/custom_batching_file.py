"""Finding and making the class that batches requests for a model, ``BatchStrategy`` in ``batchstrategy.py``.

Source: the reference's rules for the library of a custom batcher: the parameter ``TRITON_BATCH_STRATEGY_PATH``, or a
file in the folder of the version, of the model, or of its backend.
"""

from __future__ import annotations

import logging
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from naiad.config.export import config_json
from naiad.config.known_parameters.every_model import BATCH_STRATEGY
from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError, first_line
from naiad.execution.model.custom_batching import CustomBatching

logger = logging.getLogger("naiad")

FILE: Final = "batchstrategy.py"
CLASS: Final = "BatchStrategy"
_LIBRARY: Final = ".so"
_numbers = count(1)


def load_strategy(
    spec: ModelSpec, version: int, config: Any, model: Path, folder: Path | None, backends: str
) -> CustomBatching | None:
    """The strategy of a model version, None for one without.

    Args:
        config: its completed configuration message.
        model: the model's folder; ``folder`` is the version's, ``backends`` the folder with backends or "".

    Raises:
        ModelLoadError: the file is missing or no Python file, its class cannot be made, or the model does not batch.
    """
    backend = Path(backends).absolute() / spec.backend if backends and spec.backend else None
    file = _named(spec, model, backend) if BATCH_STRATEGY in spec.parameters else _found(spec, model, folder, backend)
    if file is None:
        return None
    if spec.batching is None:
        raise ModelLoadError(
            f"model '{spec.name}' has the batch strategy {file.name}, which needs 'dynamic_batching' and a "
            "'max_batch_size': add them, or remove it"
        )
    arguments = {
        "model_config": config_json(config).decode(),
        "model_name": spec.name,
        "model_version": str(version),
        "model_repository": str(model),
    }
    try:
        strategy = getattr(_run(file), CLASS)()
        if not callable(getattr(strategy, "include_request", None)):
            raise TypeError(f"class {CLASS} has no method include_request(request, batch)")
        if hasattr(strategy, "initialize"):
            strategy.initialize(arguments)
    except BaseException as error:
        # The strategy is a user's code: its SystemExit ends this load, not the server.
        logger.error("the batch strategy of model '%s' cannot be used", spec.name, exc_info=error)
        raise ModelLoadError(
            f"the batch strategy {file.name} of model '{spec.name}' cannot be used: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error
    return CustomBatching(strategy, spec)


def _named(spec: ModelSpec, model: Path, backend: Path | None) -> Path:
    text = spec.parameters[BATCH_STRATEGY]
    what = f"model '{spec.name}': parameter '{BATCH_STRATEGY}' is \"{text[:256]}\""
    if "\0" in text or not text:
        raise ModelLoadError(f"{what}, expected the path of a Python file")
    # Resolved, so that neither ".." nor a link leads out: a load request may bring the configuration.
    file = (model / text).resolve()
    if file.suffix == _LIBRARY:
        raise ModelLoadError(
            f"{what}, a shared library, and Naiad takes a Python class: write class {CLASS} into {FILE} "
            "(docs/batching.md)"
        )
    if file.suffix != ".py":
        raise ModelLoadError(f"{what}, expected a file whose name ends with .py")
    allowed = [model.resolve()] + ([] if backend is None else [backend.resolve()])
    if not any(file.is_relative_to(root) for root in allowed):
        raise ModelLoadError(f"{what}, which is outside the model's folder and that of its backend")
    if not file.is_file():
        raise ModelLoadError(f"{what}, and there is no such file")
    return file


def _found(spec: ModelSpec, model: Path, folder: Path | None, backend: Path | None) -> Path | None:
    for place in (folder, model, backend):
        if place is None:
            continue
        if (place / FILE).is_file():
            return place / FILE
        if (place / FILE).with_suffix(_LIBRARY).is_file():
            logger.warning(
                "model '%s': the shared library %s is not used; write class %s into %s (docs/batching.md)",
                spec.name,
                FILE.replace(".py", _LIBRARY),
                CLASS,
                FILE,
            )
    return None


def _run(file: Path) -> ModuleType:
    """The module that the file makes; nothing is written beside it."""
    # A name of its own, since loads run side by side and ``sys.modules`` is one for all.
    module = ModuleType(f"naiad_batch_strategy_{next(_numbers)}")
    module.__file__ = str(file)
    # Dataclasses look for the module of a class there while they are made.
    sys.modules[module.__name__] = module
    try:
        exec(compile(file.read_bytes(), file, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module
