"""``naiad infer`` against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import naiad
from naiad.cli.main import main
from naiad.inprocess.server import Server


def words(text: str) -> Iterator[str]:
    yield from text.split()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0)
    made.bind("words", words)
    made.bind("doubler", lambda x: 2 * x, inputs={"x": naiad.FP32[-1, 2]})
    made.bind("greet", lambda name, mark: [n.decode() + m.decode() for n, m in zip(name, mark, strict=True)],
              inputs={"name": naiad.BYTES, "mark": naiad.BYTES}, outputs={"text": naiad.BYTES})  # fmt: skip
    with made:
        yield made


def run(server: Server, *words: str) -> int:
    return main(["infer", *words, "--url", server.http_url])


def test_values_are_json_files_and_texts(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(server, "doubler", "--input", "[[1, 2]]") == 0
    assert capsys.readouterr().out == "output [1, 2]\n[[2. 4.]]\n"
    np.save(tmp_path / "x.npy", np.ones((2, 2), np.float32))
    assert run(server, "doubler", "-i", f"x={tmp_path / 'x.npy'}", "--version", "1", "-o", "output") == 0
    assert capsys.readouterr().out == "output [2, 2]\n[[2. 2.]\n [2. 2.]]\n"
    assert run(server, "greet", "-i", "name=you", "-i", 'mark=["!"]') == 0
    assert capsys.readouterr().out == "text [1]\n['you!']\n"


def test_dimensions_in_front_may_be_left_out(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row stands for a batch of one."""
    assert run(server, "doubler", "--input", "[1, 2]") == 0
    assert capsys.readouterr().out == "output [1, 2]\n[[2. 4.]]\n"
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    assert run(server, "doubler", "-i", str(tmp_path / "x.npy")) == 0
    assert capsys.readouterr().out == "output [1, 2]\n[[2. 2.]]\n"


def test_a_decoupled_model_has_all_its_responses_over_grpc(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "words", "-i", "one two", "--url", f"grpc://{server.grpc_url}"]) == 0
    assert capsys.readouterr().out == "output [1]\n['one']\noutput [1]\n['two']\n"
    assert run(server, "words", "-i", "one two") == 1
    assert "; gRPC has all responses: --url grpc://<host>:<gRPC port>" in capsys.readouterr().err


def test_outputs_can_be_saved(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.npz"
    assert run(server, "doubler", "-i", "[[1, 2]]", "--save", str(file)) == 0
    assert capsys.readouterr().out == f"wrote output to {file}\n"
    assert np.load(file)["output"].tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nothing", "-i", "1"), "error: Request for unknown model: 'nothing' is not found\n"),
        (
            ("greet", "-i", "you"),
            "error: --input 'you': expected <name>=<value> with one of the inputs ['name', 'mark']",
        ),
        (("doubler", "-i", "[[1]]", "-i", "[[1]]"), "error: --input: the input 'x' is given twice\n"),
        (("doubler", "-i", "a"), "error: --input 'a': the input 'x' is FP32, expected a number, JSON such as "),
        (("doubler", "-i", "[[1, 2"), "error: --input '[[1, 2': the input 'x' is FP32, expected a number, JSON"),
        (("doubler", "-i", "y=[[1, 2]]"), "error: --input 'y=[[1, 2]]': there is no input 'y', expected 'x'\n"),
        (("doubler", "-i", '[["a", 1]]'), "error: input 'x': could not convert string to float: 'a'"),
        (("doubler", "-i", "[[1, 2]]", "--save", "/missing/x.npz"), "error: --save /missing/x.npz: there is no folder"),
        (("doubler", "-i", "[[1]]"), "error: [request id: <id_unknown>] unexpected shape for input 'x'"),
        (("doubler", "-i", "missing.npy"), "error: 'missing.npy': No such file or directory\n"),
        (("doubler", "-i", "1", "-H", "x"), "error: --header 'x': expected 'name: value'\n"),
    ],
)
def test_errors(server: Server, words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(server, *words) == 1
    assert capsys.readouterr().err.startswith(text)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "EOF: reading magic string"),
        (b"PK\x03\x04 an archive", "the magic string is not correct"),
        (b"\x93NUMPY\x01\x00\x10\x00{", "EOF: reading array header"),
    ],
)
def test_files_that_hold_no_array(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, text: str
) -> None:
    file = tmp_path / "x.npy"
    file.write_bytes(content)
    assert run(server, "doubler", "-i", str(file)) == 1
    assert capsys.readouterr().err.startswith(f"error: --input {file}: {text}")
