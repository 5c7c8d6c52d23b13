"""A load on a model by `naiad perf` as a library: options as on its command line, the only level of its report."""

from __future__ import annotations

from naiad.perf.input.error import PerfInputError
from naiad.perf.options import parse_perf
from naiad.perf.results import Window
from naiad.perf.run import run_perf
from naiad.perf.target.protocol import TargetError

from .figures import CaseError
from .servers import Server


def measure_model(server: Server, model: str, *options: object) -> Window:
    """What came of the requests at the port of ``server``, with the processor time of its process tree.

    Raises:
        CaseError: the server cannot be measured.
    """
    words = ("-m", model, "-u", f"127.0.0.1:{server.port}", "--server-pid", server.pid, *options)
    try:
        (level,) = run_perf(parse_perf([str(word) for word in words], {})).levels
    except (TargetError, PerfInputError) as error:
        raise CaseError(f"{server.name}: {error}") from None
    return level.merged


def refuse_errors(found: Window, what: str) -> None:
    """Nothing went wrong.

    Raises:
        CaseError: a request did, or there was none.
    """
    if found.errors or not found.requests:
        problems = "; ".join(f"{count} x {kind}: {cause}" for (kind, cause), count in found.errors.items())
        raise CaseError(f"{what}: {found.requests} requests, failures: {problems or 'none'}")
