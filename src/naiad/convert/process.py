"""Steps in processes of their own, with limits of time and memory, each with a script that runs it again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from naiad.convert.errors import StepFailure
from naiad.convert.settings import Limits
from naiad.convert.step_program import RESULT
from naiad.processes.openmp import let_openmp_sleep
from naiad.processes.process_group import GroupedProcess

_POLL_S: Final = 0.05
_END_S: Final = 10.0
_LOG: Final = "log.txt"
_SCRIPT: Final = '''\
"""Runs the step {name} again, as naiad convert did. Call it in any folder: {python} {script}"""

import os
import sys

os.chdir({folder!r})
sys.path[:0] = {path!r}

from naiad.convert.step_program import run_step

run_step(
    {function!r},
    {arguments},
)
'''


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a step.

    Attributes:
        value: what its function returned; of a step that was ended, what it had written until then.
        failure: why it failed; None when it did not.
        peak_bytes: resident memory of the step's processes at its greatest, as it was seen.
        folder: with ``reproduce.py`` and ``log.txt``.
        frameworks: those that the step imported.
    """

    name: str
    folder: Path
    value: Any = None
    failure: StepFailure | None = None
    seconds: float = 0.0
    peak_bytes: int = 0
    frameworks: tuple[str, ...] = field(default=())

    @property
    def script(self) -> Path:
        """Runs the step again."""
        return self.folder / "reproduce.py"


def run_step_process(
    name: str, function: str, arguments: Mapping[str, Any], folder: Path, limits: Limits
) -> StepResult:
    """Run one step to its end, or end it at a limit. Never raises for what the step does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULT).unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
        _write_script(name, function, arguments, folder)
        if free < limits.disk_bytes:
            return StepResult(name, folder, failure=_no_room(folder, free, limits))
        return _watched(name, folder, limits)
    except OSError as error:
        advice = f"make room on the disk of {folder}, or use another folder (--work)"
        return StepResult(name, folder, failure=StepFailure(f"the step could not start: {error}", "", advice))


def _write_script(name: str, function: str, arguments: Mapping[str, Any], folder: Path) -> None:
    rows = "".join(f"        {key!r}: {value!r},\n" for key, value in arguments.items())
    script = folder / "reproduce.py"
    # A model beside the user's own modules is imported as the user's own Python would.
    path = [entry for entry in sys.path if entry]
    text = _SCRIPT.format(
        name=name,
        python=sys.executable,
        script=script,
        folder=str(folder),
        path=path,
        function=function,
        arguments=f"{{\n{rows}    }}",
    )
    script.write_text(text, encoding="utf-8")


def _watched(name: str, folder: Path, limits: Limits) -> StepResult:
    began = time.monotonic()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_MODULE_LOADING": "LAZY"}
    # As in the server. The source is measured so too, or its formats would gain on other work rather than on it.
    let_openmp_sleep(environment)
    with (folder / _LOG).open("wb") as log:
        command = [sys.executable, "-W", "ignore", str(folder / "reproduce.py")]
        child = GroupedProcess(command, stdout=log.fileno(), stderr=log.fileno(), env=environment, cwd=folder)
    peak, ended = 0, ""
    try:
        while child.poll() is None:
            peak = max(peak, _resident(child.pid))
            if limits.memory_bytes and peak > limits.memory_bytes:
                ended = f"it used {peak >> 20} MiB of memory, more than the {limits.memory_bytes >> 20} MiB allowed"
            elif time.monotonic() - began > limits.time_s:
                ended = f"it ran for more than {limits.time_s:g} s"
            if ended:
                child.kill()
                # A process that the kernel still holds, on a machine with too much to do, costs its own step alone.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_END_S)
                break
            time.sleep(_POLL_S)
    finally:
        child.kill()
    return _result(name, folder, child.returncode or 0, ended, time.monotonic() - began, peak)


def _result(name: str, folder: Path, code: int, ended: str, seconds: float, peak: int) -> StepResult:
    try:
        written: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        written = {}
    failure = StepFailure(**written["failure"]) if written.get("failure") else None
    if ended:
        is_time = "memory" not in ended
        option = "--time-limit" if is_time else "--memory-limit"
        # Without the first step there are no formats to leave out.
        instead = "see what the samples or the model wait for" if name == "describe" else "leave this format out"
        advice = f"raise {option}, or {instead}"
        failure = StepFailure(f"the step was ended: {ended}", "", advice, is_time_limit=is_time)
    elif failure is None and code:
        failure = StepFailure(_ending(code), "", f"{folder / _LOG} has its last words")
    elif failure is None and not written:
        failure = StepFailure("the step wrote no result", "", f"make room on the disk of {folder}")
    return StepResult(
        name,
        folder,
        written.get("value"),
        failure,
        seconds,
        max(peak, int(written.get("peak_bytes", 0))),
        tuple(written.get("frameworks", ())),
    )


def _ending(code: int) -> str:
    if code < 0:
        return f"the step's process was ended by signal {-code}" + (" (out of memory?)" if code == -9 else "")
    return f"the step's process ended with exit code {code} and no result"


def _resident(pid: int) -> int:
    """Resident memory of a process and of those that it started, in bytes."""
    try:
        parent = psutil.Process(pid)
        processes = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def _no_room(folder: Path, free: int, limits: Limits) -> StepFailure:
    return StepFailure(
        f"{folder} has {free >> 20} MiB free, and a step needs {limits.disk_bytes >> 20} MiB",
        "",
        "make room there, or use another folder (--work)",
    )
