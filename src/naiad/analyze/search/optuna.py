"""The search of the optuna package: a tree-structured Parzen estimator over the dimensions of the space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from naiad.analyze.errors import AnalyzeError
from naiad.analyze.search.search import MeasurementRequest, Search, Utility
from naiad.analyze.search.work import WorkLeft, trials_left
from naiad.analyze.space.space import Space
from naiad.extras import how_to_install

OPTUNA_SCALE = 2


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """How many trials there are: percentages of the space, unless numbers are given."""

    least_percent: int = 5
    most_percent: int = 10
    least: int | None = None
    most: int | None = None
    most_idle: int = 10

    def least_of(self, size: int) -> int:
        """The fewest trials."""
        return self.least or math.ceil(size * self.least_percent / 100)

    def most_of(self, size: int) -> int:
        """The most trials."""
        return max(self.most or math.ceil(size * self.most_percent / 100), self.least_of(size))


def load_optuna() -> Any:
    """The package.

    Raises:
        AnalyzeError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise AnalyzeError(
            "run_config_search_mode optuna needs the package optuna, which is not installed; leave the key out for "
            f"Naiad's own search, or run: {how_to_install('optuna')}"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def optuna_search(space: Space, utility: Utility, limits: TrialLimits, seed: int) -> Search:
    """Let optuna choose trials until they bring nothing for a while.

    Raises:
        AnalyzeError: the package is not installed.
    """
    optuna = load_optuna()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    size = space.size
    least, most = min(limits.least_of(size), size), min(limits.most_of(size), size)
    best, since = float("-inf"), 0
    seen: dict[tuple[int, ...], float] = {}
    for number in range(most):
        trial = study.ask()
        point = tuple(
            trial.suggest_int(f"{place}", 0, len(dimension.values) - 1)
            if dimension.is_ordered
            else trial.suggest_categorical(f"{place}", list(range(len(dimension.values))))
            for place, dimension in enumerate(space.dimensions)
        )
        if not space.is_possible(point):
            seen[point] = float("-inf")
        if point not in seen:
            # Points that are chosen again are not measured again.
            new = (len(seen) + 1) / (number + 1)
            left = WorkLeft.of(new * trials_left(number + 1, since, least, most, limits.most_idle), OPTUNA_SCALE)
            measured = yield MeasurementRequest(space.trial(point), OPTUNA_SCALE, left, "optuna")
            value = utility(measured)
            seen[point] = float("-inf") if value is None else value
        failed = seen[point] == float("-inf")
        study.tell(trial, None if failed else seen[point], optuna.trial.TrialState.FAIL if failed else None)
        since = 0 if seen[point] > best else since + 1
        best = max(best, seen[point])
        if number + 1 >= least and since >= limits.most_idle:
            return
