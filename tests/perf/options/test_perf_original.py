"""``naiad perf`` takes and refuses the command lines that perf_analyzer itself takes and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from naiad.perf.options import PerfOptionError, parse_perf
from naiad.perf.options.table import BY_LETTER, BY_NAME
from support.perf_analyzer import found_tool, run_tool

pytestmark = pytest.mark.slow

NOWHERE = "127.0.0.1:1"
"""Nobody listens there: a command line that is taken ends with this failure."""
NOT_REACHED = ("Couldn't connect to server", "Connection refused")

TAKEN = [
    "--percentile=95 --concurrency-range=1:4",
    "--percentile 95 --concurrency-range 8",
    "--percentile=-1 --concurrency-range 1:16:5 --measurement-interval 15000",
    "--concurrency-range 8:4",
    "--concurrency-range 1:0 -l 5",
    "--concurrency-range 1 --concurrency-range 1:4",
    "--binary-search --concurrency-range 1:8:2 -l 5",
    "--request-rate-range 10:100:10.5 --request-distribution poisson",
    "--request-rate-range 1e3 --max-threads 8",
    "--request-intervals gaps.txt --binary-search",
    "-i grpc --streaming --periodic-concurrency-range 1:7:2 --profile-export-file new.json --request-period 5",
    "-i GRPC",
    "-i Http",
    "-i grpc --streaming -a --grpc-compression-algorithm deflate",
    "-i grpc --request-parameter a:1:int --request-parameter b:true:BOOL --request-parameter c:d:string",
    "-i grpc --ssl-grpc-use-ssl",
    "-i grpc --grpc none",
    "--serv triton",
    "--input-data zero",
    "--input-data random --input-data data.json",
    "--input-data .",
    "--shape a:1,2 --shape b:c:3 --string-length 5 --string-data x",
    "--shared-memory system --output-shared-memory-size 0",
    "--input-tensor-format JSON --output-tensor-format binary",
    "--collect-metrics --metrics-url a:1/metrics --metrics-interval 5 --verbose-csv -f new.csv",
    "--measurement-mode count_windows --measurement-request-count 5 -s 5.5 -r 1",
    "-s 10%",
    "--request-count 0",
    "--request-count 8 --concurrency-range 8",
    "--sequence-length 0 --sequence-length-variation 0 --num-of-sequences 2 --serial-sequences",
    "--sequence-id-range 0:5",
    "--trace-level TIMESTAMPS --trace-rate 5 --trace-count -1 --log-frequency 0",
    "--bls-composing-models a:1,b",
    "--ssl-https-verify-peer 0 --ssl-https-verify-host 1 --ssl-https-private-key-type DER",
    "-H A:b -H C:d",
    "-va -b4 -x 1",
    "-v -v --sync",
    "-z",
    "-t 4",
    "-c 4 -d",
    "-d -l 5 -t 2",
    "--triton-server-directory /x --model-repository .",
    "word --sync",
]
REFUSED = [
    "--percentile 0",
    "--percentile 100",
    "--percentile=",
    "--concurrency-range 0",
    "--concurrency-range 1:0",
    "--concurrency-range 1:",
    "--concurrency-range 1:2:3:4",
    "--conc a",
    "--request-rate-range -1",
    "--request-rate-range 1:0",
    "--concurrency-range 1 --request-rate-range 2",
    "--request-intervals nofile",
    "-t 4 --concurrency-range 4",
    "--binary-search",
    "--binary-search --concurrency-range 1:0 -l 5",
    "--binary-search --concurrency-range 4:2 -l 5",
    "--periodic-concurrency-range 1",
    "--periodic-concurrency-range 1:4:2",
    "--periodic-concurrency-range 1:4",
    "-i nope",
    "--streaming",
    "--grpc-compression-algorithm gzip",
    "--request-parameter a:1:int",
    "-i grpc --request-parameter a:1",
    "--request-count -1",
    "--request-count 5 --concurrency-range 8",
    "--request-count 50 --request-rate-range 1:8",
    "--warmup-request-count -1",
    "-a --sync",
    "-z --input-data data.json",
    "--input-data nope",
    "--shape a",
    "--shape a:0",
    "--shape a:1,b",
    "--shared-memory nope",
    "--sequence-id-range 5:2",
    "--sequence-length-variation -1",
    "--service-kind torchserve",
    "--service-kind triton_c_api",
    "--service-kind openai",
    "--service-kind openai --input-data data.json --endpoint v1",
    "--collect-metrics --service-kind torchserve --input-data data.json",
    "--ssl-https-verify-host 3",
    "--ssl-grpc-private-key-file nofile",
    "--trace-level nope",
    "--trace-count a",
    "--log-frequency -1",
    "--profile-export-file data.json",
    "--max-threads a",
    "--measurement-mode nope",
    "-p 0",
    "-p a",
    "-s -1",
    "-b=4",
    "--async=true",
    "-q",
    "-x",
    "--zzz",
]


@pytest.fixture(scope="module")
def tool() -> str:
    return found_tool()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the files that the command lines name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.json").write_text('{"data": [{"INPUT0": [1]}]}')
    (tmp_path / "gaps.txt").write_text("100\n")


def original(tool: str, words: list[str]) -> str:
    """What it says on standard error."""
    done = run_tool([tool, *words])
    assert done.returncode == 99, done.stderr[:2000]
    return done.stderr


@pytest.mark.parametrize("words", TAKEN)
def test_both_take(tool: str, words: str) -> None:
    line = ["-m", "model", "-u", NOWHERE, *words.split()]
    said = original(tool, line)
    assert any(text in said for text in NOT_REACHED), said[:2000]
    parse_perf(line, {})


@pytest.mark.parametrize("words", REFUSED)
def test_both_refuse_with_the_same_text(tool: str, words: str) -> None:
    line = ["-m", "model", "-u", NOWHERE, *words.split()]
    said = original(tool, line)
    with pytest.raises(PerfOptionError) as caught:
        parse_perf(line, {})
    first = str(caught.value).splitlines()[0].removeprefix("Error: ")
    assert f": {first}\n" in said


def test_every_option_of_the_original_is_known(tool: str) -> None:
    """Those that it lists in its help text."""
    synopsis = run_tool([tool, "--help"]).stderr.partition("==== OPTIONS ====")[0]
    names = set(re.findall(r"--([a-z][a-z-]+)", synopsis))
    letters = set(re.findall(r"^\t-([a-zA-Z])\b", synopsis, re.MULTILINE)) | set(re.findall(r"\(-([a-z])\)", synopsis))
    assert len(names) > 50 and len(letters) > 10
    assert names - BY_NAME.keys() - {"help", "version"} == set()
    assert letters - BY_LETTER.keys() == set()
