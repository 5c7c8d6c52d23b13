"""Requests that are still being read when the routes of their model change, or its versions go."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.errors import ServerStoppingError
from support.explicit_manager import CONFIG, House, answered, caller, parameter, play
from support.loaded_models import until

TWO = CONFIG + "version_policy { all {} }" + parameter("route.split", "1:1,2:1")
WITH_SHADOW = CONFIG + "version_policy { all {} }" + parameter("route.split", "1:1") + parameter("route.shadow", "2")


@pytest.mark.parametrize("config", [TWO, WITH_SHADOW], ids=["split", "shadow"])
def test_a_request_that_is_expected_is_answered_by_what_was_there(tmp_path: Path, config: str) -> None:
    async def scenario(found: House) -> None:
        found.write("m", config, (1, 2))
        await found.manager.load_model("m")
        routed, before = found.engine.find("m", None), found.engine.loaded_models()
        for _ in range(2):
            routed.reserve()
        found.engine.routes.change("m", {"split": {"2": 1}, "shadow": None})
        found.write("m", config + parameter("x", 1))
        await found.manager.load_model("m")
        assert found.engine.find("m", None) is not routed
        with pytest.raises(ServerStoppingError):
            routed.submit(caller())
        one = caller()
        routed.submit_reserved(one)
        await answered(one)
        assert [model.in_flight for model in before] == [1, 1], "one is still expected"
        routed.release()
        assert [model.in_flight for model in before] == [0, 0]
        await until(lambda: not found.manager._draining.models)

    play(tmp_path, scenario)


def test_an_unload_waits_for_what_is_expected(tmp_path: Path) -> None:
    async def scenario(found: House) -> None:
        found.write("m", TWO, (1, 2))
        await found.manager.load_model("m")
        routed = found.engine.find("m", None)
        routed.reserve()
        await found.manager.unload_model("m")
        assert {state for state, _ in found.index().values()} == {"UNLOADING"}
        one = caller()
        routed.submit_reserved(one)
        await answered(one)
        await until(lambda: {state for state, _ in found.index().values()} == {"UNAVAILABLE"})

    play(tmp_path, scenario)
