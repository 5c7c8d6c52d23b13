"""Files that tests write for ``naiad convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FUNCTION: Final = """
import numpy as np

WEIGHTS = np.ones(128 << 20, np.uint8)

def double(x):
    return {"y": 2 * x}

def data():
    for rows in (2, 3):
        yield {"x": np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)}

def half_right(found, wanted):
    return 0.5
"""
NETWORK: Final = """
import numpy as np
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

class Odd(Net):
    def forward(self, x):
        y = super().forward(x)
        return y if bool(y.sum() > 1e9) else y * 2

def net():
    torch.manual_seed(0)
    return Net()

def words():
    class Words(Net):
        def forward(self, x):
            return "cat"
    return Words()

def broken():
    made = Net()
    made.second.weight.data[0, 0] = float("nan")
    return made

def data():
    numbers = np.random.default_rng(0)
    for rows in (4, 3):
        yield {"x": numbers.normal(size=(rows, 8)).astype(np.float32)}
"""


def write_program(folder: Path, text: str) -> Path:
    """``program.py`` in a folder."""
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    return file
