"""The cost of a request through the server and a worker, small and large: a Python model that returns its input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import python_models
from ..figures import Bound, Figure
from ..perf_analyzer import Question
from ..python_contest import Contest, contenders, figures, measure
from ..python_load import compare, load_tool
from ..settings import Settings

MODEL = "python_identity"
IMAGE = 3 * 224 * 224
TEN_MB = 10 * 1024 * 1024 // 4


def small(settings: Settings) -> Iterator[Figure]:
    """16 floats, batched."""
    return _measure(settings, "python_identity", 16, {1: 1.2, 8: 2.0, 16: 2.0, 32: 2.0}, True)


def unbatched(settings: Settings) -> Iterator[Figure]:
    """16 floats, one request after the other."""
    title = "python_unbatched"
    repository = settings.work / title
    python_models.add_python_identity(repository, MODEL, batching="")
    with contenders(settings, repository) as servers:
        wanted = {1: 1.2, 4: 2.0, 16: 2.0}
        yield from measure(settings, servers, Contest(title, MODEL, 16, lambda x: x, wanted, is_pinned=True))


def in_json(settings: Settings) -> Iterator[Figure]:
    """16 and 1,000 floats as JSON numbers, over HTTP."""
    title, tool = "python_json", load_tool(settings)
    repository = settings.work / title
    python_models.add_python_identity(repository, MODEL)
    with contenders(settings, repository) as servers:
        for values in (16, 1000):
            for callers in (1, 16):
                question = Question(MODEL, values, "http", in_json=True)
                samples = compare(settings, tool, servers, question, callers)
                yield from figures(f"{title}_{values}_{callers}", tool.name, samples, saved=Bound(">=", 2.0))


def image(settings: Settings) -> Iterator[Figure]:
    """600 KB each way."""
    return _measure(settings, "python_600kb", IMAGE, {1: 3.0, 4: 3.0, 16: 3.0}, True)


def image_in_regions(settings: Settings) -> Iterator[Figure]:
    """600 KB each way through system shared memory."""
    title = "python_600kb_shm"
    repository = settings.work / title
    python_models.add_python_identity(repository, MODEL)
    with contenders(settings, repository, ("--allow-client-shm=true",)) as servers:
        contest = Contest(title, MODEL, IMAGE, lambda x: x, {1: 2.0, 16: 2.0}, in_regions=True, is_pinned=True)
        yield from measure(settings, servers, contest)


def ten_megabytes(settings: Settings) -> Iterator[Figure]:
    """10 MB each way."""
    return _measure(settings, "python_10mb", TEN_MB, {1: 3.0, 4: 3.0, 16: 3.0}, True)


def _measure(
    settings: Settings, title: str, values: int, wanted: Mapping[int, float], is_pinned: bool = False
) -> Iterator[Figure]:
    repository = settings.work / title
    python_models.add_python_identity(repository, MODEL)
    with contenders(settings, repository) as servers:
        yield from measure(settings, servers, Contest(title, MODEL, values, lambda x: x, wanted, is_pinned=is_pinned))
