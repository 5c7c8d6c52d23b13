"""The options of a server in a program: those of ``naiad serve`` as keyword arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

from naiad.errors import OptionError
from naiad.options import OPTIONS, ServerOptions, parse
from naiad.spelling import nearest_spelling

OTHER_NAMES: Final = {
    "server_id": "id",
    "startup_models": "load_model",
    "exit_timeout": "exit_timeout_secs",
    "log_warn": "log_warning",
    "strict_model_config": "disable_auto_complete_config",
    "repo_agent_directory": "repoagent_directory",
    "rate_limiter_mode": "rate_limit",
    "metrics": "allow_metrics",
    "cpu_metrics": "allow_cpu_metrics",
    "gpu_metrics": "allow_gpu_metrics",
    "metrics_interval": "metrics_interval_ms",
    "backend_configuration": "backend_config",
    "metrics_configuration": "metrics_config",
    "host_policies": "host_policy",
    "pinned_memory_pool_size": "pinned_memory_pool_byte_size",
    "cuda_memory_pool_sizes": "cuda_memory_pool_byte_size",
}
"""The options of the reference's Python package that have another name on the command line."""

PORTS: Final = {
    "http_port": "allow_http",
    "grpc_port": "allow_grpc",
    "metrics_port": "allow_metrics",
    "sagemaker_port": "allow_sagemaker",
    "vertex_ai_port": "allow_vertex_ai",
}
"""The options that name a port, each with the one that opens it."""

_BY_FIELD: Final = {option.field: option for option in OPTIONS}


def read_options(
    given: Mapping[str, Any], repositories: Sequence[str | Path], environ: Mapping[str, str], opens_all: bool
) -> ServerOptions:
    """The options of a server.

    Args:
        given: by the names of the command line, with ``_`` in place of ``-``, or of the reference's package.
        repositories: the model repositories.
        environ: the environment variables; ``given`` overrides them.
        opens_all: open the standard ports, unless ``given`` says otherwise; else only those that it names.

    Raises:
        OptionError: an option is unknown, or its value is wrong.
    """
    # The reference's package collects metrics without a port, so that this one says nothing new.
    given = {name: value for name, value in given.items() if value is not None and (name, value) != ("metrics", True)}
    named = {OTHER_NAMES.get(name, name): value for name, value in given.items()}
    for name in named:
        if name not in _BY_FIELD:
            close = nearest_spelling(name, [*_BY_FIELD, *OTHER_NAMES])
            hint = f": did you mean {close}?" if close else ": docs/options.md lists them, with _ in place of -"
            raise OptionError(f"Server has no option {name}{hint}")
    if not opens_all:
        named = {allow: port in named for port, allow in PORTS.items()} | named
    words = [f"--model-repository={place}" for place in repositories]
    variables = dict(environ)
    for name, value in named.items():
        option = _BY_FIELD[name]
        if option.kind.is_flag:
            # On the command line a flag stands without a value, so that it cannot be false there.
            variables[option.variable] = ",".join(_texts(value))
        else:
            words += [f"{option.flag}={text}" for text in _texts(value)]
    return parse(words, variables)


def _texts(value: Any) -> Iterator[str]:
    """The values of an option as the command line has them, several for a list and for nested settings."""
    if isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, Enum):
        yield str(value.value)
    elif isinstance(value, Mapping):
        for group, settings in value.items():
            if not isinstance(settings, Mapping):
                yield f"{group}:{settings}"
                continue
            for key, setting in settings.items():
                yield f"{group},{key}={setting}" if group else f"{key}={setting}"
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _texts(one)
    else:
        yield str(value)
