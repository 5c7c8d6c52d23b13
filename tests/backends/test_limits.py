"""Limits of models in processes, as they are written."""

from __future__ import annotations

import pytest

from naiad.backends.shared.worker_limits import WorkerLimits, read_limits
from naiad.errors import ModelLoadError

TIME, MEMORY = "execute-timeout-seconds", "memory-limit-mb"


@pytest.mark.parametrize(
    ("parameters", "settings", "found"),
    [
        ({}, {}, WorkerLimits()),
        ({TIME: "2.5"}, {}, WorkerLimits(2.5, 0)),
        ({}, {TIME: "3", MEMORY: "10"}, WorkerLimits(3.0, 10 << 20)),
        ({TIME: "1", MEMORY: "20"}, {TIME: "3", MEMORY: "10"}, WorkerLimits(1.0, 20 << 20)),
        ({TIME: "0", MEMORY: "0"}, {TIME: "3", MEMORY: "10"}, WorkerLimits()),
    ],
)
def test_the_model_s_own_wins(parameters: dict[str, str], settings: dict[str, str], found: WorkerLimits) -> None:
    assert read_limits("python", "m", parameters, settings) == found


@pytest.mark.parametrize(
    ("parameters", "settings", "text"),
    [
        (
            {TIME: "soon"},
            {},
            "model 'm': parameter 'execute-timeout-seconds' is \"soon\", expected a number of seconds",
        ),
        ({TIME: "-1"}, {}, "expected a number of seconds, 0 for no limit"),
        ({TIME: "nan"}, {}, "expected a number of seconds"),
        ({TIME: "inf"}, {}, "expected a number of seconds"),
        ({TIME: ""}, {}, "expected a number of seconds"),
        ({}, {TIME: "x"}, '--backend-config=python,execute-timeout-seconds is "x"'),
        (
            {MEMORY: "1.5"},
            {},
            "model 'm': parameter 'memory-limit-mb' is \"1.5\", expected a whole number of megabytes",
        ),
        ({MEMORY: "9" * 30}, {}, "expected a whole number of megabytes"),
        ({}, {MEMORY: "-5"}, '--backend-config=python,memory-limit-mb is "-5"'),
    ],
)
def test_what_is_no_limit_is_refused(parameters: dict[str, str], settings: dict[str, str], text: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read_limits("python", "m", parameters, settings)
    assert text in str(caught.value)
