"""Every block of the README is run, in order, in an empty folder, against the servers that the README itself starts.

A ``bash`` block with ``scripts/demo`` or ``naiad serve`` serves until the next such block. The blocks between are what
the reader types into a second terminal. A ``text`` or ``json`` block is the output of the block before it.
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.document_blocks import ROOT, Block, Terminal, blocks

PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "clone"
    folder.mkdir()
    terminal = Terminal(folder)
    yield terminal
    terminal.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's commands need curl")
def test_blocks_do_what_they_say(terminal: Terminal) -> None:
    output = ""
    for block in blocks(PAGE):
        if block.language == "text":
            assert output.strip() == block.text.strip(), block.place
        elif block.language == "json":
            assert json.loads(output) == json.loads(block.text), block.place
        elif not is_installation(block):
            output = terminal.run(block)


def is_installation(block: Block) -> bool:
    """Installing is left out here: it would change the environment that runs the tests."""
    return block.language == "bash" and block.text.startswith("pip install")


def test_installations_name_real_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {extra for names in re.findall(r"(?:naiad|\.)\[([\w,]+)\]", README) for extra in names.split(",")}
    assert named
    assert named <= set(extras)


def test_a_model_is_served_and_answers_within_the_first_lines() -> None:
    served = next(b for b in blocks(PAGE) if b.serves)
    answer = next(b for b in blocks(PAGE) if b.language in ("text", "json"))
    assert line(served) <= 25
    assert line(answer) <= 30
    assert len(README.splitlines()) < 130


def line(block: Block) -> int:
    return int(block.place.rpartition(":")[2])


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
