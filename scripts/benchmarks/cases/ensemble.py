"""The cost of a step in an ensemble of two small Python models, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from .. import python_contest, python_models
from ..figures import Figure
from ..settings import Settings

WANTED = 2.0
CALLERS = (1, 8, 32)
VALUES = 16


def measure(settings: Settings) -> Iterator[Figure]:
    """``(x + 1) * 2`` over HTTP and gRPC."""
    repository = settings.work / "ensemble"
    python_models.add_python_ensemble(repository, "ensemble")
    with python_contest.contenders(settings, repository) as servers:
        contest = python_contest.Contest(
            "ensemble", "ensemble", VALUES, lambda x: (x + 1) * 2, dict.fromkeys(CALLERS, WANTED), is_pinned=True
        )
        yield from python_contest.measure(settings, servers, contest)
