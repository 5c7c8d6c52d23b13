"""A Python model of 1000 small numpy steps, where the model is the cost, batched dynamically and not batched."""

from __future__ import annotations

from collections.abc import Iterator

from .. import python_models
from ..figures import Figure
from ..python_contest import Contest, contenders, measure
from ..settings import Settings

WANTED = 0.95
CALLERS = {"python_chain": (1, 4, 16, 32), "python_unbatched": (1, 16)}


def python_chain(settings: Settings) -> Iterator[Figure]:
    """Both models on the same servers."""
    repository = settings.work / "python-chain"
    python_models.add_python_chains(repository)
    with contenders(settings, repository) as servers:
        for model, levels in CALLERS.items():
            contest = Contest(model, model, 1, python_models.chain_by_hand, dict.fromkeys(levels, WANTED))
            yield from measure(settings, servers, contest)
