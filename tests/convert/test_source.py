"""The model that is converted, as it is called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from naiad.convert.errors import StepError
from naiad.convert.source import load_source


@pytest.mark.slow
def test_an_archive_becomes_a_module_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(1, 4),))
    torch.export.save(program, tmp_path / "model.pt2")
    made = []
    module = torch.export.ExportedProgram.module

    def counted(self, *words, **more):  # type: ignore[no-untyped-def]
        made.append(self)
        return module(self, *words, **more)

    monkeypatch.setattr(torch.export.ExportedProgram, "module", counted)
    source = load_source(str(tmp_path / "model.pt2"))
    sample = {"x": np.ones((1, 4), np.float32)}
    first, second = source.arrays(sample), source.arrays(sample)
    assert len(made) == 1
    assert np.array_equal(first["output__0"], second["output__0"])


def test_a_program_without_the_name_of_the_model(tmp_path: Path) -> None:
    """The error says how to name it."""
    (tmp_path / "net.py").write_text("")
    with pytest.raises(StepError, match=r"'net\.py' is a program") as found:
        load_source(str(tmp_path / "net.py"))
    assert found.value.advice.endswith("/net.py:NAME")
