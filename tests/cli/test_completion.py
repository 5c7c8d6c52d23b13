"""``naiad completion``, in the shells themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from naiad.cli.completion import SHELLS
from naiad.cli.main import main
from naiad.options import OPTIONS
from naiad.perf.options import OPTIONS as PERF_OPTIONS

Completed = Callable[..., list[str]]


@pytest.fixture
def completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Completed:
    """What bash offers for the last of some words, which it splits at "=" as well."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "naiad.bash"
    script.write_text(capsys.readouterr().out)

    def complete(*words: str) -> list[str]:
        line = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _naiad; printf "%s\\n" "${COMPREPLY[@]}"'
        command = ["bash", "-euc", line, "bash", str(script), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if line]

    return complete


def test_bash_completes_commands_and_options(completed: Completed) -> None:
    assert completed("naiad", "") == [
        *("serve", "check", "explain", "quickstart", "infer", "convert", "perf", "analyze", "completion"),
        *("--help", "--version"),
    ]
    assert completed("naiad", "ch") == ["check"]
    assert completed("naiad", "explain", "--fi") == ["--field"]
    assert completed("naiad", "quickstart", "--") == ["--help", "--models", "--force", "--list"]
    assert completed("naiad", "serve", "--http-p") == ["--http-port", "--http-port-serves-grpc"]
    assert completed("naiad", "check", "--http-p") == []
    assert completed("naiad", "infer", "--in") == ["--input"]
    assert completed("naiad", "completion", "") == list(SHELLS)


def test_bash_completes_values(completed: Completed) -> None:
    assert completed("naiad", "serve", "--log-format", "=", "I") == ["ISO8601"]
    assert completed("naiad", "serve", "--log-format", "=") == ["default", "ISO8601", "json"]
    assert completed("naiad", "serve", "--allow-grpc", "f") == ["false"]


def test_bash_completes_the_options_of_perf(completed: Completed, tmp_path: Path) -> None:
    (tmp_path / "in.json").touch()
    assert completed("naiad", "perf", "--conc") == ["--concurrency-range"]
    assert completed("naiad", "perf", "--http-p") == []
    assert completed("naiad", "perf", "ad") == ["advise"]
    assert completed("naiad", "perf", "--rou") == []
    assert completed("naiad", "perf", "advise", "simple", "--rou") == ["--rounds"]
    assert completed("naiad", "perf", "--measurement-mode", "=", "c") == ["count_windows"]
    assert completed("naiad", "perf", "-i", "g") == ["grpc"]
    assert completed("naiad", "perf", "--shared-memory=s") == ["--shared-memory=system"]
    assert completed("naiad", "perf", "--input-data", "in") == ["in.json"]
    # An option of serve with few values, which perf has not.
    assert completed("naiad", "perf", "--log-format", "=", "I") == []


def test_bash_completes_files(completed: Completed, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "my models").mkdir()
    assert completed("naiad", "serve", "mod") == ["models"]
    assert completed("naiad", "serve", "my") == ["my models"]
    assert completed("naiad", "check", "--model-repository", "=", "mod") == ["models"]


def test_bash_completes_values_where_an_option_is_one_word(completed: Completed, tmp_path: Path) -> None:
    """As it is without "=" in ``COMP_WORDBREAKS``."""
    (tmp_path / "models").mkdir()
    assert completed("naiad", "serve", "--log-format=I") == ["--log-format=ISO8601"]
    assert completed("naiad", "check", "--model-repository=mod") == ["--model-repository=models"]


# The key ^K keeps the line and ends the shell. The first command has run when the second line is typed.
ZSH_WITH_KEYS = r"""
zmodload zsh/zpty
zpty shell zsh -fi
zpty -w shell 'autoload -U compinit && compinit -u -D; source $SCRIPT
keep() { print -r -- $BUFFER >$KEPT; exit }; zle -N keep; bindkey "^K" keep; print REA''DY'
zpty -r shell said '*READY*'
zpty -n -w shell "$1"$'\t\v'
while zpty -r shell said; do :; done
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("naiad ch", "naiad check "),
        ("naiad serve --http-port-s", "naiad serve --http-port-serves-grpc "),
        ("naiad check --http-port-s", "naiad check --http-port-s"),
        ("naiad serve --log-format I", "naiad serve --log-format ISO8601 "),
        ("naiad serve --log-format=I", "naiad serve --log-format=ISO8601 "),
        ("naiad check --model-repository mod", "naiad check --model-repository models "),
        ("naiad completion z", "naiad completion zsh "),
        ("naiad perf --html-", "naiad perf --html-"),
        ("naiad perf --serial", "naiad perf --serial-sequences "),
        ("naiad perf --measurement-mode c", "naiad perf --measurement-mode count_windows "),
    ],
)
def test_zsh_completes_what_is_typed(typed: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    script, kept = tmp_path / "naiad.zsh", tmp_path / "kept"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "models").mkdir()
    environment = {**os.environ, "SCRIPT": str(script), "KEPT": str(kept)}
    command = ["zsh", "-fc", ZSH_WITH_KEYS, "zsh", typed]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True)
    assert kept.read_text() == f"{line}\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_what_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    script = tmp_path / "naiad.fish"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "models").mkdir()
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}

    def completed(typed: str) -> list[str]:
        command = ["fish", "-c", "source $argv[1]; complete --do-complete $argv[2]", str(script), typed]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]

    assert completed("naiad ch") == ["check"]
    assert completed("naiad serve --http-p") == ["--http-port", "--http-port-serves-grpc"]
    assert completed("naiad check --http-p") == []
    assert completed("naiad serve --log-format ") == ["default", "ISO8601", "json"]
    assert completed("naiad serve --log-format=I") == ["--log-format=ISO8601"]
    assert completed("naiad check --model-repository mod") == ["models/"]
    assert completed("naiad perf --serial") == ["--serial-sequences"]
    assert completed("naiad perf ad") == ["advise"]
    assert completed("naiad perf -i g") == ["grpc"]
    assert sorted(completed("naiad completion ")) == sorted(SHELLS)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for option in OPTIONS:
        assert (f"-l {option.flag.removeprefix('--')} -d " if shell == "fish" else option.flag) in script
    for perf_option in PERF_OPTIONS:
        for flag in perf_option.flags:
            assert (f" -{'l' if flag[1] == '-' else 's'} {flag.lstrip('-')} " if shell == "fish" else flag) in script


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_reads_the_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    main(["completion", shell])
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("argv", [[], ["tcsh"], ["bash", "zsh"]])
def test_an_unknown_shell_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", *argv]) == 1
    assert capsys.readouterr().err.startswith("error: expected one of bash, zsh, fish, found ")
