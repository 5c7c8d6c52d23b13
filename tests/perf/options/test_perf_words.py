"""The words of a command line are taken as ``getopt_long`` takes them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.perf.options import OPTIONS, PerfOptionError, parse_perf, swept_shapes, wants_help, wants_version

FLAGS = [flag for option in OPTIONS for flag in option.flags]
VALUES = ["", "0", "-1", "1:4", "1:0", "a:b", "a:1:int", "1e309", "x" * 5000, "\0", "=", "--", ".", "grpc", "batch=2"]
WORDS = st.sampled_from(FLAGS) | st.sampled_from(VALUES) | st.text(max_size=6)


@pytest.mark.parametrize(
    "words",
    [
        ["-mx", "--percentile=95", "-va", "-b2"],
        ["-m", "x", "--percentile", "95", "-v", "-a", "-b", "2"],
        ["-avmx", "--perc=95", "-b", "+2"],
        ["--perce", "95", "-avb2", "-m", "x"],
        ["-vab", "2", "-mx", "--percentile=95"],
    ],
)
def test_ways_to_write_the_same(words: list[str]) -> None:
    got = parse_perf(words, {})
    assert (got.target.model, got.measure.percentile, got.output.verbose) == ("x", 95, 1)
    assert (got.target.is_async, got.input.batch_size, got.warnings) == (True, 2, ())


def test_a_value_may_look_like_an_option() -> None:
    assert parse_perf(["-m", "-b", "--string-data", "--sync"], {}).input.string_data == "--sync"
    assert parse_perf(["-m-b", "--string-data="], {}).target.model == "-b"
    assert parse_perf(["-mx", "--string-data=a=b"], {}).input.string_data == "a=b"


def test_an_abbreviation_that_the_reference_takes_keeps_its_meaning() -> None:
    """``--server-pid`` and ``--grpc-method`` begin alike, and perf_analyzer 2.51 has neither."""
    assert parse_perf(["-mx", "--serv=tfserving"], {}).target.service_kind == "tfserving"
    assert parse_perf(["-mx", "--grpc=gzip", "-igrpc"], {}).target.compression == "gzip"
    assert parse_perf(["-mx", "--sequence-length=3"], {}).load.sequence_length == 3
    assert parse_perf(["-mx", "--clien=3"], {}).load.client_workers == 3


def test_words_that_belong_to_no_option_are_ignored_with_a_warning() -> None:
    got = parse_perf(["one", "-mx", "two", "--", "--sync", "-"], {})
    assert got.target.is_async is None
    assert [text.split("'")[1] for text in got.warnings] == ["one", "two", "--sync", "-"]


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        (["-h"], True),
        (["-mx", "-?"], True),
        (["--help"], True),
        (["--he"], True),
        (["-ah"], True),
        (["-m", "-h"], False),
        (["--", "-h"], False),
        (["-mh"], False),
    ],
)
def test_help_is_asked_for(words: list[str], helps: bool) -> None:
    assert wants_help(words) is helps
    assert not wants_version(words)


def test_the_version_is_asked_for() -> None:
    assert wants_version(["--version"])
    assert wants_version(["--vers", "--nope"])
    assert not wants_version(["-mx", "--verbose-csv"])


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("3x224x224", {"": (3, 224, 224)}),
        ("5", {"": (5,)}),
        ("a:b:3x4+c:1", {"a:b": (3, 4), "c": (1,)}),
    ],
)
def test_shapes_of_a_sweep(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert swept_shapes(text) == shapes


def test_a_sweep_has_each_value_once() -> None:
    assert parse_perf(["-mx", "--sweep=batch=1,2,1,shape=3,batch=4"], {}).sweep == {
        "batch": ("1", "2", "4"),
        "shape": ("3",),
    }


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_any_words_are_settings_or_a_refusal(words: list[str]) -> None:
    with contextlib.suppress(PerfOptionError):
        assert parse_perf(["-mx", *words], {}).given
