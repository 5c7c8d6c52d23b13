"""What an object keeps alive, to show that memories are bounded."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import types
from typing import Any

# Code is shared by everything, and loops and what runs on them lead everywhere, to the test itself as well.
CODE = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FrameType)
RUNNING = (asyncio.AbstractEventLoop, asyncio.Future, types.CoroutineType, types.GeneratorType, contextvars.Context)


def kept(root: object) -> list[Any]:
    """All objects that can be reached from ``root``, each once; not through code, event loops and tasks."""
    found: dict[int, Any] = {}
    todo = [root]
    while todo:
        one = todo.pop()
        if id(one) not in found and not isinstance(one, (*CODE, *RUNNING)):
            found[id(one)] = one
            # Of a function what it closes over; its module would lead everywhere.
            todo += gc.get_referents(one) if not isinstance(one, types.FunctionType) else one.__closure__ or ()
    return list(found.values())


def kept_of(root: object, kind: type) -> int:
    """How many objects of a type can be reached from ``root``."""
    return sum(isinstance(one, kind) for one in kept(root))
