"""Registration of the clients' shared memory, over any protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.inference.offload import run_off_loop
from naiad.shared_memory.cuda import CudaRegion, check_handle

Done = Callable[[NaiadError | None], None]


def register_cuda(engine: Engine, name: str, handle: bytes, device_id: int, byte_size: int, done: Done) -> None:
    """Register memory of a device, then call ``done``, with the error if that fails.

    Raises:
        NaiadError: the name or the handle is refused at once; ``done`` is not called.
    """
    registry = engine.regions
    registry.check_new(name)
    check_handle(handle)

    def add(region: CudaRegion) -> None:
        try:
            registry.add_cuda(region)
        except NaiadError as error:
            done(error)
        else:
            done(None)

    # Opening the handle talks to the driver, so it is done in a thread; the registry belongs to the loop.
    run_off_loop(partial(CudaRegion, name, handle, device_id, byte_size), add, done, engine.budget, 0)
