"""A server inside another program: the same models, schedulers and instances, without any listener."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from typing import Final

from naiad.engine.engine import Engine
from naiad.frontends.inference.offload import use_one_thread
from naiad.options import parse
from naiad.repository.local.overrides import Overrides
from naiad.server.build import build
from naiad.server.process import SWITCH_INTERVAL_S
from naiad.telemetry.logs.server_log import LogSettings, ServerLog

UNLOAD_S: Final = 10.0
"""How long ``close`` waits for the models to be unloaded, in seconds."""


class EmbeddedServer:
    """Serves models of a repository to its own process. Everything runs on the event loop that calls ``load``.

    Raises:
        OptionError: the repository cannot be read.
    """

    def __init__(self, repository: Path) -> None:
        options = parse(["--model-repository", str(repository), "--model-control-mode=explicit"], {})
        self._parts = build(options, ServerLog(LogSettings()))

    @property
    def engine(self) -> Engine:
        """Where requests are submitted to models."""
        return self._parts.engine

    async def load(self, name: str) -> None:
        """Load a model, and for an ensemble its members.

        Raises:
            NaiadError: there is no such model, or it cannot be loaded.
        """
        use_one_thread(asyncio.get_running_loop())
        # As a server does: the threads of instances hand over as often as they do there.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        manager = self._parts.manager
        await manager.load_all(())
        await manager.load_model(name, Overrides())
        gc.collect()
        gc.freeze()

    async def close(self) -> None:
        """Unload all models and release what they hold."""
        self._parts.engine.tuner.close()
        await self._parts.manager.unload_all(UNLOAD_S)
        self._parts.close()
        gc.unfreeze()
