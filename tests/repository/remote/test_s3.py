"""Repositories in a bucket, on a real S3 server, and what may go wrong with them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.cli.check import run
from naiad.errors import ModelLoadError, OptionError, StoreError, StoreUnreachableError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.catalog import Catalog, Obtained, fetched, open_catalog
from naiad.repository.remote.mirror.objects import ATTEMPTS, PART
from naiad.repository.remote.mirror.progress import TransferProgress
from support.s3_server import BUCKET, S3, Asked, Faked

pytest_plugins = ["support.s3_fixture"]

CONFIG = """\
backend: "identity"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def put_model(s3: S3, name: str, files: dict[str, bytes] | None = None, config: str = CONFIG) -> None:
    s3.put(f"repo/{name}/config.pbtxt", config)
    for path, body in (files or {"1/data.bin": content(1000)}).items():
        s3.put(f"repo/{name}/{path}", body)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def catalog(uri: str, mirror: Path, size: int = 0, *, as_path: bool = False) -> Catalog:
    """What one server has; another call is another server."""
    uris = [RemoteUri(uri)]
    return open_catalog([] if as_path else uris, uris if as_path else [], str(mirror), size)


def mirror_all(uri: str, mirror: Path) -> dict[str, Path]:
    """Start a server's catalog, obtain every model, and end it."""
    found = catalog(uri, mirror)
    try:
        return {name: folder(fetched(model)) for name, model in found.outline(is_whole=True).remote.items()}
    finally:
        found.close()


def folder(obtained: Obtained) -> Path:
    assert obtained.source.directory is not None
    return obtained.source.directory


def files(place: Path) -> dict[str, bytes]:
    return {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}


@pytest.fixture
def unreachable(s3: S3) -> Iterator[str]:
    """The address of a port that nobody listens on."""
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"s3://127.0.0.1:{held.getsockname()[1]}/{BUCKET}/repo"


