"""The backend ``iterative_sequence``: a Python model that reschedules each request as often as its input requests. For
tests.

Source: the test backend of this name of the reference server.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.backends.python.backend import PythonBackend
from naiad.backends.python.source import shared_source

if TYPE_CHECKING:
    from naiad.backend_api.backend import BackendContext
    from naiad.backends.python.source import Source

PROGRAM: Final = Path(__file__).with_name("model.py")


class IterativeSequenceBackend(PythonBackend):
    """Runs ``model.py`` beside this file; to configurations it is a backend of Naiad like any other."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context, PROGRAM)

    def _code(self) -> Source:
        return replace(shared_source(self.context, PROGRAM), backend_directory=None)
