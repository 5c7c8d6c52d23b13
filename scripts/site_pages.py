"""Lay out the source of the documentation site.

Its pages are those of docs/, one for each field of a model configuration, and one for each public module.
scripts/docs --site runs this, and builds the site from what it writes.

Usage: site_pages.py FOLDER
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from naiad.explain.report import FieldLine, field_lines

ROOT = Path(__file__).resolve().parents[1]
# The public modules, in the order of a reader's interest.
MODULES = ("naiad", "naiad.client", "naiad.api", "naiad.testing", "naiad.errors")
# Pages of the repository's root, which pages of docs/ link to.
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"- \[([^\]]+)\]\(([^)#]+)\)")


def lay_out(folder: Path) -> None:
    """Write ``docs`` and ``mkdocs.yml`` into a folder."""
    pages = folder / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "docs", pages)
    for name in ROOT_PAGES:
        # Links from docs/ to the root, and from the root to docs/, become links within one folder.
        text = (ROOT / name).read_text().replace("](docs/", "](")
        (pages / name).write_text(re.sub(r"\]\((?:\.\./)?README\.md\)", "](index.md)", text))
    for page in pages.rglob("*.md"):
        text = page.read_text()
        for name in ROOT_PAGES:
            text = text.replace(f"](../{name})", f"]({name})")
        page.write_text(text)
    reference = write_reference(pages / "reference")
    fields = write_fields(pages / "fields")
    nav = [*navigation((ROOT / "docs" / "index.md").read_text())]
    nav += [{"Reference": reference}, {"Configuration fields": fields}]
    nav += [{"Changes": "CHANGELOG.md"}, {"Security": "SECURITY.md"}]
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings(nav), sort_keys=False, allow_unicode=True))


def navigation(index: str) -> list[dict[str, Any]]:
    """The sections of docs/index.md, with their links."""
    sections: list[dict[str, Any]] = [{"Naiad": "index.md"}]
    entries: list[dict[str, str]] = []
    for line in index.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]+:", line):
            entries = []
            sections.append({line.removesuffix(":"): entries})
        elif found := LINK.search(line):
            entries.append({found[1].replace("`", ""): found[2].removeprefix("../")})
    return sections


def write_reference(folder: Path) -> list[dict[str, str]]:
    folder.mkdir()
    for module in MODULES:
        (folder / f"{module}.md").write_text(f"# {module}\n\n::: {module}\n")
    return [{module: f"reference/{module}.md"} for module in MODULES]


def write_fields(folder: Path) -> list[dict[str, str]]:
    """One page for each top-level field, with the fields below it."""
    folder.mkdir()
    families: dict[str, list[FieldLine]] = defaultdict(list)
    for line in field_lines():
        families[line.path.partition(".")[0]].append(line)
    for name, lines in families.items():
        (folder / f"{name}.md").write_text(field_page(name, lines))
    index = "".join(f"- [`{name}`]({name}.md): {lines[0].summary}\n" for name, lines in sorted(families.items()))
    (folder / "index.md").write_text(f"# Fields of a model configuration\n\n{index}")
    return [{"All fields": "fields/index.md"}, *({name: f"fields/{name}.md"} for name in sorted(families))]


def field_page(name: str, lines: list[FieldLine]) -> str:
    own, *below = lines
    text = f"# {name}\n\n{own.summary}\n"
    if own.metric:
        text += f"\nIts effect shows in the metric `{own.metric}`.\n"
    text += f"\n    naiad explain MODEL --field {name}\n"
    if below:
        text += "\n| field | meaning | metric |\n|---|---|---|\n"
        text += "".join(f"| `{line.path}` | {line.summary} | {code(line.metric)} |\n" for line in below)
    return text


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def settings(nav: list[dict[str, Any]]) -> dict[str, Any]:
    """What mkdocs needs: nothing of the site comes from third parties, and a broken link is an error."""
    return {
        "site_name": "Naiad",
        "site_description": "An inference server in Python, compatible with Triton",
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.indexes", "navigation.top", "content.code.copy", "search.highlight"],
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "toggle": {"icon": "material/weather-night", "name": "Dark"},
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "toggle": {"icon": "material/weather-sunny", "name": "Light"},
                },
            ],
        },
        "plugins": [
            "search",
            {
                "mkdocstrings": {
                    "handlers": {
                        "python": {
                            "paths": [str(ROOT / "src")],
                            "options": {
                                "docstring_style": "google",
                                "show_source": False,
                                "show_root_heading": False,
                                "heading_level": 2,
                                "members_order": "source",
                                "filters": ["!^_"],
                                "preload_modules": ["naiad"],
                            },
                        }
                    }
                }
            },
        ],
        "markdown_extensions": [
            "tables",
            "admonition",
            "attr_list",
            "pymdownx.superfences",
            {"toc": {"permalink": True}},
        ],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"},
        },
        "nav": nav,
    }


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
