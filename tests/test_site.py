"""The source of the documentation site: every page is in its navigation, and every link of a page leads to a page."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site") / "source"
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        importlib.import_module("site_pages").lay_out(folder)
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    yield folder


def listed(nav: Any) -> list[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for each in inner for page in listed(each)]


def test_every_page_is_in_the_navigation_once(source: Path) -> None:
    pages = {str(path.relative_to(source / "docs")) for path in (source / "docs").rglob("*.md")}
    found = listed(yaml.safe_load((source / "mkdocs.yml").read_text())["nav"])
    assert sorted(found) == sorted(pages)


def test_every_link_leads_to_a_page(source: Path) -> None:
    broken = [
        f"{path.relative_to(source)}: {target}"
        for path in (source / "docs").rglob("*.md")
        for target in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_a_field_has_a_page_with_those_within_it(source: Path) -> None:
    text = (source / "docs" / "fields" / "dynamic_batching.md").read_text()
    assert "naiad explain MODEL --field dynamic_batching" in text
    assert "| `dynamic_batching.max_queue_delay_microseconds` |" in text
