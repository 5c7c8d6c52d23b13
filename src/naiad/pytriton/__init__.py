"""The names of PyTriton 0.7.0 on this server: change ``pytriton`` to ``naiad.pytriton`` in the imports.

```python
from naiad.pytriton.decorators import batch
from naiad.pytriton.model_config import ModelConfig, Tensor
from naiad.pytriton.triton import Triton
```
"""

from __future__ import annotations

import importlib
from types import ModuleType

from naiad.version import __version__

__all__ = ["__version__", "client", "model_config", "triton"]


def __getattr__(name: str) -> ModuleType:
    if name in ("client", "model_config", "triton"):
        return importlib.import_module(f"naiad.pytriton.{name}")
    raise AttributeError(f"module 'naiad.pytriton' has no attribute {name!r}")
