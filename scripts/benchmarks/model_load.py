"""A load on a model by `naiad perf` as a library: options as on its command line, the only level of its report."""

from __future__ import annotations

from pathlib import Path

from naiad.perf.input.error import PerfInputError
from naiad.perf.options import parse_perf
from naiad.perf.results import Report, RequestRecord, Window
from naiad.perf.run import run_perf
from naiad.perf.target.protocol import TargetError

from .figures import CaseError
from .servers import Server


def measure_model(server: Server, model: str, *options: object) -> Window:
    """What came of the requests at the port of ``server``, with the processor time of its process tree.

    Raises:
        CaseError: the server cannot be measured.
    """
    (level,) = _report(server, model, *options).levels
    return level.merged


def record_requests(server: Server, model: str, export: Path, *options: object) -> tuple[Window, list[RequestRecord]]:
    """The same, and a record of each request; ``export`` is a path for a file that is written on the way.

    Raises:
        CaseError: the server cannot be measured.
    """
    report = _report(server, model, "--profile-export-file", export, *options)
    (level,) = report.levels
    return level.merged, report.records


def _report(server: Server, model: str, *options: object) -> Report:
    words = ("-m", model, "-u", f"127.0.0.1:{server.port}", "--server-pid", server.pid, *options)
    try:
        return run_perf(parse_perf([str(word) for word in words], {}))
    except (TargetError, PerfInputError) as error:
        raise CaseError(f"{server.name}: {error}") from None


def refuse_errors(found: Window, what: str) -> None:
    """Nothing went wrong.

    Raises:
        CaseError: a request did, or there was none.
    """
    if found.errors or not found.requests:
        problems = "; ".join(f"{count} x {kind}: {cause}" for (kind, cause), count in found.errors.items())
        raise CaseError(f"{what}: {found.requests} requests, failures: {problems or 'none'}")
