"""Loads that are tried again."""

from __future__ import annotations

import asyncio

import pytest

from naiad.errors import ModelLoadError
from naiad.lifecycle.loading.retry import with_retries
from support.event_loops import run


def test_one_that_nobody_wants_any_more_is_not_tried_again() -> None:
    tries: list[float] = []

    async def load() -> None:
        tries.append(asyncio.get_running_loop().time())
        raise ModelLoadError("broken")

    async def test() -> None:
        is_wanted = [True]

        def asked() -> bool:
            # Wanted when it fails, and not any more after the pause.
            return is_wanted.pop() if is_wanted else False

        with pytest.raises(ModelLoadError, match="broken"):
            await with_retries("'m' version 1", 3, load, asked)
        assert len(tries) == 1

    run(test())
