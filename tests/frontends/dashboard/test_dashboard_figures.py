"""The figures of models, and that nothing is noted for them once nobody looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.frontends.dashboard.changes import RowChanges, without_secrets
from naiad.frontends.dashboard.model_figures import VersionFigures, rounded
from naiad.testing import write_model
from support.http_application import House, Peer, identity_config, play

INLINE = identity_config(("0", "TYPE_FP32", "[ 1 ]"))
BATCHED = identity_config(("0", "TYPE_FP32", "[ 1 ]"), more="max_batch_size: 8 dynamic_batching { }")


def request(*shape: int) -> dict[str, object]:
    return {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": shape, "data": [1]}]}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "inline", INLINE)
    write_model(tmp_path, "batched", BATCHED)
    return tmp_path


def test_figures_since_the_last_look(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        figures = VersionFigures(house.engine)
        idle = {"r": 0, "e": 0, "p": None, "b": None, "d": None, "u": 0}
        before = figures.read()
        assert {name: before["inline", "1"][name] for name in idle} == idle
        for _ in range(40):
            await peer.infer("inline", request(1))
            await peer.infer("batched", request(1, 1))
        after = figures.read()
        for model in ("inline", "batched"):
            row = after[model, "1"]
            assert row["r"] > 0 and row["b"] == 1
            assert 0 < row["p"][0] <= row["p"][1] < 20_000
        # Nothing ran since.
        again = figures.read()
        assert {name: again["batched", "1"][name] for name in idle} == idle

    play(repository, scenario)


def test_latencies_are_noted_only_while_somebody_looks(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        def noted() -> list[bool]:
            return [model.statistics.latencies is not None for model in house.engine.loaded_models()]

        figures = VersionFigures(house.engine)
        assert noted() == [False, False]
        figures.read()
        assert noted() == [True, True]
        figures.forget()
        assert noted() == [False, False]
        assert (await peer.infer("inline", request(1))).status == 200

    play(repository, scenario)


def test_only_changes_are_sent() -> None:
    changes = RowChanges()
    first = {("a", "1"): {"s": "READY", "w": "", "r": 0}, ("b", "1"): {"s": "READY", "w": "", "r": 0}}
    assert changes.update(first) == {
        "set": {
            "1": {"n": "a", "v": "1", "s": "READY", "w": "", "r": 0},
            "2": {"n": "b", "v": "1", "s": "READY", "w": "", "r": 0},
        },
        "gone": [],
    }
    assert changes.update({key: dict(row) for key, row in first.items()}) == {"set": {}, "gone": []}
    busy = {("a", "1"): {"s": "READY", "w": "", "r": 7}, ("b", "1"): {"s": "UNAVAILABLE", "w": "unloaded"}}
    assert changes.update(busy) == {
        "set": {"1": {"r": 7}, "2": {"s": "UNAVAILABLE", "w": "unloaded", "r": None}},
        "gone": [],
    }
    assert changes.update({("a", "1"): busy["a", "1"]}) == {"set": {}, "gone": [2]}
    assert changes.all()["set"] == {"1": {"n": "a", "v": "1", "s": "READY", "w": "", "r": 7}}


def test_reasons_are_left_out_for_those_who_may_not_read_them() -> None:
    found = {"set": {"1": {"s": "UNAVAILABLE", "w": "/secret/path"}, "2": {"w": "more"}}, "gone": [3], "server": {}}
    assert without_secrets(found) == {"set": {"1": {"s": "UNAVAILABLE"}}, "gone": [3], "server": {}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (1234.5, 1230), (0.012345, 0.0123), (99.96, 100), (float("nan"), 0), (float("inf"), 0), (1e9, 1e9)],
)
def test_three_significant_digits(value: float, expected: float) -> None:
    assert rounded(value) == expected
