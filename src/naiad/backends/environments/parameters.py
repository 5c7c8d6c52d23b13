"""The parameters by which a model asks for an environment of its own. They are optional.

- ``EXECUTION_ENV_PATH`` (the reference's): a packed environment (``conda-pack``, ``venv-pack``), or the folder of one;
  an absolute path, or one that begins with ``$$TRITON_MODEL_DIRECTORY``.
- ``environment``: a file of requirements, found in the model's folder; an environment is made from it and cached.
- ``python``: a version such as ``3.9``, or the path of an interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PACKED: Final = "EXECUTION_ENV_PATH"
REQUIREMENTS: Final = "environment"
PYTHON: Final = "python"


def requested(parameters: Mapping[str, str]) -> str:
    """The parameter by which a model asks for an environment; "" when it runs in the server's own."""
    return next((name for name in (PACKED, REQUIREMENTS, PYTHON) if parameters.get(name)), "")
