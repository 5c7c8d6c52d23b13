"""Whether an error says that memory lacks: SageMaker then unloads other models, and tries again."""

from __future__ import annotations

import re
from typing import Final

_SIGNS: Final = re.compile(
    # The frameworks' own words, of which the reference knows most.
    r"[Oo]ut [Oo]f [Mm]emory|OUT_OF_MEMORY|OutOfMemory|MemoryError|\bOOM\b|[Ff]ailed to allocate memory"
    r"|(?:CUDNN|CUBLAS)_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|(?:Dst|Src) tensor is not initialized"
    r"|No space left on device|Cannot allocate memory|--model-memory-budget"
)


def is_memory_shortage(text: str) -> bool:
    """Whether the text of an error is that of a lack of memory, of the server, of a GPU or of a disk."""
    return _SIGNS.search(text) is not None
