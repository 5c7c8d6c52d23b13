"""A model with its response cache in a real Redis, where what Redis does meets what callers do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from naiad.cache.redis import RedisCache
from naiad.config.spec import BatchingSpec
from naiad.errors import CancelledError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.model.remote_cache import SharedCache
from naiad.options.redis_config import RedisSettings
from support.event_loops import WAIT_S, run, until
from support.loaded_models import Caller, FunctionBackend, negate, spec
from support.redis_server import needs_redis, running_redis

pytestmark = needs_redis


@pytest.mark.parametrize("in_order", [False, True])
def test_who_gives_up_while_it_is_looked_up_is_answered_and_the_others_keep_their_order(
    tmp_path: Path, in_order: bool
) -> None:
    async def test() -> None:
        cache = RedisCache(RedisSettings("127.0.0.1", redis.port, socket_timeout_ms=20_000))
        cached = replace(spec(batching=BatchingSpec((8,), 0, in_order)), is_cached=True)
        loop = asyncio.get_running_loop()
        model = LoadedModel(cached, 1, FunctionBackend(lambda index: negate), loop, cache=SharedCache(cache, "1"))
        model.start()
        try:
            await until(lambda: cache.is_up)
            redis.hold()
            order: list[Caller] = []
            callers = [Caller(float(n), order=order) for n in range(4)]
            for caller in callers:
                model.submit(caller)
            model.cancel(callers[1])
            with pytest.raises(CancelledError):
                await callers[1].answer()
            redis.go_on()
            for n in (0, 2, 3):
                assert await callers[n].answer() == [-n]
            assert order == [callers[n] for n in (1, 0, 2, 3)]
            assert (model.budget.requests, model.in_flight) == (0, 0)
        finally:
            assert model.close(WAIT_S)
            model.detach()
            cache.close()

    with running_redis(tmp_path) as redis:
        run(test())
