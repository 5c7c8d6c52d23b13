"""The program of a step: ``reproduce.py`` in its folder calls ``run_step``, in a conversion and by hand alike."""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULT = "result.json"


def run_step(function: str, arguments: Mapping[str, Any]) -> None:
    """Call ``function`` (``module:name``) with ``arguments``, write its value to ``result.json``, and end the process.

    The exit code is 0, or 1 when the step failed; the file then has the reason, and the traceback is on standard error.
    The process ends without the interpreter's own end, which some frameworks do not survive.
    """
    began = time.monotonic()
    code, value, failure = 0, None, None
    try:
        module, _, name = function.partition(":")
        value = getattr(importlib.import_module(module), name)(**arguments)
    except BaseException as error:
        from naiad.convert.failure import describe_failure

        traceback.print_exc()
        code, failure = 1, describe_failure(error)
    write_result(
        {
            "value": value,
            "failure": failure,
            "seconds": time.monotonic() - began,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "frameworks": [name for name in ("torch", "tensorflow", "keras", "onnx") if name in sys.modules],
        }
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def write_result(result: Mapping[str, Any]) -> None:
    """Replace ``result.json`` in the current folder; a step that may be ended in between writes what it has so far."""
    partial = Path(RESULT + ".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.replace(RESULT)
