"""What to do about a file of a forest that treelite does not read."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_LINEAR: Final = b"gblinear"


def remedy_of(file: Path, reason: str) -> str:
    """The end of an error text: what ``reason`` and the content of ``file`` say beside damage, and what to do."""
    import treelite

    here = f"this is treelite {treelite.__version__}"
    if "objective" in reason.lower():
        return f"{here}, which knows the objectives of the libraries alone; train the model with one of those"
    if "Treelite version" in reason:
        return f"{here}; write the checkpoint with this version, or serve the file that it was made from"
    if "categorical encoder" in reason:
        return f"{here}; train the model on the numbers of the categories, with feature_types instead of a data frame"
    # Treelite says where it stopped reading, not that such a model has no trees.
    if _contains(file, _LINEAR):
        return "its booster is gblinear, a linear model without trees; serve it as ONNX or as a Python model"
    if "Handler error" in reason:
        return (
            "the file is damaged, or has a field that treelite does not know; save or copy it again, or set "
            "xgboost_allow_unknown_field"
        )
    return "the file is damaged, cut short or of another format; save or copy it again, or correct model_type"


def _contains(file: Path, word: bytes) -> bool:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(word) >= 0
