"""Archives behind http://, from a real server, and archives that mean harm."""

from __future__ import annotations

import io
import itertools
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.errors import StoreError, StoreUnreachableError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.catalog import Catalog, fetched, open_catalog
from naiad.repository.remote.mirror.objects import PART
from naiad.repository.remote.mirror.transfers import Halt
from naiad.repository.remote.unpacking import unpack
from support.web_folder import WebFolder, web_folder

CONFIG = b'backend: "identity"'
REPOSITORY = {"one/config.pbtxt": CONFIG, "one/1/data": b"1", "two/config.pbtxt": CONFIG, "two/3/data": b"2"}


@pytest.fixture
def web() -> Iterator[WebFolder]:
    with web_folder() as found:
        yield found


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return packed.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w:gz", *more: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
        for info in more:
            archive.addfile(info)
    return packed.getvalue()


def catalog(uri: str, mirror: Path) -> Catalog:
    return open_catalog([RemoteUri(uri)], [], str(mirror), 0)


def models(uri: str, mirror: Path) -> dict[str, list[int]]:
    """The versions of every model, obtained by a server of its own."""
    found = catalog(uri, mirror)
    try:
        return {name: sorted(fetched(m).source.versions) for name, m in found.outline(is_whole=True).remote.items()}
    finally:
        found.close()


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("repo.zip", zipped(REPOSITORY), {"one": [1], "two": [3]}),
        ("repo.tar.gz", tarred(REPOSITORY), {"one": [1], "two": [3]}),
        ("repo.tar.xz", tarred(REPOSITORY, "w:xz"), {"one": [1], "two": [3]}),
        ("repo.tar", tarred(REPOSITORY, "w"), {"one": [1], "two": [3]}),
        ("r.tgz", tarred({f"./{k}": v for k, v in REPOSITORY.items()}), {"one": [1], "two": [3]}),
        ("main.zip", zipped({f"repo-main/{k}": v for k, v in REPOSITORY.items()}), {"one": [1], "two": [3]}),
        ("resnet.tar.gz", tarred({"config.pbtxt": CONFIG, "7/data": b"x"}), {"resnet": [7]}),
        ("x.zip", zipped({"resnet/config.pbtxt": CONFIG, "resnet/7/data": b"x"}), {"resnet": [7]}),
    ],
)
def test_archives_of_models(
    web: WebFolder, tmp_path: Path, name: str, body: bytes, expected: dict[str, list[int]]
) -> None:
    web.files[name] = body
    assert models(web.url(name), tmp_path) == expected


def test_a_second_start_fetches_nothing_and_one_without_the_server_works(web: WebFolder, tmp_path: Path) -> None:
    web.files["repo.zip"] = zipped(REPOSITORY)
    first = models(web.url("repo.zip"), tmp_path)
    web.asked.clear()
    assert models(web.url("repo.zip"), tmp_path) == first
    assert {method for method, _, _ in web.asked} == {"HEAD"}, "nothing is fetched"
    web.is_down = True
    assert models(web.url("repo.zip"), tmp_path) == first
    with pytest.raises(StoreUnreachableError, match="the server answers 503"):
        models(web.url("other.zip"), tmp_path)


def test_a_new_archive_takes_the_place_of_the_old_one(web: WebFolder, tmp_path: Path) -> None:
    web.files["repo.zip"] = zipped(REPOSITORY)
    found = catalog(web.url("repo.zip"), tmp_path)
    before = found.obtain("one").source
    web.files["repo.zip"] = zipped({**REPOSITORY, "one/2/data": b"new"})
    assert sorted(found.obtain("one").source.versions) == [1, 2]
    assert before.directory is not None
    assert (before.directory / "1" / "data").read_bytes() == b"1"


def test_an_address_that_is_signed_for_reading_alone(web: WebFolder, tmp_path: Path) -> None:
    web.files["repo.zip"] = zipped(REPOSITORY)
    web.refuses_head = True
    assert models(web.url("repo.zip?X-Amz-Signature=abc"), tmp_path) == {"one": [1], "two": [3]}


