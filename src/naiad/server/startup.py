"""The models that a server loads at its start."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from naiad.config.source import ModelSource
from naiad.errors import ModelLoadError, NaiadError
from naiad.lifecycle.state.load_threads import in_thread
from naiad.repository.catalog import Outline
from naiad.repository.local.layout import Listing
from naiad.server.build import Parts

if TYPE_CHECKING:
    from naiad.repository.remote.repository import RemoteModel

logger = logging.getLogger("naiad")


class Startup:
    """Reads the repositories and says which models to load first.

    Args:
        may_be_empty: no warning when there is no model.
    """

    def __init__(self, parts: Parts, may_be_empty: bool = False) -> None:
        self._parts = parts
        self._may_be_empty = may_be_empty
        self._outline: Outline | None = None

    def read(self) -> None:
        """Read the folders of the repositories at once, so that a missing one is reported before all else.

        Raises:
            NaiadError: a repository cannot be read.
        """
        self._outline = self._outline_of_all(is_whole=False)

    async def wanted(self) -> Sequence[ModelSource | RemoteModel]:
        """The models to load at the start."""
        options = self._parts.options
        is_whole = options.model_control_mode != "explicit" or options.load_model == ("*",)
        outline, self._outline = self._outline, None
        if outline is None:
            outline = await in_thread(self._outline_of_all, is_whole)
        for problem in outline.local.problems:
            if not problem.fatal:
                logger.warning("%s", problem.located())
        models = outline.models
        if not outline.names and options.model_control_mode != "explicit" and not self._may_be_empty:
            places = ", ".join(f"'{place}'" for place in (*options.model_repository, *options.paths))
            logger.warning(
                "no model is served: found none in %s, expected a folder for each model, such as double/1/model.onnx",
                places,
            )
        self._parts.manager.names.known = outline.names
        wanted = options.wanted_models(outline.names)
        for name in sorted(wanted - models.keys()):
            reason = outline.unavailable.get(
                name, "failed to poll from model repository: model not found in any model repository"
            )
            self._parts.manager.refuse(name, ModelLoadError(reason))
        return tuple(source for name, source in models.items() if name in wanted)

    def _outline_of_all(self, is_whole: bool) -> Outline:
        """The content of the repositories, from which their watch begins."""
        outline = self._first_outline(is_whole)
        # Before the first load: the first look then finds the files that change while they are loaded.
        if self._parts.watch is not None:
            self._parts.watch.begin(outline.models, outline.unavailable)
        return outline

    def _first_outline(self, is_whole: bool) -> Outline:
        """The content of the repositories; empty when they cannot be read and ``--exit-on-error=false``."""
        try:
            return self._parts.catalog.outline(is_whole)
        except NaiadError as error:
            if self._parts.options.exit_on_error:
                raise
            logger.error("error: creating server: %s; it goes on without models, neither live nor ready", error)
            self._parts.engine.failure = f"the server could not be created: {error}"
            return Outline(Listing({}), {}, {})
