"""The command line of ``naiad perf advise``."""

from __future__ import annotations

import pytest

from naiad.cli.perf import perf
from naiad.perf.options import PerfOptionError, advise_usage, parse_advise
from naiad.perf.settings import AdviseSettings


def parse(text: str, **environ: str) -> AdviseSettings:
    return parse_advise(text.split(), environ)


def test_the_model_stands_anywhere_and_windows_are_short() -> None:
    for text in ("resnet -u host:1 -i grpc", "-u host:1 resnet -i grpc", "-u host:1 -m resnet -i grpc"):
        found = parse(text)
        assert (found.perf.target.model, found.perf.target.url, found.perf.target.protocol) == (
            "resnet",
            "host:1",
            "grpc",
        )
        assert (found.rounds, found.perf.measure.interval_ms) == (3, 1000)


def test_options_of_advice_and_of_measurements() -> None:
    found = parse("m --rounds=5 --latency-limit 20 --percentile=99 -p 300 --shape X:3,4 -b 2 -H A:B --json out.json")
    assert (found.rounds, found.perf.load.latency_limit_ms, found.perf.measure.percentile) == (5, 20, 99)
    assert (found.perf.measure.interval_ms, found.perf.input.shapes, found.perf.input.batch_size) == (
        300,
        {"X": (3, 4)},
        2,
    )
    assert found.perf.target.headers == (("A", "B"),)
    assert found.perf.output.json_file is not None
    assert parse("m --latency-limit=20").perf.load == parse("m -l 20").perf.load


def test_the_environment_counts_as_far_as_it_has_a_meaning() -> None:
    found = parse("m", NAIAD_PERF_URL="there:1", NAIAD_PERF_REQUEST_RATE_RANGE="5", NAIAD_PERF_SERVICE_KIND="openai")
    assert (found.perf.target.url, found.perf.target.service_kind) == ("there:1", "triton")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "found no model, expected one: naiad perf advise MODEL"),
        ("a b", "found 2 models: a, b, expected one"),
        ("m --rounds 1", "Failed to parse --rounds. The value must be > 1"),
        ("m --rounds x", "Failed to parse --rounds. Invalid value provided: x"),
        ("m --rounds", "option '--rounds' requires an argument"),
        ("m --latency-limit -1", "Failed to parse --latency-threshold"),
        ("m --concurrency-range 4", "--concurrency-range cannot be used with advise, which chooses the loads"),
        ("m --streaming", "--streaming cannot be used with advise"),
        ("m --service-kind openai", "--service-kind cannot be used with advise"),
        ("m --percentil=101", "Failed to parse --percentile. The value must be -1"),
        ("m --latency-treshold 5", "unrecognized option '--latency-treshold'; did you mean '--latency-threshold'?"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PerfOptionError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert all(line.startswith("Error: ") for line in str(caught.value).splitlines())


def test_the_command_refuses_and_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert perf(["advise", "m", "-z", "--rounds=0"]) == 3
    assert "Run 'naiad perf advise --help' for the options." in capsys.readouterr().err
    assert perf(["advise", "--help"]) == 0
    text = capsys.readouterr().out
    assert text == advise_usage()
    for name in ("--rounds", "--latency-limit", "--percentile", "--input-data", "-i <http|grpc>", "--json"):
        assert name in text
    assert "--concurrency-range" not in text
    assert "in milliseconds. (default: 1000)" in text