class TestMirroring:
    @pytest.mark.slow
    def test_a_second_start_fetches_nothing(self, s3: S3, mirror: Path) -> None:
        big = content(3 << 20, 1)
        put_model(s3, "one", {"1/data.bin": content(1000), "configs/gpu.pbtxt": b"x", "labels.txt": b"a\nb\n"})
        put_model(s3, "two", {"3/data.bin": big})
        first = mirror_all(s3.uri(), mirror)
        assert files(first["one"]) == {
            "config.pbtxt": CONFIG.encode(),
            "1/data.bin": content(1000),
            "configs/gpu.pbtxt": b"x",
            "labels.txt": b"a\nb\n",
        }
        assert files(first["two"])["3/data.bin"] == big
        assert s3.asked
        s3.forget()
        assert mirror_all(s3.uri(), mirror) == first
        assert s3.asked == []
        assert s3.listings <= 2, "once the names, once the files"

    def test_a_start_without_the_store_serves_what_was_mirrored(
        self, s3: S3, mirror: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        put_model(s3, "one")
        put_model(s3, "two")
        first = mirror_all(s3.uri(), mirror)
        s3.fault = lambda asked: Faked(status=503)
        assert mirror_all(s3.uri(), mirror) == first
        assert "serving what the mirror" in caplog.text

    @pytest.mark.slow
    def test_a_model_that_was_never_whole_is_an_error_without_the_store(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "one")
        put_model(s3, "two")
        found = catalog(s3.uri(), mirror)
        fetched(found.outline().remote["one"])
        found.close()
        s3.fault = lambda asked: Faked(status=503)
        remote = catalog(s3.uri(), mirror).outline().remote
        assert fetched(remote["one"]).source.name == "one"
        with pytest.raises(StoreUnreachableError, match="model 'two' was never mirrored whole"):
            fetched(remote["two"])

    def test_nothing_to_start_from(self, unreachable: str, mirror: Path) -> None:
        with pytest.raises(StoreUnreachableError, match="has nothing of this repository to start from"):
            catalog(unreachable, mirror).outline()

    def test_large_files_come_in_parts(self, s3: S3, mirror: Path) -> None:
        body = content(3 * PART + 17, 2)
        put_model(s3, "m", {"1/big": body})
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/big"] == body
        assert Counter(asked.range for asked in s3.asked if asked.key.endswith("big")) == {
            f"bytes={start}-{min(start + PART, len(body)) - 1}": 1 for start in range(0, len(body), PART)
        }

    def test_a_file_of_several_parts_has_an_etag_that_is_no_sum(self, s3: S3, mirror: Path) -> None:
        key, body = "repo/m/1/parts", content(11 << 20, 3)
        put_model(s3, "m", {"1/x": b"x"})
        upload = s3.client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        parts = []
        for number, start in enumerate(range(0, len(body), 6 << 20), 1):
            sent = s3.client.upload_part(
                Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=body[start : start + (6 << 20)]
            )
            parts.append({"ETag": sent["ETag"], "PartNumber": number})
        s3.client.complete_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/parts"] == body

    def test_a_change_makes_another_folder_and_fetches_what_is_new_alone(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m", {"1/old": content(2 << 20), "1/kept": content(2 << 20, 1)})
        before = mirror_all(s3.uri(), mirror)["m"]
        s3.forget()
        s3.put("repo/m/2/new", b"new")
        s3.delete("repo/m/1/old")
        after = mirror_all(s3.uri(), mirror)["m"]
        assert sorted(files(after)) == ["1/kept", "2/new", "config.pbtxt"]
        assert s3.asked_keys() == ["repo/m/2/new"]
        assert sorted(files(before)) == ["1/kept", "1/old", "config.pbtxt"], "what serves keeps its files"

    def test_keys_that_stand_for_folders_and_empty_files(self, s3: S3, mirror: Path) -> None:
        for key in ("repo/", "repo/m/", "repo/m/1/", "repo/m/2/"):
            s3.put(key)
        put_model(s3, "m", {"2/data": b"x", "2/empty": b"", "é #%20+~/x y": b"odd"})
        place = mirror_all(s3.uri(), mirror)["m"]
        assert (place / "1").is_dir()
        assert files(place) == {
            "config.pbtxt": CONFIG.encode(),
            "2/data": b"x",
            "2/empty": b"",
            "é #%20+~/x y": b"odd",
        }

    def test_files_and_hidden_folders_beside_the_models_are_passed_over(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m")
        s3.put("repo/readme.md", "x")
        s3.put("repo/.hidden/x", "x")
        s3.put("repository/other/config.pbtxt", "x")
        assert list(mirror_all(s3.uri(), mirror)) == ["m"]

    @pytest.mark.slow
    def test_the_folder_of_one_model_as_an_argument(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m")
        put_model(s3, "n")
        found = catalog(s3.uri("repo/m"), mirror, as_path=True)
        assert found.names() == {"m"}
        assert fetched(found.outline().remote["m"]).source.versions.keys() == {1}
        assert found.obtain("m").source.name == "m"
        s3.fault = lambda asked: Faked(status=503)
        again = catalog(s3.uri("repo/m"), mirror, as_path=True)
        assert fetched(again.outline().remote["m"]).source.name == "m"

    def test_the_same_name_in_two_repositories(self, s3: S3, mirror: Path, tmp_path: Path) -> None:
        put_model(s3, "m")
        (tmp_path / "local" / "m" / "1").mkdir(parents=True)
        both = open_catalog([RemoteUri(s3.uri()), tmp_path / "local"], [], str(mirror), 0)
        outline = both.outline()
        assert list(outline.models) == []
        assert "model appears in two or more repositories" in outline.unavailable["m"]
        with pytest.raises(ModelLoadError, match="model appears in two or more repositories"):
            both.obtain("m")

    @pytest.mark.slow
    def test_a_store_that_is_gone_does_not_keep_a_local_model_away(
        self, unreachable: str, mirror: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "local" / "m" / "1").mkdir(parents=True)
        both = open_catalog([RemoteUri(unreachable), tmp_path / "local"], [], str(mirror), 0)
        assert both.obtain("m").source.name == "m"
        assert "whether model 'm' lies there as well is not known" in caplog.text
        with pytest.raises(StoreUnreachableError):
            both.obtain("n")

    @pytest.mark.parametrize("name", ["a\nb", "a\x7fb", "\udc80", "x" * 5000, "a*b", "é #?%"])
    def test_names_that_callers_make_up(self, s3: S3, mirror: Path, name: str) -> None:
        with pytest.raises(ModelLoadError):
            catalog(s3.uri(), mirror).obtain(name)

    def test_one_model_alone_is_listed_and_fetched(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m")
        put_model(s3, "n")
        found = catalog(s3.uri(), mirror)
        assert found.obtain("m").source.name == "m"
        assert {key.split("/")[1] for key in s3.asked_keys()} == {"m"}
        with pytest.raises(ModelLoadError, match="there is no model of the name 'zzz'"):
            found.obtain("zzz")


class TestFaults:
    def test_a_cut_off_answer_is_asked_for_again(self, s3: S3, mirror: Path) -> None:
        body = content(2 * PART, 5)
        put_model(s3, "m", {"1/big": body})
        seen: set[str] = set()

        def cut_once(asked: Asked) -> Faked | None:
            is_new = asked.range not in seen
            seen.add(asked.range)
            return Faked(sent=0.5) if is_new and asked.key.endswith("big") else None

        s3.fault = cut_once
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/big"] == body

    @pytest.mark.slow
    def test_answers_that_are_always_cut_off(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m", {"1/big": content(1 << 20)})
        s3.fault = lambda asked: Faked(sent=0.5) if asked.key.endswith("big") else None
        with pytest.raises(StoreUnreachableError, match=r"cannot read 'm/1/big' of 's3://127"):
            mirror_all(s3.uri(), mirror)
        assert s3.asked_keys().count("repo/m/1/big") >= ATTEMPTS

    @pytest.mark.slow
    def test_a_transfer_goes_on_where_it_was_cut_off(self, s3: S3, mirror: Path) -> None:
        body = content(4 * PART, 6)
        put_model(s3, "m", {"1/big": body})
        last = f"bytes={3 * PART}-{4 * PART - 1}"
        s3.fault = lambda asked: Faked(status=403) if asked.range == last else None
        with pytest.raises(StoreError, match="refuses the credentials"):
            mirror_all(s3.uri(), mirror)
        s3.forget()
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/big"] == body
        ranges = [asked.range for asked in s3.asked if asked.key.endswith("big")]
        assert last in ranges
        assert len(ranges) < 4

    @pytest.mark.slow
    def test_a_killed_process_left_what_it_had(self, s3: S3, mirror: Path) -> None:
        body = content(4 * PART, 7)
        put_model(s3, "m", {"1/big": body})
        held, blocked = threading.Event(), threading.Event()
        last = f"bytes={3 * PART}-{4 * PART - 1}"

        def hold(asked: Asked) -> Faked | None:
            if asked.range == last:
                blocked.set()
                held.wait(60)
            return None

        s3.fault = hold
        command = [sys.executable, "-m", "naiad", "check", s3.uri(), f"--model-repository-mirror={mirror}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ))
        try:
            assert blocked.wait(60)
            _until(lambda: [p for p in (mirror / "partial").glob("*.journal") if _lines(p) == 4])
        finally:
            process.kill()
            process.wait()
            held.set()
        s3.forget()
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/big"] == body
        assert [asked.range for asked in s3.asked if asked.key.endswith("big")] == [last]

    @pytest.mark.slow
    def test_an_object_that_changes_while_it_is_fetched(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m", {"1/big": content(3 * PART, 8)})
        newer = content(3 * PART, 9)
        changed: list[bool] = []

        def change(asked: Asked) -> Faked | None:
            if asked.range.startswith(f"bytes={PART}-") and not changed:
                changed.append(True)
                s3.put("repo/m/1/big", newer)
            return None

        s3.fault = change
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/big"] == newer

    def test_an_object_that_is_removed_while_it_is_fetched(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m", {"1/a": b"a", "1/b": b"b"})

        def remove(asked: Asked) -> Faked | None:
            s3.delete("repo/m/1/b")
            return None

        s3.fault = remove
        assert sorted(files(mirror_all(s3.uri(), mirror)["m"])) == ["1/a", "config.pbtxt"]

    def test_a_wrong_content_is_fetched_again(self, s3: S3, mirror: Path, caplog: pytest.LogCaptureFixture) -> None:
        put_model(s3, "m", {"1/data": b"right"})
        seen: list[Asked] = []

        def spoil_first(asked: Asked) -> Faked | None:
            if not asked.key.endswith("data"):
                return None
            seen.append(asked)
            return Faked(body=lambda body: b"WRONG") if len(seen) == 1 else None

        s3.fault = spoil_first
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/data"] == b"right"
        assert "has the MD5 sum" in caplog.text

    def test_a_content_that_is_wrong_in_another_way_each_time(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m", {"1/data": b"right"})
        bodies = iter([b"WRON1", b"WRON2"])
        s3.fault = lambda asked: Faked(body=lambda body: next(bodies)) if asked.key.endswith("data") else None
        with pytest.raises(StoreError, match="does not arrive whole"):
            mirror_all(s3.uri(), mirror)
        assert b"WRON" not in b"".join(path.read_bytes() for path in (mirror / "objects").glob("*/*"))

    def test_an_etag_that_looks_like_a_sum_and_is_none(self, s3: S3, mirror: Path) -> None:
        """Encrypted objects of S3 have such ones; two equal reads are taken for right."""
        put_model(s3, "m", {"1/data": b"right"})
        s3.fault = lambda asked: Faked(body=lambda body: b"other") if asked.key.endswith("data") else None
        assert files(mirror_all(s3.uri(), mirror)["m"])["1/data"] == b"other"

    def test_a_bucket_that_is_not_there(self, s3: S3, mirror: Path) -> None:
        with pytest.raises(
            StoreError, match=r"cannot list 'repo' of .*NoSuchBucket.*there is no such bucket"
        ) as raised:
            catalog(f"s3://127.0.0.1:{s3.port}/nosuch/repo", mirror).outline()
        assert not isinstance(raised.value, StoreUnreachableError)

    def test_a_folder_that_is_not_there(self, s3: S3, mirror: Path) -> None:
        with pytest.raises(StoreError, match="holds nothing: is the path right"):
            catalog(s3.uri("elsewhere"), mirror).outline()

    def test_wrong_credentials(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m")
        mirror_all(s3.uri(), mirror)
        s3.fault = lambda asked: Faked(status=403)
        with pytest.raises(StoreError, match="those of AWS_ACCESS_KEY_ID are not right for it") as raised:
            catalog(s3.uri(), mirror).outline()
        assert not isinstance(raised.value, StoreUnreachableError), "a mirror is no way around a refusal"

    @pytest.mark.parametrize("key", ["repo/m/../../x", "repo/m/1/..", "repo/m/1//x", f"repo/m/1/{'x' * 300}"])
    def test_keys_that_are_no_paths(self, s3: S3, mirror: Path, key: str) -> None:
        put_model(s3, "m")
        s3.put(key, b"x")
        with pytest.raises(StoreError, match=r"path|nothing"):
            mirror_all(s3.uri(), mirror)
        assert not (mirror.parent / "x").exists()

    def test_a_key_that_is_a_file_and_a_folder(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m", {"1": b"file", "1/data": b"x"})
        with pytest.raises(StoreError, match=r"'m/1' of .* is both a file and a folder"):
            mirror_all(s3.uri(), mirror)

    @pytest.mark.slow
    def test_a_disk_that_is_full(self, s3: S3, tmp_path: Path) -> None:
        small = tmp_path / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", small], capture_output=True).returncode:
            pytest.skip("no right to mount a small disk")
        try:
            put_model(s3, "m", {"1/big": content(20 << 20)})
            with pytest.raises(StoreError, match=r"needs 20.0 MiB more in the mirror .* --model-repository-mirror"):
                mirror_all(s3.uri(), small / "mirror")
            put_model(s3, "m", {"1/big": content(4 << 20)})
            assert mirror_all(s3.uri(), small / "mirror").keys() == {"m"}
            # What nobody uses makes room.
            s3.put("repo/m/1/big", content(6 << 20, 5))
            assert mirror_all(s3.uri(), small / "mirror").keys() == {"m"}
            # Room enough for the contents, and none for the copies of small files.
            put_model(s3, "n", {f"1/{number}": content(900 << 10, number) for number in range(6)})
            with pytest.raises(StoreError, match="there is no room for"):
                mirror_all(s3.uri(), small / "mirror")
        finally:
            subprocess.run(["umount", small], check=True)

    def test_a_folder_that_is_no_mirror(self, s3: S3, tmp_path: Path) -> None:
        (tmp_path / "thesis.doc").write_text("x")
        with pytest.raises(OptionError, match="holds other things"):
            catalog(s3.uri(), tmp_path)

    def test_the_folder_of_the_references_variable(
        self, s3: S3, tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_model(s3, "m")
        monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path / "mount"))
        with pytest.raises(OptionError, match=r"TRITON_AWS_MOUNT_DIRECTORY names .*which is no folder"):
            catalog(s3.uri(), mirror)
        (tmp_path / "mount").mkdir()
        first = mirror_all(s3.uri(), mirror)
        assert first["m"].is_relative_to(tmp_path / "mount")
        assert not mirror.exists()
        s3.forget()
        assert mirror_all(s3.uri(), mirror) == first
        assert s3.asked == [], "the folder may hold an earlier mirror"


def test_the_command_that_checks(s3: S3, mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_model(s3, "good")
    put_model(s3, "bad", config="nonsense: 1")
    options = {"disable_auto_complete": False, "model_config_name": "", "backend_config": {}}
    assert run([RemoteUri(s3.uri())], mirror=str(mirror), **options) == 1  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "good: ok (version 1)" in shown
    assert "bad: 1 problem\n" in shown
    assert run([RemoteUri(s3.uri("nosuch"))], mirror=str(mirror), **options) == 1  # type: ignore[arg-type]
    assert "error: the model repository 's3://" in capsys.readouterr().out


class TestSharing:
    def test_two_servers_fetch_a_file_once(self, s3: S3, mirror: Path) -> None:
        put_model(s3, "m", {"1/big": content(2 * PART, 1), "1/small": b"x"})
        both = threading.Barrier(2)
        found: list[dict[str, Path]] = []

        def serve() -> None:
            both.wait(10)
            found.append(mirror_all(s3.uri(), mirror))

        threads = [threading.Thread(target=serve) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [files(places["m"]).keys() for places in found] == [{"config.pbtxt", "1/big", "1/small"}] * 2
        assert set(Counter((asked.key, asked.range) for asked in s3.asked).values()) == {1}

    def test_a_file_that_a_model_wrote_to_is_not_taken_for_the_stores(self, s3: S3, mirror: Path) -> None:
        big = content(2 << 20, 1)
        put_model(s3, "m", {"1/big": big, "1/small": b"small"})
        first = mirror_all(s3.uri(), mirror)["m"]
        for path, text in (("1/big", b"spoilt"), ("1/small", b"spoilt")):
            (first / path).chmod(0o644)
            with (first / path).open("r+b") as file:
                file.write(text)
        again = mirror_all(s3.uri(), mirror)["m"]
        assert files(again)["1/big"] == big
        assert files(again)["1/small"] == b"small"

    def test_what_was_used_least_recently_goes_when_the_mirror_is_over_its_size(self, s3: S3, mirror: Path) -> None:
        for number, name in enumerate("abc"):
            put_model(s3, name, {"1/big": content(2 << 20, number)})
        held = catalog(s3.uri(), mirror, 5 << 20)
        kept = held.obtain("a")
        for name in "bc":
            obtained = held.obtain(name)
            assert obtained.folder is not None
            obtained.folder.release()
        s3.forget()
        other = catalog(s3.uri(), mirror, 5 << 20)
        for name in "cab":
            assert other.obtain(name).source.name == name
        assert {key for key in s3.asked_keys() if key.endswith("big")} == {"repo/b/1/big"}
        assert files(folder(kept))["1/big"] == content(2 << 20, 0)
        held.close()
        other.close()

    def test_progress_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        progress = TransferProgress("model 'm'", 100)
        progress.skip(40)
        progress.add(60)
        progress.finish()
        assert "mirrored model 'm': 60 bytes in 0.0 s, 40 bytes were there" in caplog.text


def _lines(file: Path) -> int:
    """How many a file has; none when it is gone."""
    try:
        return file.read_text().count("\n")
    except FileNotFoundError:
        return 0


def _until(condition: object) -> list[Path]:
    import time

    deadline = time.monotonic() + 30
    while True:
        found = condition()  # type: ignore[operator]
        if found:
            return found  # type: ignore[no-any-return]
        assert time.monotonic() < deadline
        time.sleep(0.01)
