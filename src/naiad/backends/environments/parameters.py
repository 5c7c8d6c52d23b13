"""The parameters by which a model asks for an environment of its own. They are optional.

- ``EXECUTION_ENV_PATH`` (the reference's): a packed environment (``conda-pack``, ``venv-pack``), or the folder of one;
  an absolute path, or one that begins with ``$$TRITON_MODEL_DIRECTORY``.
- ``environment``: a file of requirements, found in the model's folder; an environment is made from it and cached.
- ``python``: a version such as ``3.9``, or the path of an interpreter.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

logger = logging.getLogger("naiad")

PACKED: Final = "EXECUTION_ENV_PATH"
REQUIREMENTS: Final = "environment"
PYTHON: Final = "python"


def requested(parameters: Mapping[str, str]) -> str:
    """The parameter by which a model asks for an environment; "" when it runs in the server's own."""
    return next((name for name in (PACKED, REQUIREMENTS, PYTHON) if parameters.get(name)), "")


def of_python_model(parameters: Mapping[str, str], model_directory: Path) -> dict[str, str]:
    """The parameters of a Python model without an ``environment`` that is the model's own, such as ``production``.

    A word without dot and slash that names no file is no file of requirements: the reference hands all parameters to
    the model, and configurations for it may have one of that name.
    """
    word = parameters.get(REQUIREMENTS, "")
    if not word or "." in word or "/" in word or (model_directory / word).is_file():
        return dict(parameters)
    logger.warning(
        "parameter '%s' of model '%s' is \"%s\", which names no file of requirements: it is left to the model",
        REQUIREMENTS,
        model_directory.name,
        word,
    )
    return {name: value for name, value in parameters.items() if name != REQUIREMENTS}
