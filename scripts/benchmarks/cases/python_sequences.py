"""The cost of sequence batching, direct and oldest, with a Python model."""

from __future__ import annotations

from collections.abc import Iterator

from .. import python_models
from ..figures import Bound, Figure
from ..perf_analyzer import Question
from ..python_contest import contenders, figures
from ..python_load import compare, load_tool
from ..settings import Settings

LENGTH = 20
CALLERS = (1, 8)
WANTED = 1.5


def measure(settings: Settings) -> Iterator[Figure]:
    """Sequences of 20 requests, one after the other from each caller."""
    tool = load_tool(settings)
    repository = settings.work / "python_sequences"
    python_models.add_totals(repository)
    with contenders(settings, repository) as servers:
        for model in ("sequence_direct", "sequence_oldest"):
            question = Question(model, 1, "http", sequence=LENGTH)
            for callers in CALLERS:
                samples = compare(settings, tool, servers, question, callers)
                yield from figures(f"{model}_http_{callers}", tool.name, samples, Bound(">=", WANTED))
