"""The environment that a model asks for: which interpreter runs it, with which environment variables."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from naiad.backends.environments import interpreters
from naiad.backends.environments.archive import shared_archives
from naiad.backends.environments.interpreters import Interpreter, inspect, without_numpy
from naiad.backends.environments.parameters import PACKED, PYTHON, REQUIREMENTS
from naiad.backends.environments.requirements import environment_from
from naiad.backends.shared.commands import run_command
from naiad.cache_folder import cache_folder
from naiad.errors import ModelLoadError

logger = logging.getLogger("naiad")

CACHE_SETTING = "environment-cache"
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
NOTHING_ELSE: Final[Mapping[str, str]] = MappingProxyType({})
_STUB = "triton_python_backend_stub"
_ACTIVATE_S = 120.0
# A zero byte behind each variable: values may contain line feeds.
_ACTIVATE = '. "$1/bin/activate" >/dev/null 2>&1; exec env -0'
_unpacking = threading.Lock()


@dataclass(frozen=True, slots=True)
class Environment:
    """The interpreter and the variables of a worker. It has to live as long as a worker uses it.

    Attributes:
        python: the interpreter.
        env: all environment variables.
        holds: an object that must live as long, such as an unpacked archive.
    """

    python: Path
    env: Mapping[str, str]
    holds: object = None


def resolve(
    model_directory: Path,
    parameters: Mapping[str, str],
    settings: Mapping[str, str],
    also: Mapping[str, str] = NOTHING_ELSE,
) -> Environment:
    """The environment that a model asks for, by default the server's own.

    Called in a loading thread, as it may take long.

    Args:
        model_directory: the model's folder, which holds those of its versions.
        parameters: of the configuration.
        settings: the ``--backend-config`` of the backend; ``environment-cache`` is the folder of environments that
            are made from requirements.
        also: modules that an environment made for another version of Python needs beside numpy, and the distributions
            that have them; they are installed unless the requirements bring them.

    Raises:
        ModelLoadError: it cannot be found, made or used; the text says why, and what was found instead.
    """
    packed, requirements, python = (parameters.get(name, "") for name in (PACKED, REQUIREMENTS, PYTHON))
    model = model_directory.name
    if packed and (requirements or python):
        other = REQUIREMENTS if requirements else PYTHON
        raise ModelLoadError(f"model '{model}' has the parameters '{PACKED}' and '{other}': it can have one of them")
    try:
        if packed:
            return _packed(_path(packed, model_directory, PACKED))
        _warn_of_stub(model_directory)
        if requirements:
            return _made(_path(requirements, model_directory, REQUIREMENTS), python, model_directory, settings, also)
        if python:
            return _plain(_interpreter(python, model_directory, needs_numpy=True))
    except ModelLoadError as error:
        raise ModelLoadError(f"model '{model}': {error}") from None
    return Environment(Path(sys.executable), dict(os.environ))


def _path(text: str, model_directory: Path, parameter: str) -> Path:
    if text.startswith(MODEL_DIRECTORY):
        return model_directory / text.removeprefix(MODEL_DIRECTORY).lstrip("/")
    if parameter == PACKED and not os.path.isabs(text):
        raise ModelLoadError(
            f"parameter '{PACKED}' is \"{text}\", expected an absolute path or one that begins with {MODEL_DIRECTORY}"
        )
    return model_directory / text


def _warn_of_stub(model_directory: Path) -> None:
    if (model_directory / _STUB).exists():
        logger.warning(
            "%s is not used: name the interpreter that it was built for with the parameter '%s' or '%s'",
            model_directory / _STUB,
            PACKED,
            PYTHON,
        )


# Packed environments


def _packed(path: Path) -> Environment:
    holds = None
    if path.is_dir():
        folder = path
    else:
        holds = shared_archives().unpack(path)
        folder = holds.folder
    prefix = _prefix(folder, path)
    # ``conda-unpack`` writes into the environment, which several loading threads may use.
    with _unpacking:
        _fix_prefixes(prefix)
    env = _activated(prefix)
    found = inspect(prefix / "bin" / "python", env)
    if not found.has_numpy:
        raise without_numpy(found)
    return Environment(prefix / "bin" / "python", env, holds)


def _prefix(folder: Path, named: Path) -> Path:
    """The folder that holds ``bin/python``: this one, or the only one inside, as archives of a folder have it."""
    inside = [entry for entry in folder.iterdir() if entry.is_dir()]
    # A slice by a bool: the only folder inside, or none.
    for place in (folder, *inside[: len(inside) == 1]):
        if os.access(place / "bin" / "python", os.X_OK):
            return place
    raise ModelLoadError(f"the environment {named} has no bin/python that can be run")


def _fix_prefixes(prefix: Path) -> None:
    """Run ``conda-unpack``, which writes the place where the environment lies now into its files."""
    script, done = prefix / "bin" / "conda-unpack", prefix / "conda-meta" / "naiad-unpacked"
    if not script.is_file() or not os.access(prefix / "conda-meta", os.W_OK):
        return
    # The folder may have been moved since, and its files name the old place.
    if done.is_file() and done.read_text() == str(prefix):
        return
    what = f"the environment {prefix} cannot be fitted to its place"
    run_command([prefix / "bin" / "python", script], what, _ACTIVATE_S, env=_variables(prefix, os.environ))
    done.write_text(str(prefix))


def _activated(prefix: Path) -> dict[str, str]:
    """The variables that the environment's own ``activate`` sets, and those that every environment needs."""
    bash = shutil.which("bash")
    if bash is None or not (prefix / "bin" / "activate").is_file():
        return _variables(prefix, os.environ)
    what = f"the environment {prefix} cannot be activated"
    text = run_command([bash, "-c", _ACTIVATE, "activate", prefix], what, _ACTIVATE_S)
    pairs = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
    return _variables(prefix, {name: value for name, _, value in pairs})


