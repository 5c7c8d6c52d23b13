"""The ``naiad`` command as a person meets it: what it prints where, and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from naiad.cli.main import main
from naiad.version import __version__


def naiad(*argv: str, script: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script] if script else [sys.executable, "-m", "naiad", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_the_commands(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert "\n  serve " in shown.out and "\n  check " in shown.out
    assert shown.err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"naiad {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["srve"], "error: unknown command 'srve'; did you mean 'serve'?\n"),
        (["--versoin"], "error: unknown option '--versoin'; did you mean '--version'?\n"),
        (
            ["bake"],
            "error: unknown command 'bake'; "
            "known ones are serve, check, explain, quickstart, infer, convert, perf, analyze, completion.\n",
        ),
    ],
)
def test_an_unknown_command_gets_the_nearest_one(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 1
    shown = capsys.readouterr()
    assert shown.err == text + "Run 'naiad --help' for what there is.\n"
    assert shown.out == ""


def test_options_without_a_command_are_those_of_serve(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--model-repository", str(tmp_path / "nowhere"), "--http-port=junk"]) == 1
    shown = capsys.readouterr()
    assert "--http-port" in shown.err and "Run 'naiad serve --help' for the options.\n" in shown.err


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--http-port=junk", "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Usage: naiad {command} [OPTION ...]")
    assert shown.err == ""


@pytest.mark.parametrize("command", ["serve", "check"])
def test_bad_options_print_only_what_is_wrong_and_a_hint(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--model-config-nmae=x", "--disable-auto-complete-config=1", "."]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        'Bad option: "--model-config-nmae". unknown option; did you mean "--model-config-name"?\n'
        'Bad option: "--disable-auto-complete-config". takes no value. Got 1\n'
        f"Run 'naiad {command} --help' for the options.\n"
    )


def test_serving_nothing_says_what_to_give(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAIAD_MODEL_REPOSITORY", raising=False)
    assert main(["serve"]) == 1
    assert capsys.readouterr().err.startswith("--model-repository must be specified")


def test_a_log_file_that_cannot_be_opened_is_a_bad_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", ".", "--log-file=/nonexistent/naiad.log"]) == 1
    assert capsys.readouterr().err.startswith('Bad option: "--log-file". cannot append to /nonexistent/naiad.log')


def test_the_module_runs_like_the_command() -> None:
    assert naiad("--version").stdout == f"naiad {__version__}\n"
    done = naiad("serve", "--http-port=x", ".")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith('Bad option: "--http-port". Invalid option value. Got x.')


def test_a_reader_that_went_away_is_no_traceback() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m naiad serve --help | true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_closed_standard_streams_are_not_given_to_files() -> None:
    script = (
        "import os, sys\nfrom naiad.cli.main import main\nos.close(1)\nsys.stdout = None\n"
        "code = main(['--version'])\nfile = os.open(os.devnull, os.O_RDONLY)\n"
        "sys.exit(0 if code == 0 and file > 2 else f'{code} {file}')"
    )
    done = naiad(script=script)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from naiad.cli.main import main; main(['serve', '--help'])\n"
        "heavy = {'numpy', 'google.protobuf', 'uvloop', 'rich', 'asyncio', 'psutil'} & sys.modules.keys()\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    assert naiad(script=script).stderr == ""


def test_check_gets_its_paths_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = 'name: "X" data_type: TYPE_FP32 dims: [4]'
    (tmp_path / "same" / "1").mkdir(parents=True)
    (tmp_path / "same" / "configs").mkdir()
    config = tmp_path / "same" / "config.pbtxt"
    config.write_text(f'backend: "identity"\ninput [{{ {tensor} }}]\noutput [{{ {tensor} }}]\n')
    (tmp_path / "same" / "configs" / "small.pbtxt").write_text('backend: "identity"\nperferred: 1\n')
    assert main(["check", str(tmp_path)]) == 0
    assert 'backend: "identity"' in capsys.readouterr().out
    assert main(["check", "--model-config-name=small", f"--model-repository={tmp_path}"]) == 1
    assert "small.pbtxt:2" in capsys.readouterr().out
