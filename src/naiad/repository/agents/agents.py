"""Finding repository agents by name: built in, from an installed package, or in a file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

from naiad.errors import ModelLoadError, first_line
from naiad.repository.agents.call import Agent
from naiad.repository.agents.checksum import ChecksumAgent
from naiad.repository.agents.mirror import AgentMirror

logger = logging.getLogger("naiad")

ENTRY_POINTS: Final = "naiad.repository_agents"
"""The group of entry points under which packages offer agents."""
AGENT_FILE: Final = "agent.py"
"""The file of an agent in ``<repoagent-directory>/<name>/``."""
AGENT_CLASS: Final = "RepositoryAgent"
"""The class in that file."""


@dataclass(frozen=True, slots=True)
class AgentDirectory:
    """Finds agents by name: built in, offered by an installed package, or a file in ``directory``.

    ``limit_s`` is ``--repoagent-timeout-secs``: the seconds that each action of an agent may take, 0 for any number.
    ``mirror`` is where the agent ``mlflow`` fetches models to.
    """

    directory: Path = Path("/opt/tritonserver/repoagents")
    limit_s: float = 0
    mirror: AgentMirror = field(default_factory=AgentMirror)

    def create(self, name: str) -> Agent:
        """A new agent.

        Raises:
            ModelLoadError: there is no agent of that name, or it cannot be created.
        """
        kind = self._built_in().get(name) or self._offered(name) or self._in_file(name)
        try:
            agent: Agent = kind()
        except Exception as error:
            raise _unusable(name, error) from error
        return agent

    def _built_in(self) -> Mapping[str, Callable[[], Agent]]:
        return {"checksum": ChecksumAgent, "mlflow": self._mlflow}

    def _mlflow(self) -> Agent:
        # Imported here: few models come from MLflow.
        from naiad.repository.agents.mlflow import MlflowAgent

        return MlflowAgent(self.mirror.open())

    @staticmethod
    def _offered(name: str) -> Callable[[], Agent] | None:
        # It takes more memory than all agents, and few models have one from a package.
        from importlib.metadata import entry_points

        for entry in entry_points(group=ENTRY_POINTS, name=name):
            try:
                kind: Callable[[], Agent] = entry.load()
            except Exception as error:
                raise _unusable(name, error) from error
            return kind
        return None

    def _in_file(self, name: str) -> Callable[[], Agent]:
        if not name or name.startswith(".") or any(mark in name for mark in "/\\\0"):
            raise ModelLoadError(f"'{name}' cannot be the name of a repository agent, expected that of a folder")
        file = self.directory / name / AGENT_FILE
        if not file.is_file():
            raise ModelLoadError(
                f"there is no repository agent '{name}': it is none of {sorted(self._built_in())}, no installed "
                f"package offers it as an entry point in '{ENTRY_POINTS}', and there is no file '{name}/{AGENT_FILE}' "
                "in the folder of --repoagent-directory"
            )
        try:
            kind: Callable[[], Agent] = getattr(_run(name, file), AGENT_CLASS)
        except Exception as error:
            raise _unusable(name, error) from error
        return kind


def _run(name: str, file: Path) -> ModuleType:
    """The module of the file as it is now; bytecode that Python cached beside it may be out of date."""
    module = ModuleType(f"naiad_repository_agent_{name}")
    module.__file__ = str(file)
    # Dataclasses and pickles look for the module of a class there.
    sys.modules[module.__name__] = module
    exec(compile(file.read_bytes(), file, "exec"), module.__dict__)
    return module


def _unusable(name: str, error: Exception) -> ModelLoadError:
    logger.error("the repository agent '%s' cannot be used", name, exc_info=error)
    return ModelLoadError(f"the repository agent '{name}' cannot be used: {type(error).__name__}: {first_line(error)}")
