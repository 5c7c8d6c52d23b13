"""``naiad serve`` and ``naiad check``: read the options, then hand over to the server or to the check."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence

from naiad.errors import OptionError
from naiad.options import ServerOptions, check_help, parse, parse_check, serve_help, wants_help

logger = logging.getLogger("naiad")


def serve(argv: Sequence[str]) -> int:
    """Serve until a signal stops the server; returns the exit code."""
    if "--optimize" in argv:
        from naiad.cli.optimize import optimize_and_serve

        return optimize_and_serve(argv, serve)
    return _with_options("serve", argv, serve_help, lambda: _serve(parse(argv, os.environ)))


def check(argv: Sequence[str]) -> int:
    """Check models without serving them; returns the exit code."""
    return _with_options("check", argv, check_help, lambda: _check(parse_check(argv, os.environ)))


def _with_options(command: str, argv: Sequence[str], help_text: Callable[[], str], run: Callable[[], int]) -> int:
    if wants_help(argv):
        print(help_text(), end="")
        return 0
    try:
        return run()
    except OptionError as error:
        print(f"{error}\nRun 'naiad {command} --help' for the options.", file=sys.stderr)
        return 1


def _serve(options: ServerOptions) -> int:
    # Imported here and below: --help and wrong options do not pay for the server.
    from naiad.telemetry.logs.server_log import LogSettings, Rotation, ServerLog

    # A format that was asked for is used on a terminal, too.
    for_terminals = "log_format" not in options.given
    # Of several processes that of the engine renames the log file.
    rotation = Rotation(follows=True) if options.frontend_count > 1 else Rotation.from_options(options)
    with ServerLog(LogSettings.from_options(options), for_terminals=for_terminals, rotation=rotation) as log:
        for text in options.warnings:
            logger.warning(text)
        if options.frontend_count > 1:
            from naiad.server.fronts.main_process import run_processes

            return run_processes(options, log)
        from naiad.server.server import run

        return run(options, log)


def _check(options: ServerOptions) -> int:
    from naiad.backend_api.host_policy import HostPolicies
    from naiad.cli.check import run
    from naiad.gpus.access import GpuAccess

    for text in options.warnings:
        print(f"warning: {text}", file=sys.stderr)
    return run(
        (*options.model_repository, *options.paths),
        disable_auto_complete=options.disable_auto_complete_config,
        model_config_name=options.model_config_name,
        gpu_fallback=options.gpu_fallback == "cpu",
        policies=HostPolicies.of(options.host_policies),
        gpus=GpuAccess.of(options.min_supported_compute_capability),
        backend_config=options.backend_settings,
        repoagent_directory=options.repoagent_directory,
        mirror=options.model_repository_mirror,
        mirror_size=options.model_repository_mirror_size,
    )
