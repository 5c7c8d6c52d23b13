"""The program of the processes that the main process starts. Arguments: a descriptor, and "grpc" if that is served."""

from __future__ import annotations

import logging
import socket
import sys

from naiad.errors import OptionError
from naiad.server.fronts.control import ENGINE, receive_role
from naiad.telemetry.logs.server_log import LogSettings, Rotation, ServerLog

logger = logging.getLogger("naiad")


def main(descriptor: int, serves_grpc: bool) -> int:
    """Be what the main process says over its connection; returns the exit code."""
    with socket.socket(fileno=descriptor) as control:
        # Before the role: a spare process then listens at once when it gets one.
        from naiad.server.fronts.front import prepare, run_front

        prepare(serves_grpc)
        try:
            kind, _, options = receive_role(control)
        except EOFError:
            return 1
        try:
            # The process that lives longest renames the log file, and the others follow.
            rotation = Rotation.from_options(options) if kind == ENGINE else Rotation(follows=True)
            for_terminals = "log_format" not in options.given
            with ServerLog(LogSettings.from_options(options), for_terminals=for_terminals, rotation=rotation) as log:
                if kind == ENGINE:
                    from naiad.server.fronts.port import engine_listeners
                    from naiad.server.server import run

                    return run(options, log, engine_listeners(control))
                return run_front(options, control, log)
        except OptionError as error:
            sys.stderr.write(f"{error}\n")
            return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), "grpc" in sys.argv[2:]))
