"""The file of ``--profile-export-file``: every request with its times, in the form of the reference's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from naiad.perf.results import LevelResult, LoadLevel, LoadMode, Report, RequestRecord
from naiad.version import __version__

_CHUNK = 4096
"""Requests that are encoded before they are written: a run has millions of them."""


_APART_NS: Final = 1_000
"""Between responses that arrived together: about what reading one more of them takes."""
_KINDS: Final = {"in_process": "triton_c_api"}
"""What the reference calls services that have another name here."""
_IN_FLIGHT: Final = (LoadMode.CONCURRENCY, LoadMode.PERIODIC_CONCURRENCY)
_NO_RATE: Final = (LoadMode.FIXED_SCHEDULE, LoadMode.SESSION_CONCURRENCY)
"""Loads whose rate follows from the data."""


def write_profile_export(report: Report, file: Path, endpoint: str = "") -> None:
    """Write the successful requests of each level, in the order of their sending, and its windows' boundaries.

    Args:
        endpoint: the path of an OpenAI service.

    Raises:
        OSError: the file cannot be written.
    """
    by_level: dict[int, list[RequestRecord]] = {}
    for record in report.records:
        if record.is_success:
            by_level.setdefault(record.level, []).append(record)
    with file.open("wb") as out:
        out.write(b'{"experiments":[')
        for number, result in enumerate(report.levels):
            out.write(b"," if number else b"")
            records = sorted(by_level.get(number, ()), key=lambda record: record.timestamp_ns)
            out.write(b'{"experiment":' + orjson.dumps(_experiment(result.level)) + b',"requests":[')
            for chunk in _chunks(records):
                out.write(chunk)
            out.write(b'],"window_boundaries":' + orjson.dumps(_boundaries(result)) + b"}")
        kind = _KINDS.get(report.service_kind, report.service_kind)
        tail = {"version": __version__, "service_kind": kind, "endpoint": endpoint}
        out.write(b"]," + orjson.dumps(tail)[1:])


def _experiment(level: LoadLevel) -> dict[str, Any]:
    """The load of a level, by which readers look it up: they know two modes, and write rates as floats."""
    if level.mode in _IN_FLIGHT:
        return {"mode": "concurrency", "value": int(level.value)}
    return {"mode": "request_rate", "value": 0.0 if level.mode in _NO_RATE else float(level.value)}


def _boundaries(result: LevelResult) -> list[int]:
    windows = result.windows or [result.merged]
    return sorted({moment for window in windows for moment in (window.began_ns, window.ended_ns)})


def _chunks(records: list[RequestRecord]) -> Iterator[bytes]:
    for start in range(0, len(records), _CHUNK):
        encoded = [
            orjson.dumps(_request(record), option=orjson.OPT_SERIALIZE_NUMPY)
            for record in records[start : start + _CHUNK]
        ]
        yield (b"," if start else b"") + b",".join(encoded)


def _request(record: RequestRecord) -> dict[str, Any]:
    sequence = {} if record.sequence_id is None else {"sequence_id": record.sequence_id}
    return {
        "timestamp": record.timestamp_ns,
        **sequence,
        "request_inputs": _tensors(record.inputs),
        "response_timestamps": _apart(record.response_timestamps_ns),
        "response_outputs": [_tensors(outputs) for outputs in record.outputs],
    }


def _apart(moments: Iterable[int]) -> list[int]:
    """The times of responses, of which no two are the same: GenAI-Perf divides by the time between them."""
    found: list[int] = []
    for moment in moments:
        found.append(moment if not found or moment > found[-1] else found[-1] + _APART_NS)
    return found


def _tensors(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: _value(value) for name, value in values.items()}


def _value(value: object) -> Any:
    """A tensor as the reference writes it: a single element as itself, more of them as a flat list."""
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, list | tuple):
        elements = [_value(element) for element in value]
        return elements[0] if len(elements) == 1 else elements
    return value.decode(errors="replace") if isinstance(value, bytes) else value
