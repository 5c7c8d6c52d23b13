"""Every command of the documentation is run, each page from an empty folder of its own, as a reader would.

``bash`` and ``python`` blocks are run in their order; a block with ``naiad serve`` serves until the next such block. A
block whose first line is a comment with a path, such as ``# models/add/1/model.py``, is that file. A ``json`` block is
the output of the block before it. ``sh`` blocks need what is not part of Naiad, such as a bucket or Redis, and are not
run.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from support.document_blocks import ROOT, Block, Terminal, blocks

FILE = re.compile(r"# ([\w.-]+/[\w./-]+)\n")
# They would change the environment that runs the tests, and tests/test_readme.py runs the demo.
NOT_RUN = re.compile(r"^(pip install|scripts/)", re.MULTILINE)
KEPT = re.compile(r"^(import tritonclient.*|client = .*)$", re.MULTILINE)
PAGES = sorted(
    page for page in (ROOT / "docs").rglob("*.md") if page.stem != "benchmarks" and any(b.serves for b in blocks(page))
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "empty"
    made.mkdir()
    return made


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="the commands need curl and openssl")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_from_an_empty_folder(page: Path, folder: Path) -> None:
    terminal = Terminal(folder)
    output, client = "", ""
    try:
        for block in blocks(page):
            if named := FILE.match(block.text):
                file = folder / named[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
            elif block.language == "json":
                assert json.loads(output) == json.loads(block.text), block.place
            elif block.language == "bash" and not NOT_RUN.search(block.text):
                output = terminal.run(block)
            elif block.language == "python" and not is_part_of_a_server(block):
                output = terminal.run(Block("python", client + block.text, block.place))
                client += "".join(f"{line}\n" for line in KEPT.findall(block.text))
    finally:
        terminal.stop()


def is_part_of_a_server(block: Block) -> bool:
    """A class that the server would run: it is no program, unless it starts the server itself."""
    compile(block.text, block.place, "exec")
    return re.search(r"^class \w+", block.text, re.MULTILINE) is not None and "naiad.Server" not in block.text


def test_pages_with_commands_say_how_to_start_the_server() -> None:
    """Otherwise their commands are not run above."""
    pages = (ROOT / "docs").rglob("*.md")
    asking = {p.name for p in pages if any(b.language == "bash" and "curl" in b.text for b in blocks(p))}
    assert asking <= {page.name for page in PAGES}
    assert len(PAGES) >= 18
