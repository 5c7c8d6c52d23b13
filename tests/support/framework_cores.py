"""The threads of a framework's models on the cores of their host policies, under load."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from naiad.backend_api.backend import Arrays
from naiad.backends import registry
from naiad.testing import ServerStateError, wait_until
from support.config_texts import parameter
from support.core_policies import ALL, CORES, cores_of_model_threads, cores_of_new_threads, cores_of_threads, group_on
from support.framework import Signature
from support.framework_server import FrameworkServer, Write

WIDE: Final = 100_000
"""Units of a network whose runs a framework divides among its threads."""
_THREADS: Final = 3
# What the threads of a load take to end.
_LOOK_S: Final = 20.0
_REQUESTS: Final = 8


def assert_on_cores(
    served: FrameworkServer, first: Signature, write: Write, inputs: Callable[[Signature, int, int], Arrays]
) -> None:
    """Load a network on each of two cores, with more threads than cores, and look at all of its threads under load.

    A model that is loaded already (``first``) has brought the threads that the framework has for itself.
    """
    served.infer("network", inputs(first, 1, 0))
    pool = served.framework.pool_parameter
    # A process has nothing to share with that of the other model.
    for core in CORES[-1:] if served.mode == "process" else CORES:
        model = f"on_core_{core}"
        more = group_on(core) + (parameter(pool, _THREADS) if pool else "")
        if registry.has_one_pool(served.framework.name) and served.mode != "process":
            served.write(model, write, more)
            assert f"has the cores of host policy 'core_{core}' and execution" in served.load_error(model)
            continue
        _assert_on_core(served, model, write, more, core, inputs)


def _assert_on_core(
    served: FrameworkServer,
    model: str,
    write: Write,
    more: str,
    core: int,
    inputs: Callable[[Signature, int, int], Arrays],
) -> None:
    # The threads of an earlier model end a moment after its unload.
    wait_until(lambda: set(_new(served, {})) == {ALL}, _LOOK_S, "no thread is on a core of its own")
    before = {process: cores_of_threads(process) for process in _processes(served)}
    with served.serving(model, write, more) as signature:
        waits = [served.begin(model, inputs(signature, 8, seed)) for seed in range(_REQUESTS)]
        # What loads the model ends a moment after it has answered.
        with suppress(ServerStateError):
            wait_until(lambda: set(_new(served, before)) == {str(core)}, _LOOK_S, f"new threads are on core {core}")
        for wait in waits:
            wait()
        found = _new(served, before)
        assert set(found) == {str(core)}, f"of {len(found)} new threads some are elsewhere: {found}"
        # The pool of the framework, beside the thread that runs the instance.
        assert len(found) >= (_THREADS if served.framework.pool_parameter else 1)
    for process, threads in before.items():
        now = cores_of_threads(process)
        assert all(now.get(thread, cores) == cores for thread, cores in threads.items())


def _processes(served: FrameworkServer) -> list[int]:
    """The processes that run models."""
    if served.mode == "thread":
        return [served.server.process.pid]
    return [process.pid for process in served.processes()]


def _new(served: FrameworkServer, before: dict[int, dict[int, str]]) -> list[str]:
    look = cores_of_model_threads if before and served.mode == "thread" else cores_of_new_threads
    return [cores for process in _processes(served) for cores in look(process, before.get(process, {}))]
