"""The data that a user gives, in directories and JSON files, as streams of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from naiad.perf.input.directory import read_directory
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.json_file import inconsistent, read_file
from naiad.perf.input.json_step import read_step
from naiad.perf.input.location import Location
from naiad.perf.input.shapes import Shapes
from naiad.perf.steps import ModelDescription, Step


def given_rows(paths: Sequence[Path], model: ModelDescription, shapes: Shapes) -> list[list[Step]]:
    """The streams of all paths, one behind the other. Steps have one row and no batch dimension.

    Files with steps, and directories, make one stream together; files with lists of steps one stream for each list.
    Steps with sessions make one stream for each session.

    Raises:
        PerfInputError: the data cannot be read, or do not fit the model.
    """
    streams: list[list[Step]] = []
    kinds = set()
    for path in paths:
        if path.is_dir():
            kinds.add(False)
            found = [[read_directory(path, model, shapes, _next(path, streams))]]
        else:
            start = _next(path, streams)
            file = read_file(path, stream=len(streams), step=start.step)
            kinds.add(file.is_nested)
            found = [[read_step(step, model, shapes) for step in stream] for stream in file.streams]
        if len(kinds) == 2:
            raise inconsistent(path)
        if True in kinds:
            streams += found
        else:
            streams = [[*(streams[0] if streams else []), *found[0]]]
    steps = [step for stream in streams for step in stream]
    _check_all_or_none("timestamp", [step.timestamp_ms is not None for step in steps])
    _check_all_or_none("session_id", [bool(step.session_id) for step in steps])
    return _sessions(streams, steps)


def _check_all_or_none(name: str, found: Sequence[bool]) -> None:
    if any(found) and not all(found):
        raise PerfInputError(
            f'found "{name}" in {sum(found)} of {len(found)} steps of --input-data, expected it in all or none: the '
            f"first one without is step {found.index(False)}"
        )


def _next(path: Path, streams: Sequence[Sequence[Step]]) -> Location:
    """Where the next step of the only stream comes."""
    return Location(path, 0, len(streams[0]) if streams else 0)


def _sessions(streams: list[list[Step]], steps: Sequence[Step]) -> list[list[Step]]:
    """The steps of each session as a stream of their own, in the order of the sessions' first steps."""
    if not steps or not steps[0].session_id:
        return streams
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(step.session_id, []).append(step)
    return list(found.values())
