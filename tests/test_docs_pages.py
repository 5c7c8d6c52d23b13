"""What the pages point at is there: files and headings that links lead to, and files that the architecture names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
ARCHITECTURE = [DOCS / "architecture.md", *sorted((DOCS / "architecture").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/.*]+\.py|[\w/*]+/)`")
IN_A_MIRROR = {"objects/", "partial/", "views/", "index/", "users/"}
"""Folders of a mirror of remote repositories, which the page describes too."""
STEP = re.compile(r"^\| \d+ \| `([\w/.]+\.py)` \| (`[^|]+`) \| [^|]+ \|$", re.MULTILINE)
NUMBERED = re.compile(r"^\| \d+ \|", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target, heading in LINK.findall(FENCED.sub("", page.read_text())):
        if target.startswith(("https://", "http://")):
            continue
        file = page.parent / target if target else page
        if not file.exists() or (heading and heading not in anchors(file)):
            lost.append(f"{target}#{heading}")
    assert lost == []


def anchors(page: Path) -> set[str]:
    """The names that headings of a page have in links."""
    return {re.sub(r"[^\w\- ]", "", found.lower()).replace(" ", "-") for found in HEADING.findall(page.read_text())}


def test_every_page_is_in_the_index() -> None:
    named = {target for target, _ in LINK.findall((DOCS / "index.md").read_text())}
    assert {str(page.relative_to(DOCS)) for page in PAGES if DOCS in page.parents} - {"index.md"} - named == set()


def test_the_index_has_the_titles_of_the_pages() -> None:
    listed = re.findall(r"^ *- \[(.+)\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text(), re.MULTILINE)
    titles = {name: (DOCS / name).read_text().partition("\n")[0].removeprefix("# ") for _, name in listed}
    assert {name: title for title, name in listed} == titles


@pytest.mark.parametrize(
    ("page", "word"),
    [
        ("access", "Authentication"),
        ("batching", "batching"),
        ("generate", "generate"),
        ("model-repository", "Loading and unloading"),
        ("observing", "Logging"),
        ("rate-limits", "Rate limiter"),
        ("remote-repositories", "S3"),
        ("streaming", "Decoupled"),
    ],
)
def test_titles_say_what_people_look_for(page: str, word: str) -> None:
    assert word in (ROOT / "docs" / f"{page}.md").read_text().partition("\n")[0]


@pytest.mark.slow
def test_files_that_the_architecture_names_are_there() -> None:
    text = "".join(page.read_text() for page in ARCHITECTURE)
    named = set(FILE.findall(text)) - IN_A_MIRROR
    assert len(named) > 100
    assert sorted(name for name in named if not found(name)) == []


def found(name: str) -> bool:
    """Whether a file or a folder of this name is there, by its path or by the end of it."""
    return any(ROOT.glob(name)) or any((ROOT / "src").glob(f"**/{name}"))


@pytest.mark.parametrize("page", ARCHITECTURE[1:], ids=lambda page: page.stem)
def test_the_calls_that_a_page_follows_are_there(page: Path) -> None:
    text = page.read_text()
    steps = STEP.findall(text)
    assert len(steps) == len(NUMBERED.findall(text)) > 10, "a row is not | step | `file` | `function` | what happens |"
    lost = [
        f"{file}: {function}"
        for file, functions in steps
        for function in re.findall(r"`([^`]+)`", functions)
        if function not in defined(ROOT / "src" / "naiad" / file)
    ]
    assert lost == [], "renamed or moved: follow it in the page"


def defined(file: Path) -> set[str]:
    """The classes, functions and methods of a file, as ``name`` and ``Class.name``; none where there is no file."""
    if not file.exists():
        return set()
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{inner.name}" for inner in methods}
    return found
