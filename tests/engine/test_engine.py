"""The facade: look-ups, readiness, descriptions and statistics over really loaded models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from naiad.errors import InvalidArgumentError, ModelLoadError, NaiadError, NotFoundError, UnavailableError
from naiad.lifecycle.state.states import ModelState
from naiad.testing import write_model
from naiad.version import __version__
from support import event_loops
from support.event_loops import run
from support.http_application import House, identity_config, load_repository, serving

CONFIG = identity_config(("0", "TYPE_FP32", "[ -1 ]"), ("1", "TYPE_STRING", "[ 1 ]"), more="max_batch_size: 4")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    versions = "version_policy { specific { versions: [ 1, 3 ] } }"
    write_model(tmp_path, "many", CONFIG + versions, versions=(1, 2, 3))
    write_model(tmp_path, "one", identity_config(("0", "TYPE_INT8", "[ 2, -1 ]"), more='platform: ""'))
    return tmp_path


def bad(repository: Path) -> None:
    write_model(repository, "bad", CONFIG.replace("TYPE_FP32", "TYPE_FP32 shape: 3"))
    write_model(repository, "worse", identity_config(("0", "TYPE_FP32", "[ 1 ]")).replace("INPUT0", "", 1))


def play(repository: Path, scenario: Callable[[House], Any], strict: bool = True) -> None:
    async def test(house: House) -> None:
        scenario(house)

    event_loops.play(serving(repository, strict), test)


def refused(call: Callable[[], object]) -> NaiadError:
    with pytest.raises(NaiadError) as caught:
        call()
    return caught.value


# Look-ups


@pytest.mark.parametrize(("version", "found"), [(None, 3), ("", 3), ("1", 1), ("3", 3), ("003", 3)])
def test_find(repository: Path, version: str | None, found: int) -> None:
    def scenario(house: House) -> None:
        model = house.engine.find("many", version)
        assert (model.name, model.version) == ("many", found)

    play(repository, scenario)


@pytest.mark.parametrize(
    ("name", "version", "kind", "text"),
    [
        ("nope", None, NotFoundError, "Request for unknown model: 'nope' is not found"),
        ("nope", "1", NotFoundError, "Request for unknown model: 'nope' is not found"),
        ("many", "2", NotFoundError, "Request for unknown model: 'many' version 2 is not found"),
        ("many", "0", NotFoundError, "Request for unknown model: 'many' version 0 is not found"),
        (
            "many",
            "-1",
            InvalidArgumentError,
            "invalid model version specified '-1' , version should be an integral value > 0",
        ),
        *[
            (
                name,
                text,
                InvalidArgumentError,
                f"failed to get model version from specified version string '{text}' (details: stol), version should "
                "be an integral value > 0",
            )
            for name, text in [
                *[("many", text) for text in ("x", "1.0", "-", "--1", "1-", " 1", "1_0", "٣", "9" * 19, "9" * 5000)],
                ("nope", "x"),
                ("", "x"),
            ]
        ],
    ],
)
def test_what_is_not_found(repository: Path, name: str, version: str | None, kind: type, text: str) -> None:
    def scenario(house: House) -> None:
        for call in (house.engine.find, house.engine.model_metadata, house.engine.model_config):
            error = refused(lambda call=call: call(name, version))
            assert (type(error), str(error)) == (kind, text)

    play(repository, scenario)


def test_versions_that_are_not_ready(repository: Path) -> None:
    def scenario(house: House) -> None:
        entry = house.manager.entries["many"]
        entry.versions[3].become(ModelState.UNLOADING)
        entry.choose_serving()
        assert house.engine.find("many", None).version == 1
        error = refused(lambda: house.engine.find("many", "3"))
        assert isinstance(error, UnavailableError)
        assert str(error) == "Request for unknown model: 'many' version 3 is not at ready state"
        entry.versions[1].become(ModelState.UNLOADING)
        entry.choose_serving()
        error = refused(lambda: house.engine.find("many", None))
        assert isinstance(error, NotFoundError)
        assert str(error) == "Request for unknown model: 'many' has no available versions"
        assert house.engine.loaded_models() == [house.engine.find("one", None)]

    play(repository, scenario)


# Readiness


def test_ready_when_all_is(repository: Path) -> None:
    def scenario(house: House) -> None:
        engine = house.engine
        assert (engine.is_live(), engine.is_ready(), engine.not_ready()) == (True, True, [])
        assert engine.is_model_ready("many", None)
        assert engine.is_model_ready("many", "1")
        assert not engine.is_model_ready("many", "2")
        assert not engine.is_model_ready("nope", None)
        assert isinstance(refused(lambda: engine.is_model_ready("many", "x")), InvalidArgumentError)
        engine.exiting = True
        assert not any((engine.is_live(), engine.is_ready(), engine.is_model_ready("many", None)))

    play(repository, scenario)


@pytest.mark.parametrize("strict", [True, False])
def test_one_bad_model(repository: Path, strict: bool) -> None:
    bad(repository)

    def scenario(house: House) -> None:
        assert house.engine.is_ready() is not strict
        broken, worse = house.engine.not_ready()
        assert broken.startswith("bad: ")
        assert worse.startswith("worse:1: ")
        assert house.engine.is_model_ready("many", None)
        assert not house.engine.is_model_ready("bad", None)
        assert str(refused(lambda: house.engine.find("bad", None))) == ("Request for unknown model: 'bad' is not found")
        assert str(refused(lambda: house.engine.find("worse", None))) == (
            "Request for unknown model: 'worse' has no available versions"
        )

    play(repository, scenario, strict)


@pytest.mark.parametrize("strict", [True, False])
def test_not_ready_before_everything_was_tried(repository: Path, strict: bool) -> None:
    async def test() -> None:
        async with serving(repository, strict, load=False) as house:
            assert house.engine.is_live()
            assert not house.engine.is_ready()
            loading = asyncio.ensure_future(load_repository(house.manager, repository))
            await asyncio.sleep(0)
            assert not house.engine.is_ready()
            await loading
            assert house.engine.is_ready()

    run(test())


def test_a_server_without_models_is_ready(tmp_path: Path) -> None:
    def scenario(house: House) -> None:
        assert house.engine.is_ready()
        assert house.engine.index(False) == []
        assert house.engine.statistics(None, None) == {"model_stats": []}

    play(tmp_path, scenario)


# Descriptions


def test_server_metadata(tmp_path: Path) -> None:
    def scenario(house: House) -> None:
        found = house.engine.server_metadata()
        assert (found["name"], found["version"]) == ("naiad-test", __version__)
        assert "binary_tensor_data" in found["extensions"]

    play(tmp_path, scenario)


def test_model_metadata(repository: Path) -> None:
    def scenario(house: House) -> None:
        assert house.engine.model_metadata("many", "1") == {
            "name": "many",
            "versions": ["1"],
            "platform": "identity",
            "inputs": [
                {"name": "INPUT0", "datatype": "FP32", "shape": (-1, -1)},
                {"name": "INPUT1", "datatype": "BYTES", "shape": (-1, 1)},
            ],
            "outputs": [
                {"name": "OUTPUT0", "datatype": "FP32", "shape": (-1, -1)},
                {"name": "OUTPUT1", "datatype": "BYTES", "shape": (-1, 1)},
            ],
        }
        assert house.engine.model_metadata("one", None)["inputs"][0]["shape"] == (2, -1)
        assert house.engine.model_config("one", None).name == "one"

    play(repository, scenario)


def test_the_index(repository: Path) -> None:
    bad(repository)

    def scenario(house: House) -> None:
        house.manager.refuse("twice", ModelLoadError("two repositories hold it"))
        rows = house.engine.index(False)
        assert [(r["name"], r.get("version"), r["state"]) for r in rows] == [
            ("bad", None, "UNAVAILABLE"),
            ("many", "1", "READY"),
            ("many", "3", "READY"),
            ("one", "1", "READY"),
            ("twice", None, "UNAVAILABLE"),
            ("worse", "1", "UNAVAILABLE"),
        ]
        reasons = {r["name"]: r.get("reason", "") for r in rows}
        assert reasons["twice"] == "two repositories hold it"
        assert reasons["bad"]
        assert reasons["worse"]
        assert not reasons["one"]
        assert [(r["name"], r["version"]) for r in house.engine.index(True)] == [
            ("many", "1"),
            ("many", "3"),
            ("one", "1"),
        ]

    play(repository, scenario)


# Statistics


def test_whose_statistics(repository: Path) -> None:
    def names(found: dict[str, Any]) -> list[tuple[str, str]]:
        return [(m["name"], m["version"]) for m in found["model_stats"]]

    def scenario(house: House) -> None:
        statistics = house.engine.statistics
        assert names(statistics(None, None)) == [("many", "1"), ("many", "3"), ("one", "1")]
        assert names(statistics("many", None)) == [("many", "1"), ("many", "3")]
        assert names(statistics("many", "3")) == [("many", "3")]
        for name, version, text in [
            ("nope", None, "requested model 'nope' is not available"),
            ("nope", "1", "requested model 'nope' is not available"),
            ("many", "2", "requested model version is not available for model 'many'"),
            *[
                (
                    name,
                    "x",
                    "failed to get model version from specified version string 'x' (details: stol), version should be "
                    "an integral value > 0",
                )
                for name in ("many", "nope", None)
            ],
        ]:
            error = refused(lambda name=name, version=version: statistics(name, version))
            assert (type(error), str(error)) == (InvalidArgumentError, text)

    play(repository, scenario)


def test_statistics_are_the_models_counters(repository: Path) -> None:
    def scenario(house: House) -> None:
        counted = house.engine.find("one", None).statistics
        counted.count_execution(2, 1, 2, 3)
        counted.count_success(2, 2, 100, 10, 1, 2, 3)
        counted.count_execution(1, 4, 5, 6)
        counted.count_failure("OTHER", 7)
        counted.last_inference_ms = 99
        (found,) = house.engine.statistics("one", "1")["model_stats"]
        # Memory is measured: what the process took meanwhile for other things may be among it.
        assert isinstance(found.pop("memory_usage"), list)
        assert found == {
            "name": "one",
            "version": "1",
            "last_inference": 99,
            "inference_count": 2,
            "execution_count": 2,
            "inference_stats": {
                "success": {"count": 2, "ns": 100},
                "fail": {"count": 1, "ns": 7},
                "queue": {"count": 2, "ns": 10},
                "compute_input": {"count": 2, "ns": 2},
                "compute_infer": {"count": 2, "ns": 4},
                "compute_output": {"count": 2, "ns": 6},
                "cache_hit": {"count": 0, "ns": 0},
                "cache_miss": {"count": 0, "ns": 0},
            },
            "response_stats": {},
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_input": {"count": 1, "ns": a},
                    "compute_infer": {"count": 1, "ns": b},
                    "compute_output": {"count": 1, "ns": c},
                }
                for size, a, b, c in [(1, 4, 5, 6), (2, 1, 2, 3)]
            ],
        }

    play(repository, scenario)
