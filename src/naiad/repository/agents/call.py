"""The interface of repository agents: code that may refuse or move a model before it is loaded, and follows its life.

A model names its agents in ``model_repository_agents``. Source of the actions and their order: the reference's
repository agent interface. An agent is made without arguments; one object sees one load of one model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Action(StrEnum):
    """An event in the life of a model, just before or after it."""

    LOAD = "LOAD"
    LOAD_COMPLETE = "LOAD_COMPLETE"
    LOAD_FAIL = "LOAD_FAIL"
    UNLOAD = "UNLOAD"
    UNLOAD_COMPLETE = "UNLOAD_COMPLETE"


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A call of an agent.

    Attributes:
        action: the event. LOAD may be refused with an exception; an exception from any other is logged.
        model: the name of the model.
        location: its folder, as the agent before returned it. After LOAD, the folder that it is loaded from.
        parameters: the agent's parameters in the model's configuration.
        new_folder: makes an empty folder, which is removed after UNLOAD_COMPLETE or LOAD_FAIL. It may be called during
            LOAD only.
    """

    action: Action
    model: str
    location: Path
    parameters: Mapping[str, str]
    new_folder: Callable[[], Path]


class Agent(Protocol):
    """One agent for one load of one model, called in loading threads."""

    def act(self, call: AgentCall) -> Path | str | None:
        """Handle an action. LOAD may return another folder to load the model from.

        Raises:
            Exception: the model must not be loaded.
        """
