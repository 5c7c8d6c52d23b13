"""Ensembles under a budget for memory that does not hold all members: none is lost that could be loaded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from pathlib import Path

import pytest

from lifecycle.memory.test_budget import GB, SLOW, infer, ready, sized
from naiad.errors import NaiadError
from naiad.lifecycle.memory.budget import MemorySettings
from support.config_texts import parameter
from support.event_loops import WAIT_S, run, until
from support.explicit_manager import CONFIG, House, house
from support.served_ensembles import step

BUDGET = MemorySettings(budget_bytes=100 * GB, demand_s=20)
LATE = parameter("creation_delay_sec", 0.02)


def made_of(*members: str) -> str:
    """The configuration of an ensemble whose steps run one after the other."""
    names = ["INPUT0", *(f"t{place}" for place in range(1, len(members))), "OUTPUT0"]
    steps = [
        step(member, {"INPUT0": names[place]}, {"OUTPUT0": names[place + 1]}) for place, member in enumerate(members)
    ]
    kinds = ("input", "output")
    tensors = [f'{kind} [ {{ name: "{kind.upper()}0" data_type: TYPE_FP32 dims: [ 1 ] }} ]' for kind in kinds]
    return f"""platform: "ensemble" max_batch_size: 4 {" ".join(tensors)}
        ensemble_scheduling {{ step [ {", ".join(steps)} ] }}"""


def write(found: House, sizes: dict[str, int], ensembles: dict[str, tuple[str, ...]], more: str = "") -> None:
    for name, size in sizes.items():
        found.write(name, sized(size, more))
    for name, members in ensembles.items():
        found.write(name, made_of(*members))
    found.manager.names.known = frozenset((*sizes, *ensembles))


def test_members_stay_until_all_of_them_are_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=BUDGET) as found:
            write(found, dict.fromkeys("abc", 40), {"ab": ("a", "b"), "ac": ("a", "c"), "bc": ("b", "c")})
            for name in ("ab", "ac", "bc", "ab", "bc", "ac"):
                # The member that the ensemble has already was unused for longer than the one that it does not need.
                for other in set("abc") - set(name):
                    if other in ready(found):
                        await asyncio.sleep(0.002)
                        await infer(found, other, 1.0)
                await found.manager.load_model(name)
                assert {*name, name} <= ready(found)
                assert found.manager.memory.used_bytes() <= 100 * GB

    run(scenario())


@pytest.mark.slow
def test_storms_on_ensembles_that_share_members_are_answered_in_full(tmp_path: Path) -> None:
    """Four servers beside each other, since most of a storm is waiting."""

    async def scenario() -> None:
        await asyncio.gather(*(storm(tmp_path / str(seed), random.Random(seed)) for seed in range(4)))

    run(scenario())


async def storm(folder: Path, chance: random.Random) -> None:
    sizes = {"a": 40, "b": 40, "c": 40, "small": 10, "large": 90}
    ensembles = {
        "ab": ("a", "b"),
        "bc": ("b", "c"),
        "aca": ("a", "c", "a"),
        "inner": ("ab", "small"),
        "twice": ("small", "bc", "small"),
    }

    async def ask(found: House, names: Collection[str], count: int) -> None:
        for number in range(count):
            await infer(found, chance.choice(sorted(names)), float(number))
            await asyncio.sleep(chance.choice((0, 0, 0.01)))

    folder.mkdir()
    async with house(folder, memory=BUDGET) as found:
        write(found, sizes, ensembles, SLOW.removeprefix(CONFIG) + LATE)
        work = [ask(found, ensembles, 4) for _ in range(4)]
        work += [ask(found, [name], 3) for name in (*sizes, *ensembles)]
        chance.shuffle(work)
        await asyncio.wait_for(asyncio.gather(*work), 6 * WAIT_S)
        assert found.engine.demand is not None
        assert found.engine.demand.waiting == 0
        assert found.manager.memory.used_bytes() <= 100 * GB


def test_members_that_do_not_fit_together_are_refused_soon_and_hold_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=BUDGET) as found:
            write(found, dict.fromkeys("abc", 40), {"abc": ("a", "b", "c"), "ab": ("a", "b")})
            with pytest.raises(NaiadError, match=r"depends on 'c' .*|there is no room for model 'c'"):
                await asyncio.wait_for(found.manager.load_model("abc"), WAIT_S)
            assert "abc" not in ready(found)
            await found.manager.load_model("c")
            assert "c" in ready(found)
            assert found.manager.memory.used_bytes() <= 100 * GB

    run(scenario())


@pytest.mark.slow
def test_a_large_load_that_came_first_does_not_stand_in_the_way_of_what_it_waits_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=BUDGET) as found:
            write(found, {"a": 40, "b": 40, "large": 90}, {"ab": ("a", "b")}, parameter("creation_delay_sec", 0.3))
            loading = asyncio.ensure_future(infer(found, "ab", 1.0))
            await until(lambda: "a" in ready(found))
            # It waits for the memory of 'a', which stays for the ensemble, which needs 'b'.
            others = [asyncio.ensure_future(infer(found, name, 1.0)) for name in ("large", "b")]
            await asyncio.wait_for(asyncio.gather(loading, *others), WAIT_S)

    run(scenario())


def test_one_that_waits_for_its_turn_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with house(tmp_path, memory=MemorySettings(budget_bytes=100 * GB)) as found:
            write(found, {"a": 60, "b": 60}, {"ab": ("a", "b")}, parameter("creation_delay_sec", 0.3))
            write(found, {"c": 10}, {"c1": ("c",)})
            failing = asyncio.ensure_future(found.manager.load_model("ab"))
            while not found.manager._ensembles.member_leases.holds("a"):
                await asyncio.sleep(0.001)
            waiting = asyncio.ensure_future(found.manager.load_model("c1"))
            with pytest.raises(NaiadError, match=r"depends on 'b' .*|there is no room for model 'b'"):
                await asyncio.wait_for(failing, WAIT_S)
            await asyncio.wait_for(waiting, WAIT_S)
            assert {"c", "c1"} <= ready(found)

    run(scenario())
