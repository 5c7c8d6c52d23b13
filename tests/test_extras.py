"""What is not installed is named with commands that install it, from the index and from a checkout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from naiad.backends.registry import BACKENDS
from naiad.extras import how_to_install

ROOT = Path(__file__).parent.parent
EXTRA = re.compile(r"how_to_install\(['\"]([\w-]+)['\"]\)")


def test_both_ways_are_said() -> None:
    assert how_to_install("torch") == ("pip install 'naiad[torch]', or pip install '.[torch]' in a checkout of Naiad")


def test_extras_that_texts_name_exist_and_are_named_in_one_way() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = {file: file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py")}
    named = {extra for text in sources.values() for extra in EXTRA.findall(text)}
    named |= {entry.extra for entry in BACKENDS.values() if entry.extra}
    assert (
        {"otel", "otel-grpc", "cloud", "redis", "grpcio", "torch", "onnx"}
        <= named
        <= set(project["optional-dependencies"])
    )
    by_hand = [str(file) for file, text in sources.items() if file.name != "extras.py" and "naiad[" in text]
    assert by_hand == []
