"""``/v2``, a model's metadata and its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.testing import write_model
from naiad.version import __version__
from support.http_application import JSON, House, Peer, identity_config, play

CONFIG = identity_config(("0", "TYPE_FP32", "[ -1, 4 ]"), ("1", "TYPE_STRING", "[ 1 ]"), more="max_batch_size: 4")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "many", CONFIG + "version_policy { all { } }", versions=(1, 20, 3))
    write_model(tmp_path, "whole", identity_config(("0", "TYPE_BF16", "[ 2 ]")))
    return tmp_path


def test_the_server(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.ask("GET", "/v2")
        assert (answer.status, answer.type) == (200, JSON)
        assert list(answer.json) == ["name", "version", "extensions"]
        assert (answer.json["name"], answer.json["version"]) == ("naiad-test", __version__)
        assert "binary_tensor_data" in answer.json["extensions"]

    play(repository, scenario)


def test_a_model(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for target, versions in (("many", ["1", "3", "20"]), ("many/versions/3", ["3"])):
            answer = await peer.ask("GET", f"/v2/models/{target}")
            assert (answer.status, answer.type) == (200, JSON)
            assert answer.json == {
                "name": "many",
                "versions": versions,
                "platform": "identity",
                "inputs": [
                    {"name": "INPUT0", "datatype": "FP32", "shape": [-1, -1, 4]},
                    {"name": "INPUT1", "datatype": "BYTES", "shape": [-1, 1]},
                ],
                "outputs": [
                    {"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, -1, 4]},
                    {"name": "OUTPUT1", "datatype": "BYTES", "shape": [-1, 1]},
                ],
            }
            assert list(answer.json) == ["name", "versions", "platform", "inputs", "outputs"]
        whole = (await peer.ask("GET", "/v2/models/whole")).json
        assert whole["inputs"] == [{"name": "INPUT0", "datatype": "BF16", "shape": [2]}]

    play(repository, scenario)


def test_a_configuration(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.ask("GET", "/v2/models/many/config")
        assert (answer.status, answer.type) == (200, JSON)
        found = answer.json
        assert (found["name"], found["backend"], found["max_batch_size"]) == ("many", "identity", 4)
        assert found["input"][0]["data_type"] == "TYPE_FP32"
        assert found["input"][0]["dims"] == [-1, 4]
        assert found["instance_group"][0]["count"] >= 1

    play(repository, scenario)


@pytest.mark.parametrize("suffix", ["", "/config"])
def test_what_is_not_there(repository: Path, suffix: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for target, status, text in [
            ("nope", 404, "Request for unknown model: 'nope' is not found"),
            ("many/versions/9", 404, "Request for unknown model: 'many' version 9 is not found"),
            ("many/versions/" + "9" * 30, 400, "failed to get model version from specified version string"),
        ]:
            answer = await peer.ask("GET", f"/v2/models/{target}{suffix}")
            assert (answer.status, answer.type) == (status, JSON)
            assert answer.error.startswith(text)

    play(repository, scenario)