def _variables(prefix: Path, given: Mapping[str, str]) -> dict[str, str]:
    # PYTHONHOME would lead this interpreter to the libraries of another one.
    env = {name: value for name, value in given.items() if name != "PYTHONHOME"}
    own = str(prefix / "bin")
    if env.get("PATH", "").partition(os.pathsep)[0] != own:
        env["PATH"] = os.pathsep.join(filter(None, (own, env.get("PATH"))))
    env["CONDA_PREFIX" if (prefix / "conda-meta").is_dir() else "VIRTUAL_ENV"] = str(prefix)
    if any((prefix / "lib").glob("lib*.so*")):
        # As the reference starts its workers: packages look there for the libraries that came with them.
        library = env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(prefix / "lib"), library)))
    return env


# Interpreters and environments made here


def _interpreter(text: str, model_directory: Path, needs_numpy: bool) -> Interpreter:
    if interpreters.parse_version(text) is not None or "/" not in text:
        return interpreters.find(text, needs_numpy)
    found = inspect(_path(text, model_directory, PYTHON))
    if needs_numpy and not found.has_numpy:
        raise without_numpy(found)
    return found


def _plain(found: Interpreter) -> Environment:
    return Environment(found.path, {name: value for name, value in os.environ.items() if name != "PYTHONHOME"})


def _made(
    requirements: Path, python: str, model_directory: Path, settings: Mapping[str, str], also: Mapping[str, str]
) -> Environment:
    if not requirements.is_file():
        raise ModelLoadError(f"parameter '{REQUIREMENTS}' names {requirements}, and there is no such file")
    base = _interpreter(python or sys.executable, model_directory, needs_numpy=False)
    kept = settings.get(CACHE_SETTING)
    folder = Path(kept).expanduser() if kept else cache_folder("environments")
    prefix = environment_from(requirements, base, folder, also)
    return Environment(prefix / "bin" / "python", _variables(prefix, os.environ))
