"""Repositories that are added to a catalog while it is used, and the model that an archive holds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from naiad.config.read import read_config
from naiad.errors import AlreadyExistsError, InvalidArgumentError, ModelLoadError
from naiad.repository.catalog import Catalog
from naiad.repository.local.added import AddedRepositories, AddedRepository, added_repository
from naiad.testing import write_model

PLAIN = 'backend: "identity"'


def ensemble(*steps: str) -> str:
    """The configuration of an ensemble of these models; only their names count here."""
    return f'platform: "ensemble" ensemble_scheduling {{ {" ".join(f"step {{ model_name: {s!r} }}" for s in steps)} }}'


def write(repository: Path, **models: str) -> Path:
    for name, config in models.items():
        write_model(repository, name, config)
    return repository


def catalog_with(own: Path, *added: AddedRepository, has_namespaces: bool = False) -> Catalog:
    found = Catalog((own,), has_namespaces=has_namespaces)
    for one in added:
        found.added.add(one, names_repeat=has_namespaces)
    return found


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write(tmp_path / "own", first=PLAIN)


def test_a_model_goes_by_the_name_that_was_given(own: Path, tmp_path: Path) -> None:
    write(tmp_path / "a", model=f'name: "written" {PLAIN}', other=PLAIN)
    catalog = catalog_with(own, AddedRepository(tmp_path / "a", "model", "given"))
    assert catalog.names() == {"first", "given", "other"}
    found = catalog.find("given")
    assert found.directory == tmp_path / "a" / "model"
    assert read_config(found).config.name == "given"
    for name in ("model", "written", "gone"):
        with pytest.raises(ModelLoadError, match=f"no model of the name '{name}'"):
            catalog.find(name)
    assert catalog.obtain("other").source.directory == tmp_path / "a" / "other"


def test_a_folder_of_the_given_name_does_not_count(own: Path, tmp_path: Path) -> None:
    write(tmp_path / "a", model=PLAIN, given=PLAIN)
    catalog = catalog_with(own, AddedRepository(tmp_path / "a", "model", "given"))
    assert catalog.names() == {"first", "given"}
    assert catalog.find("given").directory == tmp_path / "a" / "model"


def test_with_namespaces_names_repeat(own: Path, tmp_path: Path) -> None:
    places = [write(tmp_path / name, model=PLAIN, step=PLAIN) for name in ("a", "b")]
    added = [AddedRepository(place, "model", "given") for place in places]
    catalog = catalog_with(own, *added, has_namespaces=True)
    assert catalog.keys("given") == [f"{place}/given" for place in places]
    assert catalog.keys("step") == [f"{place}/step" for place in places]
    assert catalog.find(f"{places[1]}/given").directory == places[1] / "model"


def test_without_namespaces_a_name_in_two_places_is_unavailable(own: Path, tmp_path: Path) -> None:
    place = write(tmp_path / "a", model=PLAIN, first=PLAIN)
    catalog = catalog_with(own, AddedRepository(place, "model", "given"))
    assert set(catalog.outline().unavailable) == {"first"}
    with pytest.raises(ModelLoadError, match="two or more repositories"):
        catalog.find("first")
    assert catalog.find("given").directory == place / "model"


def test_a_place_is_added_once_and_a_name_too(tmp_path: Path) -> None:
    added = AddedRepositories()
    one = AddedRepository(tmp_path / "a", "model", "given")
    added.add(one, names_repeat=False)
    with pytest.raises(AlreadyExistsError, match=re.escape(f"model repository '{tmp_path}/a' has already been reg")):
        added.add(AddedRepository(tmp_path / "a", "model", "other"), names_repeat=True)
    with pytest.raises(AlreadyExistsError, match="conflicting mapping for 'given'"):
        added.add(AddedRepository(tmp_path / "b", "model", "given"), names_repeat=False)
    added.add(AddedRepository(tmp_path / "b", "model", "given"), names_repeat=True)
    added.remove(one)
    added.remove(one)
    added.add(one, names_repeat=True)


@pytest.mark.parametrize("has_namespaces", [False, True])
def test_a_repository_that_is_gone_leaves_the_others_alone(own: Path, tmp_path: Path, has_namespaces: bool) -> None:
    place = write(tmp_path / "a", model=PLAIN)
    catalog = catalog_with(own, AddedRepository(place, "model", "given"), has_namespaces=has_namespaces)
    shutil.rmtree(place)
    assert {name.rpartition("/")[2] for name in catalog.names()} == {"first"}


def test_an_archive_is_a_model_or_holds_one(tmp_path: Path) -> None:
    write(tmp_path / "hash", model=PLAIN)
    assert added_repository(tmp_path / "hash" / "model", "x") == AddedRepository(tmp_path / "hash", "model", "x")
    write(tmp_path / "other" / "model", packed=PLAIN)
    place = tmp_path / "other" / "model"
    assert added_repository(place, "x") == AddedRepository(place, "packed", "x")


def test_of_several_models_the_outer_ensemble_is_meant(tmp_path: Path) -> None:
    place = write(tmp_path, a=PLAIN, inner=ensemble("a"), outer=ensemble("inner", "a"), broken="nonsense")
    assert added_repository(place, "x").folder == "outer"


@pytest.mark.parametrize(
    ("models", "text"),
    [
        ({}, "holds 0 models and 0 ensembles"),
        ({"a": PLAIN, "b": PLAIN}, "holds 2 models and 0 ensembles"),
        ({"a": PLAIN, "x": ensemble("a"), "y": ensemble("a")}, "holds 3 models and 2 ensembles"),
    ],
)
def test_another_archive_is_refused(tmp_path: Path, models: dict[str, str], text: str) -> None:
    (tmp_path / "archive").mkdir()
    write(tmp_path / "archive", **models)
    with pytest.raises(InvalidArgumentError, match=text):
        added_repository(tmp_path / "archive", "x")


def test_a_missing_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="repository not found"):
        added_repository(tmp_path / "gone", "x")
