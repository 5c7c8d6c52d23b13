"""The options of ``naiad perf`` as a person reads them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from naiad.perf.options import OPTIONS, PerfGroup, PerfOption, option_table_markdown, usage

PAGE = Path(__file__).parents[3] / "docs" / "perf-options.md"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_the_help_text_has_every_option(option: PerfOption) -> None:
    lines = usage().splitlines()
    assert any(line.startswith("  -") and set(option.flags) <= set(re.split(r"[ ,\[]+", line)) for line in lines)
    assert not option.variable or f"[{option.variable}]" in usage()


def test_lines_fit_a_terminal_and_groups_come_in_order() -> None:
    lines = usage().splitlines()
    assert max(map(len, lines)) <= 100
    headings = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == [group.value for group in PerfGroup]


def test_names_of_variables_are_unique() -> None:
    variables = [option.variable for option in OPTIONS if option.variable]
    assert len(set(variables)) == len(variables)
    assert {"NAIAD_PERF_URL", "NAIAD_PERF_CONCURRENCY_RANGE", "NAIAD_PERF_BATCH_SIZE"} <= set(variables)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text().endswith("\n\n" + option_table_markdown()), "run scripts/docs"
    assert "| Load | `--seed <n>` | `0` | `NAIAD_PERF_SEED` |" in option_table_markdown()


def test_the_options_are_read_without_numpy() -> None:
    """Shells read the completion at each start, and a wrong option should be said at once."""
    code = "import sys, naiad.perf.options; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