def test_an_archive_that_changes_while_it_is_fetched(web: WebFolder, tmp_path: Path) -> None:
    web.files["big.tar"] = tarred({"m/1/data": b"x" * (3 * PART)}, "w")
    newer, gets = tarred({"m/2/data": b"y" * (3 * PART)}, "w"), itertools.count()

    def change_once() -> None:
        if next(gets) == 1:
            web.files["big.tar"] = newer

    web.before_get = change_once
    with pytest.raises(StoreError, match="has changed while it was fetched"):
        models(web.url("big.tar"), tmp_path)
    assert models(web.url("big.tar"), tmp_path) == {"m": [2]}


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://127.0.0.1:1/x"])
def test_a_server_that_leads_elsewhere(web: WebFolder, tmp_path: Path, target: str) -> None:
    web.redirect = target
    with pytest.raises(StoreError, match="cannot look at"):
        models(web.url("repo.zip"), tmp_path)


def test_a_header_that_is_larger_than_any(web: WebFolder, tmp_path: Path) -> None:
    info = tarfile.TarInfo("m/1/x")
    info.pax_headers = {"comment": "x" * (8 << 20)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    web.files["x.tar.gz"] = packed.getvalue()
    with pytest.raises(StoreError, match=r"a header of more than 4\.0 MiB"):
        models(web.url("x.tar.gz"), tmp_path)


def test_a_large_archive_comes_in_parts(web: WebFolder, tmp_path: Path) -> None:
    web.files["big.tar"] = tarred({"m/1/data": b"x" * (2 * PART)}, "w")
    assert models(web.url("big.tar"), tmp_path) == {"m": [1]}
    assert len({asked for method, _, asked in web.asked if method == "GET"}) == 3


@pytest.mark.parametrize("has_tags", [True, False])
def test_a_server_that_knows_no_ranges(web: WebFolder, tmp_path: Path, has_tags: bool) -> None:
    web.has_ranges, web.has_tags = False, has_tags
    web.files["big.tar"] = tarred({"m/1/data": b"x" * (2 * PART)}, "w")
    assert models(web.url("big.tar"), tmp_path) == {"m": [1]}
    assert [asked for asked in web.asked if asked[0] == "GET"] == [("GET", "big.tar", "")]


def test_a_password_is_sent_and_never_shown(web: WebFolder, tmp_path: Path) -> None:
    uri = web.url("nosuch.zip?sig=s3cret").replace("://", "://me:s3cret@")
    with pytest.raises(StoreError, match="there is no such file") as raised:
        models(uri, tmp_path)
    assert web.authorization == "Basic bWU6czNjcmV0"
    assert web.asked[0] == ("HEAD", "nosuch.zip?sig=s3cret", "")
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(RemoteUri(uri)) + str(RemoteUri(uri))


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        info = zipfile.ZipInfo("m/1/link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (zipped({"../outside": b"x"}), "cannot be the path"),
        (zipped({"/outside": b"x"}), "cannot be the path"),
        (zipped({"m//x": b"x"}), "cannot be the path"),
        (tarred({"m/../../outside": b"x"}), "cannot be the path"),
        (tarred({"m/1/x": b"x"}, "w", link("m/1/link", "/etc/passwd")), "only plain files"),
        (tarred({"m/1/x": b"x"}, "w", link("m/1/hard", "m/1/x", tarfile.LNKTYPE)), "only plain files"),
        (tarred({}, "w", link("m/dev", "", tarfile.CHRTYPE)), "only plain files"),
        (tarred({}, "w", link("m/fifo", "", tarfile.FIFOTYPE)), "only plain files"),
        (zip_link(), "only plain files"),
        (tarred({"m/x": b"x", "m/x/y": b"y"}), "twice, or as a file and as a folder"),
        (tarred(REPOSITORY)[:-40], "damaged"),
        (b"<html>", "damaged or of an unknown kind"),
        (b"", "damaged or of an unknown kind"),
    ],
)
def test_archives_that_are_not_unpacked(web: WebFolder, tmp_path: Path, body: bytes, words: str) -> None:
    web.files["a.zip"] = body
    with pytest.raises(StoreError, match=words):
        models(web.url("a.zip"), tmp_path / "mirror")
    assert not list(tmp_path.rglob("outside"))
    assert not list((tmp_path / "mirror" / "views").glob("*/.new-*"))


@pytest.mark.slow
def test_a_bomb(tmp_path: Path) -> None:
    """More than a GiB of zeros in a few MiB."""
    bomb = tmp_path / "bomb.zip"
    written = zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with written as archive, archive.open("m/1/x", "w", force_zip64=True) as f:
        for _ in range(1100):
            f.write(bytes(1 << 20))
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError, match="which is no archive of models"):
        unpack(bomb, tmp_path / "out", "bomb", Halt())
