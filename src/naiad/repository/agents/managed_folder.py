"""A model's folder with its repository agents, from before its load until after its unload."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from naiad.errors import ModelLoadError, NaiadError, first_line
from naiad.repository.agents.agents import AgentDirectory
from naiad.repository.agents.call import Action, Agent, AgentCall
from naiad.repository.agents.time_limit import in_time
from naiad.repository.local.temporary_folder import ModelFolder, TemporaryFolder, remove_abandoned
from naiad.repository.local.user_count import UserCount

if TYPE_CHECKING:
    from naiad.config.source import ModelSource

logger = logging.getLogger("naiad")


@dataclass(frozen=True, slots=True)
class _Engaged:
    """An agent with its name and its parameters."""

    name: str
    agent: Agent
    parameters: Mapping[str, str]


class ManagedFolder:
    """The folder of one load of one model, with its agents. Its methods call agents and remove files: for threads only.

    Attributes:
        path: where the model is to be loaded from.
    """

    def __init__(self, source: ModelSource, agents: Sequence[_Engaged], limit_s: float = 0) -> None:
        assert source.directory is not None
        self.path = source.directory
        self._model = source.name
        self._agents = agents
        self._limit_s = limit_s
        self._under: ModelFolder | None = None
        self._own: list[TemporaryFolder] = []
        self._lock = threading.Lock()
        self._user_count = UserCount()
        self._serving = 0
        self._is_loaded = False
        self._is_notified = False
        self._is_removed = False

    def load(self) -> None:
        """Call all agents with LOAD. They decide whether the model may be loaded, and from which folder.

        Raises:
            ModelLoadError: an agent refuses the model. The agents called before it are notified with LOAD_FAIL.
        """
        consulted: list[_Engaged] = []
        try:
            for engaged in self._agents:
                self._consult(engaged)
                consulted.append(engaged)
        except BaseException:
            self._notify(Action.LOAD_FAIL, consulted)
            self._remove()
            raise

    def comes_in(self, under: ModelFolder | None) -> None:
        """Release ``under``, the model's own temporary folder, together with this one."""
        self._under = under

    def tried(self, is_loaded: bool) -> None:
        """End the load; ``is_loaded`` says whether versions of it serve."""
        self._is_loaded = is_loaded
        # Before the release, which may be the last one: agents see the end of a load before an unload.
        self._notify(Action.LOAD_COMPLETE if is_loaded else Action.LOAD_FAIL, self._agents)
        self.release()

    def lease(self) -> None:
        """Count one more version that was loaded from the folder."""
        self._user_count.add()
        with self._lock:
            self._serving += 1

    def leave(self) -> None:
        """Note that a version is about to be closed."""
        with self._lock:
            self._serving -= 1
            is_last = self._serving == 0 and self._is_loaded and not self._is_notified
            self._is_notified = self._is_notified or is_last
        # Outside the lock: an agent may take its whole time limit, and other versions close meanwhile.
        if is_last:
            self._notify(Action.UNLOAD, self._agents)

    def release(self) -> None:
        """Note that a version is closed."""
        if not self._user_count.remove():
            return
        if self._is_loaded:
            # All versions may have left before the load ended: ``leave`` could not know yet that the model was kept.
            if not self._is_notified:
                self._notify(Action.UNLOAD, self._agents)
            self._notify(Action.UNLOAD_COMPLETE, self._agents)
        self._remove()

    def _consult(self, engaged: _Engaged) -> None:
        try:
            found = self._act(Action.LOAD, engaged)
        except NaiadError:
            # An error of Naiad's own, such as the checksum agent's, already has the text and the status for the caller.
            raise
        except Exception as error:
            logger.error("the repository agent '%s' refuses model '%s'", engaged.name, self._model, exc_info=error)
            raise ModelLoadError(
                f"the repository agent '{engaged.name}' refuses model '{self._model}': {first_line(error)}"
            ) from error
        if found is None:
            return
        if not isinstance(found, str | os.PathLike) or not os.path.isdir(found):
            raise ModelLoadError(
                f"the repository agent '{engaged.name}' puts model '{self._model}' into {found!r}, which is no folder: "
                "expected None, or the path of the folder to load the model from"
            )
        self.path = Path(os.path.abspath(found))

    def _notify(self, action: Action, agents: Sequence[_Engaged]) -> None:
        """Notify agents of an action that they cannot refuse; their exceptions go to the log."""
        for engaged in agents:
            try:
                self._act(action, engaged)
            except BaseException as error:
                # SystemExit included: the other agents are still to be notified, and the folder is still to be removed.
                logger.error(
                    "the repository agent '%s' failed at %s of model '%s'",
                    engaged.name,
                    action,
                    self._model,
                    exc_info=error,
                )

    def _act(self, action: Action, engaged: _Engaged) -> Path | str | None:
        make = self._new_folder if action is Action.LOAD else _no_folder
        call = AgentCall(action, self._model, self.path, engaged.parameters, make)
        return in_time(lambda: engaged.agent.act(call), self._limit_s)

    def _new_folder(self) -> Path:
        remove_abandoned()
        with self._lock:
            if self._is_removed:
                # An agent that exceeded its time still runs after its load has failed.
                _no_folder()
            folder = TemporaryFolder(self._model)
            self._own.append(folder)
        folder.path.mkdir()
        return folder.path

    def _remove(self) -> None:
        with self._lock:
            own, self._own, self._is_removed = self._own, [], True
        for folder in own:
            folder.release()
        if self._under is not None:
            self._under.release()


def tend(
    source: ModelSource, config: Any, directory: AgentDirectory, under: ModelFolder | None
) -> ManagedFolder | None:
    """Call the agents that ``config`` names; None when it names none. The caller holds the folder.

    ``under`` is the model's own temporary folder, if it has one. It is released together with the returned folder; when
    an error is raised, it stays with the caller.

    Raises:
        ModelLoadError: an agent refuses the model or does not exist, or the model is a single file.
    """
    named = config.model_repository_agents.agents
    if not named:
        return None
    if source.directory is None:
        raise ModelLoadError(f"model '{source.name}' is a single file: repository agents need a model's folder")
    agents = [_Engaged(agent.name, directory.create(agent.name), dict(agent.parameters)) for agent in named]
    folder = ManagedFolder(source, agents, directory.limit_s)
    folder.load()
    folder.comes_in(under)
    return folder


def _no_folder() -> Path:
    raise RuntimeError("folders are made at LOAD only")
