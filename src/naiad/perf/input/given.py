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
    return _sessions(streams)


def _next(path: Path, streams: Sequence[Sequence[Step]]) -> Location:
    """Where the next step of the only stream comes."""
    return Location(path, 0, len(streams[0]) if streams else 0)


def _sessions(streams: list[list[Step]]) -> list[list[Step]]:
    """The steps of each session as a stream of their own, in the order of the sessions' first steps."""
    steps = [step for stream in streams for step in stream]
    with_session = sum(bool(step.session_id) for step in steps)
    if not with_session:
        return streams
    if with_session < len(steps):
        raise PerfInputError(
            f'found "session_id" in {with_session} of {len(steps)} steps of --input-data, expected it in all or none'
        )
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(step.session_id, []).append(step)
    return list(found.values())
