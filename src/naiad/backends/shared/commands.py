"""Running other programs while a model loads: to their end, within a time limit, with their last lines in the error."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from naiad.errors import ModelLoadError
from naiad.processes.process_group import GroupedProcess

LAST_LINES = 12
_OUTPUT_BYTES = 1 << 16


def run_command(
    command: Sequence[str | Path],
    what: str,
    timeout_s: float,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> str:
    """Run a program without input; what it wrote, standard output and standard error together.

    Args:
        command: the program and its arguments.
        what: the beginning of error texts, such as "the environment cannot be made".
        timeout_s: the seconds after which the program is killed.
        env: its whole environment, None for the server's.
        pass_fds: descriptors that it keeps open, such as that of a lock.

    Raises:
        ModelLoadError: it cannot be started, failed or took too long; the text ends with its last lines.
    """
    # Into a file: a pipe would stay open as long as any process that the program has started.
    with tempfile.TemporaryFile() as output:
        try:
            # A group, so that the time limit ends what the program has started as well.
            process = GroupedProcess(
                [str(part) for part in command],
                stdout=output.fileno(),
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                pass_fds=pass_fds,
            )
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ModelLoadError(f"{what}: not done after {timeout_s:g} s{_last_words(_text(output))}") from None
        except OSError as error:
            raise ModelLoadError(f"{what}: {command[0]} cannot be started: {error.strerror or error}") from None
        text = _text(output)
    if code:
        raise ModelLoadError(f"{what}: {Path(command[0]).name} ended with exit code {code}{_last_words(text)}")
    return text


def _text(output: BinaryIO) -> str:
    size = output.seek(0, 2)
    output.seek(max(0, size - _OUTPUT_BYTES))
    return output.read().decode(errors="replace")


def _last_words(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return ":\n" + "\n".join(lines[-LAST_LINES:]) if lines else ", without a word"
