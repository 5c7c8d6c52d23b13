"""Repositories on disk, tidy and untidy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf import text_format

from naiad.config.messages import ModelConfig
from naiad.errors import InvalidArgumentError, ModelLoadError, OptionError
from naiad.repository.local.discover import discover
from naiad.repository.local.layout import (
    MAX_VERSION,
    check_model_name,
    choose_versions,
    is_model_directory,
    model_directory,
    scan,
    single_file,
)


def make(root: Path, *paths: str) -> Path:
    """Folders for names that end in "/", else empty files."""
    for path in paths:
        target = root / path
        (target if path.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            target.touch()
    return root


def test_tidy_repository(tmp_path: Path) -> None:
    make(tmp_path, "b/config.pbtxt", "b/1/model.onnx", "b/10/model.onnx", "a/2/model.pt", "c/")
    listing = scan([tmp_path])
    assert list(listing.models) == ["a", "b", "c"]
    assert listing.problems == ()
    b = listing.models["b"]
    assert (b.directory, b.config_file, b.single_file) == (tmp_path / "b", tmp_path / "b" / "config.pbtxt", None)
    assert b.versions == {1: tmp_path / "b" / "1", 10: tmp_path / "b" / "10"}
    assert (listing.models["a"].config_file, listing.models["c"].versions) == (None, {})


def test_what_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "README.md", ".git/", "m/.cache/", "m/warmup/", "m/configs/", "m/0/", "m/1a/", "m/-1/")
    make(tmp_path, "m/٣/", "m/4", "m/04", "m/5/")
    listing = scan([tmp_path])
    assert list(listing.models["m"].versions) == [5]
    assert listing.problems == ()


def test_a_version_that_begins_with_a_zero_is_left_out_with_a_warning(tmp_path: Path) -> None:
    make(tmp_path, "m/1/", "m/003/")
    listing = scan([tmp_path])
    assert list(listing.models["m"].versions) == [1]
    (problem,) = listing.problems
    assert not problem.fatal
    assert problem.message == "ignore version directory '003' which contains leading zeros in its directory name"


def test_config_file_by_precedence(tmp_path: Path) -> None:
    make(tmp_path, "a/config.yaml", "b/config.yaml", "b/config.json")
    models = scan([tmp_path]).models
    assert [models[name].config_file for name in "ab"] == [tmp_path / "a/config.yaml", tmp_path / "b/config.json"]


def test_files_beside_config_pbtxt_are_named(tmp_path: Path) -> None:
    make(tmp_path, "m/config.pbtxt", "m/config.json", "m/1/")
    listing = scan([tmp_path])
    assert listing.models["m"].config_file == tmp_path / "m/config.pbtxt"
    (problem,) = listing.problems
    assert (problem.fatal, problem.message) == (False, "config.json is not read, since config.pbtxt is there")


def test_the_same_name_twice(tmp_path: Path) -> None:
    make(tmp_path, "one/m/1/", "one/x/1/", "two/m/1/")
    listing = scan([tmp_path / "one", tmp_path / "two"])
    assert list(listing.models) == ["x"]
    assert list(listing.unavailable) == ["m"]
    assert f"'{tmp_path}/one/m', '{tmp_path}/two/m'" in listing.unavailable["m"]


def test_the_same_repository_twice_counts_once(tmp_path: Path) -> None:
    make(tmp_path, "one/m/1/")
    (tmp_path / "link").symlink_to("one")
    assert list(scan([tmp_path / "one", tmp_path / "link", tmp_path / "one"]).models) == ["m"]


def test_links(tmp_path: Path) -> None:
    make(tmp_path, "store/net/1/model.onnx", "repo/")
    (tmp_path / "repo" / "m").symlink_to(tmp_path / "store" / "net")
    listing = scan([tmp_path / "repo"])
    assert listing.models["m"].versions == {1: tmp_path / "repo" / "m" / "1"}


@pytest.mark.parametrize(
    ("link", "target", "words"),
    [
        ("loop", "loop", "cannot be followed"),
        ("gone", "nowhere", "cannot be followed: No such file"),
        ("up", ".", "(a cycle)"),
        ("higher", "..", "(a cycle)"),
        ("m/1", "../m", "(a cycle)"),
        ("m/1", "..", "(a cycle)"),
        ("m/1", "nowhere", "cannot be followed"),
    ],
)
def test_links_that_lead_nowhere(link: str, target: str, words: str, tmp_path: Path) -> None:
    make(tmp_path, "fine/1/", "m/")
    (tmp_path / link).symlink_to(target)
    listing = scan([tmp_path])
    name = link.split("/")[0]
    assert words in listing.unavailable[name]
    assert name not in listing.models
    assert "fine" in listing.models


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    make(tmp_path, "m/1/", "fine/1/")
    (tmp_path / "m").chmod(0)
    try:
        listing = scan([tmp_path])
    finally:
        (tmp_path / "m").chmod(0o755)
    assert list(listing.models) == ["fine"]
    assert "Permission denied" in listing.unavailable["m"]


def test_a_version_too_large_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, f"m/{MAX_VERSION}/", f"m/{MAX_VERSION + 1}/")
    listing = scan([tmp_path])
    assert list(listing.models["m"].versions) == [MAX_VERSION]
    assert listing.unavailable == {}
    assert f"expected at most {MAX_VERSION}" in listing.problems[0].located()


def test_a_backslash_in_a_models_name(tmp_path: Path) -> None:
    make(tmp_path, "a\\b/1/")
    assert "path traversal" in scan([tmp_path]).unavailable["a\\b"]


def test_a_name_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, "fine/1/")
    os.makedirs(os.fsencode(tmp_path) + b"/bad\xff/1")
    listing = scan([tmp_path])
    assert list(listing.models) == ["fine"]
    assert listing.unavailable == {}
    assert "the folder 'bad\\xff' is left out, its name is not UTF-8" in listing.problems[0].located()


def test_a_models_folder_in_place_of_a_repository(tmp_path: Path) -> None:
    make(tmp_path, "m/config.pbtxt", "m/1/")
    listing = scan([tmp_path / "m"])
    assert f"give the folder above it ('{tmp_path}')" in listing.problems[0].message
    assert is_model_directory(tmp_path / "m")
    assert not is_model_directory(tmp_path)
    assert list(model_directory(tmp_path / "m").models) == ["m"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere", "does not exist"),
        ("net.onnx", "is a file, .* to serve this one model: naiad serve"),
        ("notes.txt", "is a file, expected a folder that holds one folder for each model$"),
    ],
)
def test_a_repository_that_is_none(path: str, words: str, tmp_path: Path) -> None:
    make(tmp_path, "net.onnx", "notes.txt")
    with pytest.raises(OptionError, match=words):
        scan([tmp_path / path])


def test_single_file(tmp_path: Path) -> None:
    make(tmp_path, "resnet50.v2.onnx")
    source = single_file(tmp_path / "resnet50.v2.onnx")
    assert (source.name, source.versions, source.directory) == ("resnet50.v2", {1: tmp_path}, None)


@pytest.mark.parametrize("name", ["forest.json", "forest.txt", "forest.model", "forest.pkl", "net.pth"])
def test_single_file_with_a_common_suffix(name: str, tmp_path: Path) -> None:
    """The user has named it, so it is a model."""
    make(tmp_path, name)
    assert single_file(tmp_path / name).single_file == tmp_path / name


@pytest.mark.parametrize(("folder", "model"), [("net.v2", "net.v2"), ("net.savedmodel", "net")])
def test_folder_of_a_saved_model(folder: str, model: str, tmp_path: Path) -> None:
    make(tmp_path, f"{folder}/saved_model.pb", f"{folder}/variables/variables.index")
    listing = discover([], [tmp_path / folder])
    assert list(listing.models) == [model]
    assert listing.models[model].single_file == tmp_path / folder
    assert not listing.problems


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("net.h5", r'keras\.models\.load_model\("net\.h5"\)\.save\("net\.keras"\)'),
        ("net.pb", r"name the whole folder, and rename a frozen graph to net\.graphdef"),
        ("net.safetensors", "put a model.py with the model's class beside them"),
        ("net.tflite", 'default_model_filename: "net.tflite"'),
        ("net.cbm", 'format="onnx"'),
    ],
)
def test_single_file_of_another_kind(name: str, words: str, tmp_path: Path) -> None:
    """The error says what to do with it."""
    make(tmp_path, name)
    with pytest.raises(ModelLoadError, match=words):
        single_file(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.onnx", "does not exist"),
        ("net.onn", r"did you mean '\.onnx'"),
        ("net", "has the suffix ''"),
        ("config.pbtxt", "is a configuration"),
    ],
)
def test_single_file_of_no_known_kind(name: str, words: str, tmp_path: Path) -> None:
    make(tmp_path, "net.onn", "net", "config.pbtxt")
    with pytest.raises(ModelLoadError, match=words):
        single_file(tmp_path / name)


@pytest.mark.parametrize("name", ["..", ".", " ..", ".. ", "\t.\n", "a/b", "../a", "a\\b", "a\0"])
def test_names_that_leave_the_repository(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="must not contain path traversal characters"):
        check_model_name(name)


@pytest.mark.parametrize("name", ["", " ", "\t", "\n\r\f\v "])
def test_names_that_are_empty(name: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"^Model name cannot be empty\. Please enter a valid name to deploy\.$"
    ):
        check_model_name(name)


@pytest.mark.parametrize("name", ["a..b.identity", "...", "..a", "a model"])
def test_other_names(name: str) -> None:
    check_model_name(name)


@pytest.mark.parametrize(
    ("policy", "available", "expected"),
    [
        ("", [1, 3, 2], (3,)),
        ("latest { }", [1, 2], (2,)),
        ("latest { num_versions: 2 }", [1, 10, 2], (2, 10)),
        ("latest { num_versions: 9 }", [1, 2], (1, 2)),
        ("all { }", [2, 1], (1, 2)),
        ("specific { versions: [ 3, 1, 7 ] }", [1, 2, 3], (1, 3)),
    ],
)
def test_version_policy(policy: str, available: list[int], expected: tuple[int, ...]) -> None:
    config = text_format.Parse(f"version_policy {{ {policy} }}", ModelConfig())
    assert choose_versions(config, available) == expected
    assert choose_versions(config, dict.fromkeys(available)) == expected


@pytest.mark.parametrize(("policy", "available"), [("", []), ("all { }", []), ("specific { versions: 3 }", [1])])
def test_no_version(policy: str, available: list[int]) -> None:
    config = text_format.Parse(f'name: "m" version_policy {{ {policy} }}', ModelConfig())
    words = "at least one version must be available under the version policy of model 'm', found"
    with pytest.raises(ModelLoadError, match=words):
        choose_versions(config, available)
