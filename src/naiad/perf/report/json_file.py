"""The file of ``--json``: everything that a run found, with what is needed to compare it with other runs.

Names and units are those of ``naiad.perf.results``; docs/perf.md describes the file. ``figures`` of a level
are there for readers who want numbers only: reading the file back takes the counts.
"""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import orjson

from naiad.errors import NaiadError
from naiad.perf.report.figures import latency_parts, reported_percentiles
from naiad.perf.report.findings import largest_contributor
from naiad.perf.report.plain_values import PlainValueError, from_plain, to_plain
from naiad.perf.results import LevelResult, Report
from naiad.perf.settings import PerfSettings
from naiad.version import __version__

SCHEMA: Final = "naiad-perf-report"
SCHEMA_VERSION: Final = 1
"""Raised when a reader of the earlier form would read wrong figures; new names alone do not raise it."""

_TAIL: Final = (99.9, 99.99)


class ReportFileError(NaiadError):
    """A file that is no report of ``naiad perf``, or one that cannot be read."""


def write_report(report: Report, settings: PerfSettings, file: Path) -> None:
    """Write a report; its records are not in it, they are for the profile export.

    Raises:
        OSError: the file cannot be written.
    """
    file.write_bytes(report_json(report, settings))


def report_json(report: Report, settings: PerfSettings) -> bytes:
    """The text of the file."""
    found = {field.name: getattr(report, field.name) for field in fields(report) if field.name != "records"}
    plain = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "naiad_version": __version__,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": settings.load.seed,
        **to_plain({name: value for name, value in found.items() if name != "levels"}),
        "settings": to_plain(settings),
        "levels": [
            {"figures": _figures(result, settings.measure.percentile), **to_plain(result)} for result in report.levels
        ],
    }
    return orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE)


def read_report(file: Path) -> Report:
    """Read a report back.

    Raises:
        ReportFileError: there is no such file, it is no report, or one that only a newer Naiad reads.
    """
    try:
        plain = orjson.loads(file.read_bytes())
    except OSError as error:
        raise ReportFileError(f"cannot read '{file}': {error.strerror or error}") from None
    except orjson.JSONDecodeError as error:
        raise ReportFileError(f"'{file}' is no JSON: {error}; expected a file of naiad perf --json") from None
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        hint = "; it looks like a profile export" if isinstance(plain, dict) and "experiments" in plain else ""
        raise ReportFileError(f"'{file}' is no report{hint}; expected a file of naiad perf --json")
    version = plain.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise ReportFileError(
            f"'{file}' has version {version!r} of the report's schema, written by naiad {plain.get('naiad_version')};"
            f" this naiad {__version__} reads up to version {SCHEMA_VERSION}: use the newer one"
        )
    try:
        report: Report = from_plain(Report, plain, "")
    except PlainValueError as error:
        raise ReportFileError(f"'{file}': {error}; the file is damaged or was edited") from None
    return report


def _figures(result: LevelResult, percentile: int | None) -> dict[str, Any]:
    """Rates a second and microseconds of a level, worked out."""
    window = result.merged
    percents = [*reported_percentiles(percentile), *_TAIL]
    largest = largest_contributor(window)
    return {
        "inference_rate": result.inference_rate,
        "request_rate": window.request_rate,
        "latency_us": {
            "avg": window.latency.mean / 1e3,
            "deviation": window.latency.deviation / 1e3,
            "least": window.latency.least / 1e3,
            "greatest": window.latency.greatest / 1e3,
            **{f"p{percent:g}": window.latency.percentile(percent) / 1e3 for percent in percents},
        },
        "parts_us": to_plain(latency_parts(window)),
        "largest_part": None if largest is None else {"name": largest.name, "share": largest.share},
        "errors": sum(window.errors.values()),
    }
