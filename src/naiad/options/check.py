"""The few options of ``naiad check``, from the same table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from naiad.options.command_line import read, settle
from naiad.options.server import OPTIONS, ServerOptions

_FIELDS = frozenset(
    (
        *("model_repository", "disable_auto_complete_config", "model_config_name", "gpu_fallback", "host_policy"),
        "min_supported_compute_capability",
        *("backend_directory", "backend_config", "repoagent_directory"),
        *("model_repository_mirror", "model_repository_mirror_size"),
    )
)
CHECK_OPTIONS = tuple(option for option in OPTIONS if option.field in _FIELDS)


def parse_check(argv: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """The options of ``naiad check``; the others keep their defaults.

    Raises:
        OptionError: one line for each problem.
    """
    reading, paths = read(argv, environ, CHECK_OPTIONS)
    if not paths and not {"model_repository"} & (reading.values.keys() | reading.failed):
        reading.problems.append(
            "Nothing to check: name a repository, the folder of a model, or model files such as model.onnx"
        )
    return settle(reading, paths)
