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
    """What is about to happen to a model, or has happened."""

    LOAD = "LOAD"
    LOAD_COMPLETE = "LOAD_COMPLETE"
    LOAD_FAIL = "LOAD_FAIL"
    UNLOAD = "UNLOAD"
    UNLOAD_COMPLETE = "UNLOAD_COMPLETE"


@dataclass(frozen=True, slots=True)
class AgentCall:
    """What an agent is told.

    Attributes:
        action: what happens. LOAD may be refused with an exception; an exception from any other is logged.
        model: the name of the model.
        location: its folder, where the agent before has put it. After LOAD, the folder that it is loaded from.
        parameters: those of the agent in the model's configuration.
        new_folder: makes an empty folder, which is removed after UNLOAD_COMPLETE or LOAD_FAIL. For LOAD only, and no
            longer than that.
    """

    action: Action
    model: str
    location: Path
    parameters: Mapping[str, str]
    new_folder: Callable[[], Path]


class Agent(Protocol):
    """One agent for one load of one model, called in loading threads."""

    def act(self, call: AgentCall) -> Path | str | None:
        """Do what the action asks for. LOAD may give back another folder to load the model from.

        Raises:
            Exception: the model must not be loaded.
        """
