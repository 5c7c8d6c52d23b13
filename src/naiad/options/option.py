"""An option of the command line, and the function that declares it in a class body."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from naiad.options.kinds import Kind


class Group(Enum):
    """The headings of the help text, in its order."""

    SERVER = "Server"
    LOGGING = "Logging"
    OVERLOAD = "Overload"
    MODEL_REPOSITORY = "Model Repository"
    HTTP = "HTTP"
    GRPC = "GRPC"
    SAGEMAKER = "Sagemaker"
    VERTEX = "Vertex"
    OPENAI = "OpenAI"
    ACCESS = "Access"
    METRICS = "Metrics"
    TRACING = "Tracing"
    BACKEND = "Backend"
    CACHE = "Response Cache"
    RATE_LIMITER = "Rate Limiter"
    SHARED_MEMORY = "Shared Memory"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the command line.

    ``remark`` is the warning that is logged when the option is given, for options that are deprecated or do nothing
    here. A repeatable option's value is the tuple of all values given.
    """

    field: str
    kind: Kind
    default: Any
    group: Group
    help: str
    repeatable: bool = False
    aliases: tuple[str, ...] = ()
    remark: str = ""

    @property
    def flag(self) -> str:
        """The name on the command line: ``--http-port``."""
        return "--" + self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable that sets it: ``NAIAD_HTTP_PORT``."""
        return "NAIAD_" + self.field.upper()


def declare(
    group: Group,
    kind: Kind,
    default: Any,
    help: str,
    *,
    repeatable: bool = False,
    aliases: tuple[str, ...] = (),
    remark: str = "",
) -> Any:
    """A dataclass field that is an option; its name becomes the flag, its annotation the type of the value."""
    # Without its name, which a class body does not know yet: ``OPTIONS`` adds it.
    option = Option("", kind, default, group, help, repeatable, aliases, remark)
    return field(default=default, metadata={"option": option})
