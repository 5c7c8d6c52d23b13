"""The networks that are measured: what goes in, what comes out, and how fast a server has to be with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .form import Array, Format

TREE_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class Subject:
    """One network.

    Attributes:
        name: as ``networks`` has it.
        shape: of its input, in torch's order.
        below: what the elements are less than: whole numbers when it is above 1.
        output: the shape of its output.
        least: the bound of the rate through the server over that of the framework.
        least_rows: the bound of the rows per second through the server, 0 for none.
        share: the part of a measurement's length that it needs: fast networks need less.
    """

    name: str
    shape: tuple[int, ...]
    output: tuple[int, ...]
    least: float | None = None
    below: int = 1
    least_rows: int = 0
    share: float = 0.5

    def sample(self, form: Format) -> Array:
        """An input in the order of axes that ``form`` wants."""
        random = np.random.default_rng(0)
        if self.below > 1:
            return random.integers(0, self.below, self.shape)
        made = random.random(self.shape, np.float32)
        return np.ascontiguousarray(made.transpose(0, 2, 3, 1)) if self.is_turned(form) else made

    def is_turned(self, form: Format) -> bool:
        """Whether the channels of its images come last."""
        return form.channels_last and len(self.shape) == 4


SUBJECTS = (
    Subject("resnet50", (1, 3, 224, 224), (1, 1000), least=0.95, share=1.0),
    Subject("dense", (16, 512), (16, 512), least=0.8),
    Subject("bert_tiny", (1, 128), (1, 128, 128), below=30_000),
    Subject("trees", (16, TREE_COLUMNS), (16, 1)),
    Subject("trees_256", (256, TREE_COLUMNS), (256, 1), least_rows=100_000),
)
"""Those of the case ``formats``."""
DENSENET = Subject("densenet121", (1, 3, 224, 224), (1, 1000))
